/* SPDX-License-Identifier: Apache-2.0 */
/* What a decode run came to: for people, and as one JSON object whose names stay as they are. */
#ifndef PAIR_REPORT_H
#define PAIR_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "kvx/node.h"

/* X(name, what): the stages of a request, in nanoseconds. */
#define REPORT_STAGE_LIST(X)                    \
    X(wait, "subscribe to ready")               \
    X(allocate, "ready to pull: our own time")  \
    X(plan, "pull to planned")                  \
    X(wire, "planned to last byte")             \
    X(confirm, "last byte to the owner's word") \
    X(usable, "ready to usable: all but wait")

typedef enum report_stage {
#define REPORT_STAGE_ENUM(name, what) REPORT_##name,
    REPORT_STAGE_LIST(REPORT_STAGE_ENUM)
#undef REPORT_STAGE_ENUM
            REPORT_STAGE_COUNT
} report_stage;

/* Why requests failed: a status of the library each, and what only the program knows. */
#define REPORT_CAUSE_TOO_LARGE 1
#define REPORT_CAUSES_MAX      32

typedef struct report_cause {
    int code; /* kvx_status, or REPORT_CAUSE_* */
    uint64_t count;
} report_cause;

typedef struct decode_report {
    uint64_t requests; /* that ended, one way or the other */
    uint64_t failed;   /* of these: did not come, or came wrong */
    uint64_t not_run;  /* never asked for, because the run ended early */
    uint64_t retried;  /* times that one was asked for again, after a loss or while it was taken */
    uint64_t mismatches; /* pieces (a token of a region of a rank) that were wrong */
    uint64_t bytes;
    uint64_t pages;
    uint64_t reads;
    uint64_t skipped_bytes;   /* of prefixes that were here already */
    double idle_page_seconds; /* pages taken, times how long before the wire began */
    double seconds;
    bool is_verified;
    const char *reserve; /* policy */
    char transport[32];
    char read_mode[16];
    uint64_t *stages[REPORT_STAGE_COUNT]; /* samples, up to sample_max each */
    size_t sample_count;
    size_t sample_max;
    report_cause causes[REPORT_CAUSES_MAX];
    uint32_t cause_count;
} decode_report;

/* Room for the stages of so many requests. */
bool report_init(decode_report *report, size_t requests);
void report_fini(decode_report *report);

/* Count a pull that was delivered. */
void report_add_pull(decode_report *report, const kvx_pull_stats *stats);

/* Count a failed request under its cause. */
void report_add_failure(decode_report *report, int code);

/* Sorts the samples: call these when the run is over. */
void report_print(decode_report *report, FILE *out);
void report_print_json(decode_report *report, FILE *out);

#endif
