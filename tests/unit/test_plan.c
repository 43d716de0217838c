/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include "unit/plan_tables.h"

static kvx_plan_read reads[READS_MAX];
static kvx_plan_read reads_again[READS_MAX];

/* Every read moves each of its bytes to where its page belongs, and no byte is moved twice. */
static void expect_cover(const tables *t, const kvx_plan_geometry *geometry, uint32_t read_count)
{
    static kvx_page source_of[POOL_PAGES];
    static uint8_t moved[POOL_PAGES][32];
    uint64_t bytes = 0;

    memset(moved, 0, sizeof(moved));
    for (uint32_t i = 0; i < t->count; i++)
        source_of[t->destination[i]] = t->source[t->skip + i];
    for (uint32_t i = 0; i < read_count; i++) {
        const kvx_plan_read *read = &reads[i];
        cr_assert_gt(read->length_bytes, (uint64_t)0);
        cr_assert_leq(read->length_bytes, geometry->read_bytes_max);
        cr_assert_eq(read->destination, read->destination_off / geometry->destination_stride);
        for (uint64_t byte = 0; byte < read->length_bytes; byte++) {
            const uint64_t to = read->destination_off + byte;
            const uint64_t from = read->source_off + byte;
            const uint64_t page = to / geometry->destination_stride;
            const uint64_t off = to % geometry->destination_stride;
            cr_assert_lt(page, (uint64_t)POOL_PAGES);
            cr_assert_lt(off, geometry->page_bytes);
            cr_assert_eq(from, source_of[page] * geometry->source_stride + off);
            cr_assert_eq(moved[page][off]++, 0);
        }
        bytes += read->length_bytes;
    }
    cr_assert_eq(bytes, t->count * geometry->page_bytes);
    for (uint32_t i = 0; i < t->count; i++)
        cr_assert_eq(moved[t->destination[i]][0], 1);
}

Test(plan, reads_cover_exactly_the_bytes_of_the_tables)
{
    uint64_t state = test_seed();

    for (uint64_t round = 0; round < test_rounds(1500); round++) {
        tables t;
        tables_make(&t, &state);
        if (test_random_below(&state, 8) == 0 && t.count > 1) { /* a source page twice */
            t.source[t.skip] = t.source[t.skip + t.count - 1];
            runs_make(&t, &state);
        }
        kvx_plan *plan = plan_make(&t, 1 + (uint32_t)test_random_below(&state, 400), &state);
        const kvx_plan_geometry geometry = geometry_make(&state);
        expect_cover(&t, &geometry, emit_all(plan, &geometry, 50, reads, &state));
        kvx_plan_destroy(&plan);
    }
}

static int by_source(const void *a, const void *b)
{
    const kvx_page *p = a;
    const kvx_page *q = b;

    return (p[0] > q[0]) - (p[0] < q[0]);
}

/* The runs that sorting and merging by the book gives; source pages are distinct. */
static uint32_t naive_run_count(const tables *t)
{
    kvx_page pairs[PAGES_MAX][2];
    uint32_t runs = 0;

    for (uint32_t i = 0; i < t->count; i++) {
        pairs[i][0] = t->source[t->skip + i];
        pairs[i][1] = t->destination[i];
    }
    qsort(pairs, t->count, sizeof(pairs[0]), by_source);
    for (uint32_t i = 0; i < t->count; i++)
        runs += i == 0 || pairs[i][0] != pairs[i - 1][0] + 1 || pairs[i][1] != pairs[i - 1][1] + 1;
    return runs;
}

Test(plan, there_are_as_many_runs_as_sorting_and_merging_gives)
{
    uint64_t state = test_seed();

    for (uint64_t round = 0; round < test_rounds(1500); round++) {
        tables t;
        uint32_t run_count = 0;
        uint32_t pages = 0;
        tables_make(&t, &state);
        kvx_plan *plan = plan_make(&t, 100, &state);
        const kvx_plan_run *runs = kvx_plan_runs(plan, &run_count);
        cr_assert_eq(run_count, naive_run_count(&t));
        for (uint32_t i = 0; i < run_count; i++) {
            cr_assert(i == 0 || runs[i].source > runs[i - 1].source);
            pages += runs[i].count;
        }
        cr_assert_eq(pages, t.count);
        kvx_plan_destroy(&plan);
    }
}

