/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>

#include <string.h>

#include "pool/pool.h"

#include "support/seed.h"

/* --- a transport that only notes registrations ----------------------------------------------- */

enum { REGIONS = 5, PAGES = 10 };

struct kvx_domain {
    uint32_t registered; /* now */
    uint32_t calls;      /* registrations tried */
    uint32_t fail_at;    /* which of them fails, from 1; 0: none */
    void *base[REGIONS];
    uint64_t length_bytes[REGIONS];
};

struct kvx_mr {
    struct kvx_domain *domain;
};

static kvx_mr mrs[REGIONS];

static kvx_status note_reg(kvx_domain *domain, void *base, uint64_t length_bytes,
        kvx_memory_kind kind, kvx_mr **mr_out)
{
    const uint32_t index = domain->calls++;

    cr_assert_eq(kind, KVX_MEMORY_HOST);
    if (domain->calls == domain->fail_at)
        return KVX_UNSUPPORTED;
    domain->base[index] = base;
    domain->length_bytes[index] = length_bytes;
    domain->registered++;
    mrs[index].domain = domain;
    *mr_out = &mrs[index];
    return KVX_OK;
}

static void note_unreg(kvx_mr *mr)
{
    mr->domain->registered--;
}

static const kvx_transport_ops ops = {
    .size = sizeof(ops), .name = "note", .reg = note_reg, .unreg = note_unreg
};

/* --- a layout -------------------------------------------------------------------------------- */

static uint8_t memory[1 << 16];
static kvx_component components[2];
static kvx_region regions[REGIONS];
static kvx_layout layout;

static void make_layout(void)
{
    components[0] = (kvx_component){ "kv", 16, PAGES, "token,head" };
    components[1] = (kvx_component){ "state", 0, 2 * PAGES, "layer" };
    for (uint32_t i = 0; i < REGIONS; i++)
        regions[i] = (kvx_region){
            .component = i / 4,
            .role = "mla",
            .layer = i,
            .base = memory + i * 4096,
            .page_bytes = 100 + i,
            .page_stride = i == 4 ? 0 : 128,
        };
    layout = (kvx_layout){ components, 2, regions, REGIONS };
}

TestSuite(pool, .init = make_layout);

Test(pool, a_pool_is_a_copy_of_the_layout)
{
    char name[] = "kv";
    kvx_pool *pool = NULL;

    components[0].name = name;
    cr_assert_eq(kvx_pool_create(&layout, &pool), KVX_OK);
    memset(name, 'x', 2);
    memset(components, 0, sizeof(components));
    memset(regions, 0, sizeof(regions));
    cr_expect_eq(pool->component_count, 2u);
    cr_expect_str_eq(pool->components[0].name, "kv");
    cr_expect_str_eq(pool->components[1].axis, "layer");
    cr_expect_eq(pool->region_count, (uint32_t)REGIONS);
    cr_expect_str_eq(pool->regions[4].role, "mla");
    cr_expect_eq(pool->regions[3].page_stride, (uint64_t)128);
    cr_expect_eq(pool->regions[4].page_stride, (uint64_t)104);
    cr_expect_eq(kvx_pool_page_bytes(pool, 0), (uint64_t)(100 + 101 + 102 + 103));
    cr_expect_eq(kvx_pool_page_bytes(pool, 1), (uint64_t)104);
    kvx_pool_destroy(&pool);
    cr_expect_null(pool);
}

Test(pool, a_wrong_layout_is_refused_and_writes_nothing)
{
    kvx_pool *pool = NULL;

    regions[2].page_bytes = 0;
    cr_expect_eq(kvx_pool_create(&layout, &pool), KVX_INVALID);
    cr_expect_null(pool);
    kvx_pool_destroy(&pool);
    kvx_pool_destroy(NULL);
}

Test(pool, every_region_is_registered_over_its_span)
{
    kvx_domain domain = { 0 };
    kvx_pool *pool = NULL;

    cr_assert_eq(kvx_pool_create(&layout, &pool), KVX_OK);
    cr_assert_eq(kvx_pool_attach(pool, &ops, &domain), KVX_OK);
    cr_expect_eq(domain.registered, (uint32_t)REGIONS);
    cr_expect_eq(domain.base[1], (void *)(memory + 4096));
    cr_expect_eq(domain.length_bytes[1], (uint64_t)(9 * 128 + 101));
    cr_expect_eq(domain.length_bytes[4], (uint64_t)(20 * 104));
    cr_expect_eq(pool->mrs[3], &mrs[3]);
    cr_expect_eq(kvx_pool_attach(pool, &ops, &domain), KVX_BUSY);
    kvx_pool_detach(pool);
    cr_expect_eq(domain.registered, 0u);
    kvx_pool_detach(pool);
    cr_expect_eq(domain.registered, 0u);
    kvx_pool_destroy(&pool);
}

