/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of both programs. */
#ifndef PAIR_OPTIONS_H
#define PAIR_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "kvx/log.h"

typedef enum options_role {
    OPTIONS_PREFILL,
    OPTIONS_DECODE,
} options_role;

/* Strings belong to the program's life. */
typedef struct pair_options {
    options_role role;
    const char *address; /* to listen on or to connect to, for rank 0 */
    int ranks;           /* of the group */
    int rank;            /* the only one in this process; -1: all */

    const char *model;
    int layers; /* 0: see layers_default */
    const char *token_bytes;
    const char *axis;   /* NULL: the model's */
    const char *compat; /* NULL: the model's name */
    int page_tokens;
    long long pool_tokens;

    const char *trace; /* NULL: generated */
    int requests;      /* 0: all of the trace */
    int tokens;        /* of each generated request */
    int tokens_max;    /* 0: none */

    const char *transport; /* NULL: the setting */
    const char *config;
    char **settings; /* key=value, NULL-terminated; NULL: none */
    bool print_config;

    const char *metrics; /* file; NULL: none */
    kvx_log_level log_level;
    bool json;

    /* decode alone */
    int concurrency;
    bool reserve_early;
    int deadline_ms; /* 0: the setting */
    int connect_s;
    int reconnect_s;
    bool verify;
    bool use_prefix;
} pair_options;

/* False: a message was printed. Ends the program after --help. */
bool options_parse(options_role role, int argc, char **argv, pair_options *options_out);

#endif