/* The same pairs in another order; nothing skipped, since the front means something. */
static void tables_shuffle(const tables *t, tables *shuffled_out, uint64_t *state)
{
    kvx_page order[PAGES_MAX];

    *shuffled_out = *t;
    for (uint32_t i = 0; i < t->count; i++)
        order[i] = i;
    shuffle(order, t->count, state);
    for (uint32_t i = 0; i < t->count; i++) {
        shuffled_out->source[t->skip + i] = t->source[t->skip + order[i]];
        shuffled_out->destination[i] = t->destination[order[i]];
    }
    runs_make(shuffled_out, state);
}

Test(plan, a_shuffled_table_gives_the_same_reads_in_any_slices_and_chunks)
{
    uint64_t state = test_seed();

    for (uint64_t round = 0; round < test_rounds(1500); round++) {
        tables t;
        tables other;
        tables_make(&t, &state);
        tables_shuffle(&t, &other, &state);
        const kvx_plan_geometry geometry = geometry_make(&state);
        kvx_plan *plan = plan_make(&t, 1000, &state);
        kvx_plan *plan_again = plan_make(&other, 3, &state);
        const uint32_t count = emit_all(plan, &geometry, 1000, reads, &state);
        cr_assert_eq(emit_all(plan_again, &geometry, 4, reads_again, &state), count);
        for (uint32_t i = 0; i < count; i++) {
            cr_assert_eq(reads[i].source_off, reads_again[i].source_off);
            cr_assert_eq(reads[i].destination_off, reads_again[i].destination_off);
            cr_assert_eq(reads[i].length_bytes, reads_again[i].length_bytes);
            cr_assert_eq(reads[i].destination, reads_again[i].destination);
        }
        kvx_plan_destroy(&plan_again);
        kvx_plan_destroy(&plan);
    }
}

/* --- single cases ---------------------------------------------------------------------------- */

static kvx_plan *plan_of(const kvx_page_run *runs, uint32_t run_count, uint32_t skip,
        const kvx_page *destination, uint32_t count)
{
    const kvx_plan_params params = {
        .struct_size = sizeof(params),
        .source = runs,
        .source_count = run_count,
        .source_skip = skip,
        .destination = destination,
        .page_count = count,
        .destination_pool_pages = POOL_PAGES,
        .source_pool_pages = POOL_PAGES,
    };
    kvx_plan *plan = NULL;

    cr_assert_eq(kvx_plan_begin(&params, &plan), KVX_OK);
    return plan;
}

static void expect_run(
        const kvx_plan_run *run, kvx_page source, kvx_page destination, uint32_t count)
{
    cr_expect_eq(run->source, source);
    cr_expect_eq(run->destination, destination);
    cr_expect_eq(run->count, count);
}

Test(plan, pages_adjacent_on_both_sides_become_one_run)
{
    static const kvx_page_run runs[] = { { 10, 4 }, { 14, 1 }, { 2, 2 } };
    static const kvx_page destination[] = { 50, 51, 60, 61, 62, 48, 49 };
    kvx_plan *plan = plan_of(runs, 3, 0, destination, 7);
    uint32_t count = 9;

    cr_expect_null(kvx_plan_runs(plan, &count));
    cr_expect_eq(count, 0u);
    cr_assert_eq(kvx_plan_step(plan, 1000, NULL), KVX_OK);
    cr_expect_eq(kvx_plan_step(plan, 1, NULL), KVX_OK);
    const kvx_plan_run *made = kvx_plan_runs(plan, &count);
    cr_assert_eq(count, 3u);
    expect_run(&made[0], 2, 48, 2);
    expect_run(&made[1], 10, 50, 2);
    expect_run(&made[2], 12, 60, 3);
    kvx_plan_destroy(&plan);
    cr_expect_null(plan);
    kvx_plan_destroy(&plan);
    kvx_plan_destroy(NULL);
}

Test(plan, a_skipped_front_is_left_out_even_over_several_runs)
{
    static const kvx_page_run runs[] = { { 10, 4 }, { 90, 1 }, { 20, 3 } };
    static const kvx_page destination[] = { 7, 8 };
    kvx_plan *plan = plan_of(runs, 3, 6, destination, 2);
    uint32_t count = 0;

    while (kvx_plan_step(plan, 1, NULL) == KVX_AGAIN)
        continue;
    const kvx_plan_run *made = kvx_plan_runs(plan, &count);
    cr_assert_eq(count, 1u);
    expect_run(&made[0], 21, 7, 2);
    kvx_plan_destroy(&plan);
}

