/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

#include "kvx/layout.h"

#include "support/seed.h"

enum { PAGES = 8, PAGE_BYTES = 64 };

static uint8_t memory[1 << 16];
static kvx_component components[2];
static kvx_region regions[6];
static kvx_layout layout;

/* Two components; k and v of three layers in six buffers of their own. */
static void make_plain(void)
{
    components[0] = (kvx_component){ "kv", 16, PAGES, "token,head" };
    components[1] = (kvx_component){ "state", 0, PAGES, "layer" };
    for (uint32_t i = 0; i < 6; i++)
        regions[i] = (kvx_region){
            .component = i / 4,
            .role = i % 2 ? "v" : "k",
            .layer = i / 2,
            .base = memory + i * PAGES * PAGE_BYTES,
            .page_bytes = PAGE_BYTES,
        };
    layout = (kvx_layout){ components, 2, regions, 6 };
}

/* Pages that hold all regions: one range, disjoint bytes. */
static void make_interleaved(void)
{
    make_plain();
    for (uint32_t i = 0; i < 6; i++) {
        regions[i].base = memory + 100 + i * PAGE_BYTES;
        regions[i].page_stride = 6 * PAGE_BYTES;
    }
}

static void expect_fine(void)
{
    char why[128] = "untouched";

    cr_expect_eq(kvx_layout_check(&layout, why, sizeof(why)), KVX_OK, "%s", why);
    cr_expect_str_eq(why, "untouched");
}

static void expect_refused(const char *text)
{
    char why[256] = "";

    cr_expect_eq(kvx_layout_check(&layout, why, sizeof(why)), KVX_INVALID, "not: %s", text);
    cr_expect_not_null(strstr(why, text), "\"%s\" does not say \"%s\"", why, text);
    cr_expect_eq(kvx_layout_check(&layout, NULL, 0), KVX_INVALID);
}

TestSuite(layout, .init = make_plain);

Test(layout, buffers_side_by_side_are_fine)
{
    expect_fine();
}

Test(layout, counts_are_checked)
{
    layout.component_count = 0;
    expect_refused("component_count is 0");
    layout.component_count = KVX_COMPONENT_MAX + 1;
    expect_refused("component_count is 9, must be 1 to 8");
    make_plain();
    layout.region_count = 0;
    expect_refused("region_count is 0");
    layout.region_count = KVX_REGION_MAX + 1;
    expect_refused("region_count is 4097");
    make_plain();
    layout.regions = NULL;
    expect_refused("NULL");
    cr_expect_eq(kvx_layout_check(NULL, NULL, 0), KVX_INVALID);
}

Test(layout, names_are_checked)
{
    components[1].name = NULL;
    expect_refused("component 1: its name");
    components[1].name = "";
    expect_refused("component 1: its name");
    components[1].name = "a name that is far longer than it may be";
    expect_refused("component 1: its name");
    components[1].name = "a\nb";
    expect_refused("component 1: its name");
    components[1].name = "kv";
    expect_refused("component 1 (kv): component 0 has the same name");
    make_plain();
    components[0].axis = NULL;
    expect_refused("component 0 (kv): its axis tag");
    make_plain();
    regions[3].role = NULL;
    expect_refused("region 3: its role");
    regions[3].role = "caf\xC3\xA9";
    expect_fine();
    regions[3].role = "caf\xC3";
    expect_refused("region 3: its role");
}

Test(layout, characters_that_are_not_text_are_refused)
{
    static const char *const bad[] = { "\x7F", "\xC2\x80", "\xC0\xAF", "\xE0\x80\xAF",
        "\xED\xA0\x80", "\xF0\x80\x80\xAF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\x80",
        "\xE2\x82" };
    static const char *const good[] = { "\xC2\xA0", "\xE2\x82\xAC", "\xF0\x9F\x98\x80",
        "\xEE\x80\x80", "\xF4\x8F\xBF\xBF", "~ !" };

    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        regions[3].role = bad[i];
        expect_refused("region 3: its role");
    }
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        regions[3].role = good[i];
        expect_fine();
    }
}

Test(layout, sizes_are_checked)
{
    components[1].page_count = 0;
    expect_refused("component 1 (state): page_count is 0");
    make_plain();
    regions[3].page_bytes = 0;
    expect_refused("region 3 (v, layer 1): page_bytes is 0");
    make_plain();
    regions[3].page_stride = PAGE_BYTES - 1;
    expect_refused("region 3 (v, layer 1): page_stride 63 is less than page_bytes 64");
    make_plain();
    regions[3].base = NULL;
    expect_refused("region 3 (v, layer 1): base is NULL");
    make_plain();
    regions[3].component = 2;
    expect_refused("region 3 (v, layer 1): component 2 is not among the 2");
    make_plain();
    regions[3].memory_kind = (kvx_memory_kind)7;
    expect_refused("region 3 (v, layer 1): memory kind 7 is unknown");
    make_plain();
    regions[3].page_stride = UINT64_MAX / 4;
    expect_refused("leave the address space");
    make_plain();
    regions[3].page_stride = UINT64_MAX / (PAGES - 1); /* the product fits, the sum does not */
    expect_refused("leave the address space");
}