Test(pool, a_failed_registration_leaves_nothing_registered)
{
    for (uint32_t n = 1; n <= REGIONS; n++) {
        kvx_domain domain = { .fail_at = n };
        kvx_pool *pool = NULL;
        cr_assert_eq(kvx_pool_create(&layout, &pool), KVX_OK);
        cr_expect_eq(kvx_pool_attach(pool, &ops, &domain), KVX_UNSUPPORTED);
        cr_expect_eq(domain.registered, 0u);
        domain = (kvx_domain){ 0 };
        cr_expect_eq(kvx_pool_attach(pool, &ops, &domain), KVX_OK);
        kvx_pool_destroy(&pool); /* detaches */
        cr_expect_eq(domain.registered, 0u);
    }
}

Test(pool, a_region_spans_from_page_0_to_the_end_of_the_last)
{
    const kvx_region spread = { .page_bytes = 100, .page_stride = 128 };
    const kvx_region dense = { .page_bytes = 100 };

    cr_expect_eq(kvx_region_span(&spread, 0), (uint64_t)0);
    cr_expect_eq(kvx_region_span(&spread, 1), (uint64_t)100);
    cr_expect_eq(kvx_region_span(&spread, 3), (uint64_t)356);
    cr_expect_eq(kvx_region_span(&dense, 3), (uint64_t)300);
    cr_expect_eq(kvx_region_span(&spread, UINT32_MAX), UINT64_C(128) * (UINT32_MAX - 1) + 100);
}

/* --- runs ------------------------------------------------------------------------------------ */

Test(runs, neighbours_in_order_become_one_run)
{
    static const kvx_page pages[] = { 5, 6, 7, 3, 2, 2, 3, UINT32_MAX, 0 };
    static const kvx_page_run want[] = { { 5, 3 }, { 3, 1 }, { 2, 1 }, { 2, 2 }, { UINT32_MAX, 1 },
        { 0, 1 } };
    kvx_page_run runs[9];

    cr_assert_eq(kvx_runs_from_pages(pages, 9, runs), 6u);
    for (uint32_t i = 0; i < 6; i++) {
        cr_expect_eq(runs[i].first, want[i].first);
        cr_expect_eq(runs[i].count, want[i].count);
    }
    cr_expect_eq(kvx_runs_from_pages(NULL, 0, runs), 0u);
}

Test(runs, runs_that_leave_the_pool_are_refused)
{
    static const struct {
        const char *what;
        kvx_page_run runs[2];
        kvx_status want;
        uint32_t pages;
    } rows[] = {
        { "to the last page", { { 0, 10 }, { 99, 1 } }, KVX_OK, 11 },
        { "the same twice", { { 0, 100 }, { 0, 100 } }, KVX_OK, 200 },
        { "an empty run", { { 0, 10 }, { 5, 0 } }, KVX_INVALID, 7 },
        { "past the end", { { 0, 10 }, { 99, 2 } }, KVX_INVALID, 7 },
        { "beyond the pool", { { 0, 10 }, { 100, 1 } }, KVX_INVALID, 7 },
        { "wrapping around", { { 0, 10 }, { 99, UINT32_MAX } }, KVX_INVALID, 7 },
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        uint32_t pages = 7;
        cr_expect_eq(kvx_runs_check(rows[i].runs, 2, 100, &pages), rows[i].want, "%s", rows[i].what);
        cr_expect_eq(pages, rows[i].pages, "%s", rows[i].what);
    }
}

Test(runs, more_pages_than_can_be_counted_are_refused)
{
    static const kvx_page_run runs[] = { { 0, UINT32_MAX }, { 0, 1 } };
    uint32_t pages = 7;

    cr_expect_eq(kvx_runs_check(runs, 2, UINT32_MAX, &pages), KVX_INVALID);
    cr_expect_eq(kvx_runs_check(runs, 1, UINT32_MAX, &pages), KVX_OK);
    cr_expect_eq(pages, UINT32_MAX);
    cr_expect_eq(kvx_runs_check(NULL, 0, 1, &pages), KVX_OK);
    cr_expect_eq(pages, 0u);
}

Test(runs, runs_spell_the_pages_they_were_made_of)
{
    uint64_t state = test_seed();

    for (uint64_t round = 0; round < test_rounds(2000); round++) {
        kvx_page pages[200];
        kvx_page_run runs[200];
        const uint32_t count = (uint32_t)test_random_below(&state, 201);
        for (uint32_t i = 0; i < count; i++)
            pages[i] = i > 0 && test_random_below(&state, 3) > 0
                               ? pages[i - 1] + 1
                               : (kvx_page)test_random_below(&state, 1000);
        const uint32_t run_count = kvx_runs_from_pages(pages, count, runs);
        uint32_t at = 0;
        for (uint32_t i = 0; i < run_count; i++) {
            cr_assert(i == 0 || runs[i].first != runs[i - 1].first + runs[i - 1].count);
            for (uint32_t j = 0; j < runs[i].count; j++)
                cr_assert_eq(pages[at++], runs[i].first + j);
        }
        cr_assert_eq(at, count);
    }
}