Test(plan, no_pages_make_no_runs_and_no_reads)
{
    static const kvx_page_run skipped[] = { { 10, 4 } };
    const kvx_plan_geometry geometry = { 8, 8, 8, 64 };
    kvx_plan_cursor cursor = { 0 };
    kvx_plan_read read;
    uint32_t count = 9;

    for (uint32_t i = 0; i < 2; i++) {
        kvx_plan *plan = plan_of(skipped, i, 4 * i, NULL, 0);
        cr_expect_eq(kvx_plan_emit(plan, &geometry, &cursor, &read, 1), 0u);
        cr_assert_eq(kvx_plan_step(plan, 100, NULL), KVX_OK);
        (void)kvx_plan_runs(plan, &count);
        cr_expect_eq(count, 0u);
        cr_expect_eq(kvx_plan_emit(plan, &geometry, &cursor, &read, 1), 0u);
        kvx_plan_destroy(&plan);
    }
}

Test(plan, equal_source_pages_are_legal_and_keep_their_order)
{
    static const kvx_page_run runs[] = { { 5, 2 }, { 5, 2 } };
    static const kvx_page destination[] = { 1, 2, 3, 4 };
    kvx_plan *plan = plan_of(runs, 2, 0, destination, 4);
    uint32_t count = 0;

    cr_assert_eq(kvx_plan_step(plan, 1000, NULL), KVX_OK);
    const kvx_plan_run *made = kvx_plan_runs(plan, &count);
    cr_assert_eq(count, 4u);
    expect_run(&made[0], 5, 1, 1);
    expect_run(&made[1], 5, 3, 1);
    expect_run(&made[2], 6, 2, 1);
    expect_run(&made[3], 6, 4, 1);
    kvx_plan_destroy(&plan);
}

Test(plan, tables_that_do_not_line_up_are_refused_with_the_page_at_fault)
{
    static const kvx_page fine[] = { 1, 2, 3, 4 };
    static const kvx_page outside[] = { 1, 2, POOL_PAGES, 4 };
    static const struct {
        const char *what;
        kvx_page_run runs[2];
        const kvx_page *destination;
        uint32_t skip;
        kvx_page bad;
    } rows[] = {
        { "a destination outside", { { 5, 2 }, { 9, 2 } }, outside, 0, POOL_PAGES },
        { "a source run outside", { { 5, 2 }, { POOL_PAGES - 1, 2 } }, fine, 0, POOL_PAGES - 1 },
        { "a source run far outside", { { 5, 2 }, { UINT32_MAX, 2 } }, fine, 0, UINT32_MAX },
        { "a run that wraps", { { 5, 2 }, { 9, UINT32_MAX } }, fine, 0, 9 },
        { "an empty run", { { 5, 2 }, { 9, 0 } }, fine, 0, 9 },
        { "more source pages", { { 5, 2 }, { 9, 3 } }, fine, 0, 11 },
        { "more destination pages", { { 5, 2 }, { 9, 1 } }, fine, 0, 4 },
        { "too many skipped", { { 5, 2 }, { 9, 2 } }, fine, 1, 4 },
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        kvx_page bad = 77;
        kvx_plan *plan = plan_of(rows[i].runs, 2, rows[i].skip, rows[i].destination, 4);
        while (kvx_plan_step(plan, 1, &bad) == KVX_AGAIN)
            cr_assert_eq(bad, 77u);
        cr_expect_eq(bad, rows[i].bad, "%s", rows[i].what);
        cr_expect_eq(kvx_plan_step(plan, 1, &bad), KVX_INVALID, "%s", rows[i].what);
        kvx_plan_destroy(&plan);
    }
}

