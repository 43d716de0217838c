/* SPDX-License-Identifier: Apache-2.0 */
/* Random page tables, and planning them, for the tests of plan. */
#ifndef KVX_TEST_PLAN_TABLES_H
#define KVX_TEST_PLAN_TABLES_H

#include <criterion/criterion.h>

#include "kvx/plan.h"

#include "support/seed.h"

enum { PAGES_MAX = 300, POOL_PAGES = 1000, READS_MAX = 1 << 14 };

/* Two tables, and the pairs that they mean. */
typedef struct tables {
    kvx_page source[PAGES_MAX]; /* page by page, the skipped ones first */
    kvx_page_run runs[PAGES_MAX];
    kvx_page destination[PAGES_MAX];
    uint32_t run_count;
    uint32_t skip;
    uint32_t count; /* pairs */
} tables;

static inline kvx_plan_params params_of(const tables *t)
{
    return (kvx_plan_params){
        .struct_size = sizeof(kvx_plan_params),
        .source = t->runs,
        .source_count = t->run_count,
        .source_skip = t->skip,
        .destination = t->destination,
        .page_count = t->count,
        .destination_pool_pages = POOL_PAGES,
        .source_pool_pages = POOL_PAGES,
    };
}

/* Source pages as runs; sometimes a run is cut where it need not be. */
static inline void runs_make(tables *t, uint64_t *state)
{
    t->run_count = 0;
    for (uint32_t i = 0; i < t->skip + t->count; i++) {
        kvx_page_run *last = t->run_count > 0 ? &t->runs[t->run_count - 1] : NULL;
        const bool continues = last != NULL && t->source[i] == last->first + last->count;
        if (continues && test_random_below(state, 8) > 0)
            last->count++;
        else
            t->runs[t->run_count++] = (kvx_page_run){ t->source[i], 1 };
    }
}

static inline void shuffle(kvx_page *pages, uint32_t count, uint64_t *state)
{
    for (uint32_t i = count; i > 1; i--) {
        const uint32_t j = (uint32_t)test_random_below(state, i);
        const kvx_page page = pages[i - 1];
        pages[i - 1] = pages[j];
        pages[j] = page;
    }
}

/* Distinct pages of the pool with stretches of neighbours: pieces of the pool in random order. */
static inline void pages_make(kvx_page *pages, uint32_t count, uint64_t *state)
{
    kvx_page pieces[POOL_PAGES / 10];
    const uint32_t length = 1 + (uint32_t)test_random_below(state, 10);
    uint32_t at = 0;

    for (uint32_t i = 0; i < POOL_PAGES / 10; i++)
        pieces[i] = i;
    shuffle(pieces, POOL_PAGES / 10, state);
    for (uint32_t i = 0; at < count; i++) {
        /* A piece is ten pages; some of it is used, then the rest if there are not enough. */
        for (uint32_t j = 0; j < length && at < count && i < POOL_PAGES / 10; j++)
            pages[at++] = pieces[i] * 10 + j;
        if (i >= POOL_PAGES / 10)
            for (uint32_t j = length; j < 10 && at < count; j++)
                pages[at++] = pieces[i - POOL_PAGES / 10] * 10 + j;
    }
}

static inline void tables_make(tables *t, uint64_t *state)
{
    t->skip = (uint32_t)test_random_below(state, 20);
    t->count = (uint32_t)test_random_below(state, PAGES_MAX - t->skip + 1);
    pages_make(t->source, t->skip + t->count, state);
    pages_make(t->destination, t->count, state);
    if (test_random_below(state, 3) == 0 && t->count > 0) /* mirrored by an allocator */
        for (uint32_t i = 0; i < t->count; i++)
            t->destination[i] = t->source[t->skip + i];
    runs_make(t, state);
}

/* Make a plan in slices of at most slice_max steps. */
static inline kvx_plan *plan_make(const tables *t, uint32_t slice_max, uint64_t *state)
{
    const kvx_plan_params params = params_of(t);
    kvx_plan *plan = NULL;
    kvx_status st = KVX_AGAIN;

    cr_assert_eq(kvx_plan_begin(&params, &plan), KVX_OK);
    for (uint32_t slices = 0; st == KVX_AGAIN; slices++) {
        const uint32_t budget = 1 + (uint32_t)test_random_below(state, slice_max);
        st = kvx_plan_step(plan, budget, NULL);
        cr_assert_lt(slices, 10u * PAGES_MAX);
    }
    cr_assert_eq(st, KVX_OK);
    return plan;
}

/* All reads of a region, emitted in chunks of at most chunk_max. */
static inline uint32_t emit_all(const kvx_plan *plan, const kvx_plan_geometry *geometry,
        uint32_t chunk_max, kvx_plan_read *reads, uint64_t *state)
{
    kvx_plan_cursor cursor = { 0 };
    uint32_t count = 0;

    for (;;) {
        const uint32_t max = 1 + (uint32_t)test_random_below(state, chunk_max);
        cr_assert_leq(count + max, (uint32_t)READS_MAX);
        const uint32_t emitted = kvx_plan_emit(plan, geometry, &cursor, reads + count, max);
        count += emitted;
        if (emitted < max)
            return count;
    }
}

static inline kvx_plan_geometry geometry_make(uint64_t *state)
{
    const uint64_t page_bytes = 1 + test_random_below(state, 24);
    const bool is_dense = test_random_below(state, 2) != 0;

    return (kvx_plan_geometry){
        .page_bytes = page_bytes,
        .source_stride = page_bytes + (is_dense ? 0 : test_random_below(state, 9)),
        .destination_stride = page_bytes + (is_dense ? 0 : test_random_below(state, 9)),
        .read_bytes_max = 1 + test_random_below(state, 100),
    };
}

#endif
