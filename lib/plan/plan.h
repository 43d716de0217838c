/* SPDX-License-Identifier: Apache-2.0 */
/* A plan in the making: pairs of pages, put into source order, merged into runs. */
#ifndef KVX_PLAN_PLAN_H
#define KVX_PLAN_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvx/plan.h"

/* The i-th page of each table. */
typedef struct kvx_page_pair {
    kvx_page source;
    kvx_page destination;
} kvx_page_pair;

#define KVX_RADIX_BITS    8
#define KVX_RADIX_BUCKETS (1 << KVX_RADIX_BITS)
#define KVX_RADIX_PASSES  4

/* Sorting pairs by source page, stable, cut into slices. */
typedef struct kvx_radix {
    kvx_page_pair *from; /* present order; what is sorted lies here at the end */
    kvx_page_pair *to;
    uint32_t count;
    uint32_t at;   /* next pair to look at */
    uint32_t pass; /* 0: counting; 1 ... KVX_RADIX_PASSES: moving by that digit */
    bool is_open;  /* this pass's buckets are turned into positions */
    uint32_t buckets[KVX_RADIX_PASSES][KVX_RADIX_BUCKETS];
} kvx_radix;

/* Sort on for at most *budget pairs, which is counted down. True: sorted. */
bool kvx_radix_step(kvx_radix *radix, uint32_t *budget);

typedef enum plan_phase {
    PLAN_EXPANDING, /* runs and pages into pairs */
    PLAN_SORTING,
    PLAN_MERGING,
    PLAN_DONE,
    PLAN_REFUSED,
} plan_phase;

struct kvx_plan {
    kvx_plan_params params;
    plan_phase phase;
    uint32_t source_at;    /* run of the source table to expand next */
    uint32_t source_in_at; /* page inside that run */
    bool is_run_open;      /* that run was checked, and skipped into */
    uint32_t skip_left;    /* pages of the source table still to leave out */
    uint32_t pair_count;
    uint32_t merge_at;
    uint32_t run_count;
    bool is_sorted; /* the pairs came in source order */
    kvx_page bad_page;
    kvx_radix radix;
    kvx_plan_run *runs; /* in the buffer that the pairs do not use */
    /* Each holds as many pairs, or runs, as there are pages. */
    kvx_plan_run *buffers[2];
};

#endif