Test(plan, parameters_that_make_no_sense_are_refused_at_once)
{
    static const kvx_page_run runs[] = { { 5, 1 }, { 9, 1 } };
    static const kvx_page destination[] = { 1, 2 };
    const kvx_plan_params good = { .struct_size = sizeof(good),
        .source = runs,
        .source_count = 2,
        .destination = destination,
        .page_count = 2,
        .destination_pool_pages = 10,
        .source_pool_pages = 10 };
    kvx_plan_params params = good;
    kvx_plan *plan = NULL;

    params.struct_size = 0;
    cr_expect_eq(kvx_plan_begin(&params, &plan), KVX_INVALID);
    params = good;
    params.source = NULL;
    cr_expect_eq(kvx_plan_begin(&params, &plan), KVX_INVALID);
    params = good;
    params.destination = NULL;
    cr_expect_eq(kvx_plan_begin(&params, &plan), KVX_INVALID);
    params = good;
    params.source_count = 0;
    cr_expect_eq(kvx_plan_begin(&params, &plan), KVX_INVALID);
    params = good;
    params.page_count = 1; /* two runs are two pages at least */
    cr_expect_eq(kvx_plan_begin(&params, &plan), KVX_INVALID);
    cr_expect_eq(kvx_plan_begin(NULL, &plan), KVX_INVALID);
    cr_expect_eq(kvx_plan_begin(&good, NULL), KVX_INVALID);
    cr_expect_null(plan);
    cr_assert_eq(kvx_plan_begin(&good, &plan), KVX_OK);
    cr_expect_eq(kvx_plan_step(plan, 0, NULL), KVX_INVALID);
    cr_expect_eq(kvx_plan_step(plan, 100, NULL), KVX_OK);
    kvx_plan_destroy(&plan);
}

Test(plan, a_dense_run_is_cut_by_the_cap_only)
{
    static const kvx_page_run runs[] = { { 10, 5 } };
    static const kvx_page destination[] = { 20, 21, 22, 23, 24 };
    static const struct {
        kvx_plan_geometry geometry;
        uint32_t reads;
        uint64_t last_bytes;
        kvx_page last_page;
    } rows[] = {
        { { 64, 64, 64, UINT64_MAX }, 1, 320, 20 },
        { { 64, 64, 64, 320 }, 1, 320, 20 },
        { { 64, 64, 64, 319 }, 2, 1, 24 },
        { { 64, 64, 64, 100 }, 4, 20, 24 },
        { { 64, 64, 64, 1 }, 320, 1, 24 },
        { { 64, 64, 80, UINT64_MAX }, 5, 64, 24 }, /* spread on one side */
        { { 64, 80, 64, UINT64_MAX }, 5, 64, 24 },
        { { 64, 80, 80, 60 }, 10, 4, 24 },
        { { 0, 80, 80, 60 }, 0, 0, 0 },
        { { 64, 80, 80, 0 }, 0, 0, 0 },
    };
    uint64_t state = 1;
    kvx_plan *plan = plan_of(runs, 1, 0, destination, 5);

    cr_assert_eq(kvx_plan_step(plan, 1000, NULL), KVX_OK);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const uint32_t count = emit_all(plan, &rows[i].geometry, 7, reads, &state);
        cr_expect_eq(count, rows[i].reads, "row %zu", i);
        if (count == 0)
            continue;
        cr_expect_eq(reads[count - 1].length_bytes, rows[i].last_bytes, "row %zu", i);
        cr_expect_eq(reads[count - 1].destination, rows[i].last_page, "row %zu", i);
    }
    kvx_plan_destroy(&plan);
}

/* Slices of one step that a table of count pages takes; backwards, so that it must be sorted. */
static uint64_t steps_for(uint32_t count, bool is_sorted)
{
    kvx_page_run *runs = calloc(count, sizeof(*runs));
    kvx_page *destination = calloc(count, sizeof(*destination));
    kvx_plan *plan = NULL;
    uint64_t steps = 1;

    cr_assert(runs != NULL && destination != NULL);
    for (uint32_t i = 0; i < count; i++) {
        runs[i] = (kvx_page_run){ is_sorted ? 2 * i : 2 * (count - i), 1 };
        destination[i] = i;
    }
    const kvx_plan_params params = { .struct_size = sizeof(params),
        .source = runs,
        .source_count = count,
        .destination = destination,
        .page_count = count,
        .destination_pool_pages = count,
        .source_pool_pages = UINT32_MAX };
    cr_assert_eq(kvx_plan_begin(&params, &plan), KVX_OK);
    while (kvx_plan_step(plan, 1, NULL) == KVX_AGAIN)
        steps++;
    kvx_plan_destroy(&plan);
    free(destination);
    free(runs);
    return steps;
}

Test(plan, work_grows_no_faster_than_the_pages)
{
    /* Between these sizes the number of digits that differ stays the same. */
    const uint64_t few = steps_for(40000, false);
    const uint64_t many = steps_for(160000, false);

    cr_expect_leq(many, 4 * few + 8);
    cr_expect_leq(many, UINT64_C(160000) * 8);
    cr_expect_leq(steps_for(40000, true), UINT64_C(40000) * 3 + 8);
}