Test(layout, a_region_of_the_same_role_and_layer_is_refused)
{
    regions[3].role = "k";
    expect_refused("region 3 (k, layer 1): region 2 has the same role and layer");
    regions[3].component = 1;
    expect_fine();
}

Test(layout, overlapping_buffers_are_refused)
{
    regions[5].base = memory + PAGES * PAGE_BYTES + PAGE_BYTES - 1;
    expect_refused("overlaps region");
    regions[5].base = memory; /* the same as region 0 */
    expect_refused("region 0 (k, layer 0) overlaps region 5 (v, layer 2)");
    make_plain();
    regions[0].page_bytes = 6 * PAGES * PAGE_BYTES; /* contains the others */
    expect_refused("region 0 (k, layer 0) overlaps region 1 (v, layer 0)");
}

Test(layout, pages_that_hold_all_regions_are_fine)
{
    make_interleaved();
    expect_fine();
}

Test(layout, interleaved_regions_that_share_a_byte_are_refused)
{
    for (uint32_t i = 0; i < 6; i++) {
        make_interleaved();
        regions[i].page_bytes++;
        expect_refused("overlaps region");
    }
}

Test(layout, an_interleaved_region_of_another_stride_is_refused)
{
    make_interleaved();
    regions[4].page_stride *= 2;
    expect_refused("overlaps region");
}

Test(layout, interleaved_pools_one_behind_the_other_are_fine)
{
    make_interleaved();
    /* The state regions come again in the stripes behind. */
    for (uint32_t i = 4; i < 6; i++)
        regions[i].base = memory + 100 + PAGES * 6 * PAGE_BYTES + (i - 4) * PAGE_BYTES;
    expect_fine();
    regions[4].base = memory + 100 + (PAGES - 1) * 6 * PAGE_BYTES;
    expect_refused("overlaps region");
}

/* Ownership of every byte decides; extra is how many bytes beyond a fair share a page may take. */
static bool shares_a_byte(void)
{
    static uint8_t owner[sizeof(memory)];

    memset(owner, 0, sizeof(owner));
    for (uint32_t i = 0; i < layout.region_count; i++) {
        const kvx_region *region = &regions[i];
        const uint64_t start = (uint64_t)((const uint8_t *)region->base - memory);
        for (uint32_t page = 0; page < components[region->component].page_count; page++)
            for (uint64_t byte = 0; byte < region->page_bytes; byte++)
                if (owner[start + page * region->page_stride + byte]++ != 0)
                    return true;
    }
    return false;
}

/* Regions of one stride, or each with pages side by side: then the check is exact enough to be
 * told from the bytes. It may refuse more only where phases are partly equal. */
Test(layout, overlaps_are_found_as_byte_ownership_says)
{
    uint64_t state = test_seed();
    uint64_t fine = 0;

    for (uint64_t round = 0; round < test_rounds(20000); round++) {
        make_plain();
        const uint64_t stride = 32 + test_random_below(&state, 64);
        const bool is_striped = test_random_below(&state, 2) != 0;
        layout.region_count = 2 + (uint32_t)test_random_below(&state, 3);
        components[0].page_count = 1 + (uint32_t)test_random_below(&state, 6);
        components[1].page_count = 1 + (uint32_t)test_random_below(&state, 6);
        for (uint32_t i = 0; i < layout.region_count; i++) {
            regions[i].base = memory + test_random_below(&state, 600);
            regions[i].page_bytes = 1 + test_random_below(&state, is_striped ? 24 : 100);
            regions[i].page_stride = is_striped ? stride : regions[i].page_bytes;
        }
        const bool is_bad = shares_a_byte();
        const kvx_status st = kvx_layout_check(&layout, NULL, 0);
        if (is_bad)
            cr_assert_eq(st, KVX_INVALID);
        fine += st == KVX_OK;
        /* Two regions form no chain, so there the answer is exact. */
        if (!is_bad && layout.region_count == 2)
            cr_assert_eq(st, KVX_OK);
    }
    cr_expect_gt(fine, (uint64_t)0);
}

Test(layout, pages_for_tokens_rounds_up)
{
    cr_expect_eq(kvx_pages_for_tokens(0, 16), 0u);
    cr_expect_eq(kvx_pages_for_tokens(1, 16), 1u);
    cr_expect_eq(kvx_pages_for_tokens(16, 16), 1u);
    cr_expect_eq(kvx_pages_for_tokens(17, 16), 2u);
    cr_expect_eq(kvx_pages_for_tokens(UINT32_MAX, 1), UINT32_MAX);
    cr_expect_eq(kvx_pages_for_tokens(UINT32_MAX, UINT32_MAX), 1u);
    cr_expect_eq(kvx_pages_for_tokens(UINT32_MAX, 2), 1u << 31);
    cr_expect_eq(kvx_pages_for_tokens(7, 0), 0u);
}
