/* SPDX-License-Identifier: Apache-2.0 */
/* What both programs set up in the same way: settings, requests, memory, cache, group. */
#ifndef PAIR_SETUP_H
#define PAIR_SETUP_H

#include <stdbool.h>
#include <stdio.h>

#include "kvx/group.h"
#include "pair/cache.h"
#include "pair/options.h"
#include "pair/store.h"
#include "pair/trace.h"

#define SETUP_ADDRESS_MAX 256

typedef struct pair_setup {
    pair_options options;
    FILE *out; /* for people; stderr when stdout is for JSON */
    kvx_config *config;
    request_trace trace;
    kv_store store;
    kv_cache *cache;
    kvx_group *group;
    uint64_t metrics_ns;             /* when the metrics file was written last */
    bool is_metrics_lost;            /* it could not be written */
    char address[SETUP_ADDRESS_MAX]; /* of this process's rank */
} pair_setup;

/* Set up everything but the group. False: a message was printed. */
bool setup_open(pair_setup *setup, const pair_options *options);

/* Open the group; it listens at setup->address or, for decode, does not listen. */
bool setup_open_group(pair_setup *setup);

/* Close the group within the bound and free all that then may be freed. */
void setup_close(pair_setup *setup, uint32_t timeout_ms);

/* Rewrite the metrics file if a second went by, or now. */
void setup_write_metrics(pair_setup *setup, bool is_now);

/* Whether all that was asked for could be written. False: a message was printed. */
bool setup_is_written(pair_setup *setup);

#endif
