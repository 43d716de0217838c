/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pair/content.h"
#include "pair/store.h"
#include "pair/trace.h"
#include "support/seed.h"

#define RANKS       2
#define LAYERS      3
#define PAGE_TOKENS 16
#define PAGES       256

/* Two requests that share two blocks, in a store of their own. */
typedef struct content_world {
    kv_store store;
    request_trace trace;
    kv_cache *cache;
    cache_table tables[2];
} content_world;

static content_world world;

static store_range all_of(int i)
{
    return (store_range){ .request = &world.trace.requests[i],
        .table = &world.tables[i],
        .count = world.tables[i].count };
}

static store_mismatch verify(int i)
{
    store_mismatch found = { 0 };
    const store_range range = all_of(i);
    store_verify(&world.store, &range, &found);
    return found;
}

static void world_open(void)
{
    static const char text[] =
            "{\"timestamp\":0,\"input_length\":1500,\"output_length\":1,\"hash_ids\":[1,2,3]}\n"
            "{\"timestamp\":0,\"input_length\":1500,\"output_length\":1,\"hash_ids\":[1,2,4]}\n";
    const trace_limits limits = { 0 };
    char why[TRACE_WHY_MAX];
    kv_geometry geometry;

    cr_assert(trace_parse("t", text, sizeof(text) - 1, &limits, &world.trace, why), "%s", why);
    cr_assert(geometry_parse("k:1152,v:64", LAYERS, &geometry, why), "%s", why);
    cr_assert(store_open(&(store_params){ .geometry = &geometry,
                                 .rank_count = RANKS,
                                 .page_tokens = PAGE_TOKENS,
                                 .page_count = PAGES },
                      &world.store, why),
            "%s", why);
    world.cache = cache_create(PAGES, PAGE_TOKENS, store_poison, &world.store);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(
                cache_take(world.cache, &world.trace.requests[i], false, &world.tables[i]), KVX_OK);
        const store_range range = all_of(i);
        store_fill(&world.store, &range);
    }
}

static void world_close(void)
{
    free(world.tables[0].pages);
    free(world.tables[1].pages);
    cache_destroy(&world.cache);
    store_close(&world.store);
    trace_free(&world.trace);
}

TestSuite(content, .init = world_open, .fini = world_close);

static void *page_of(uint32_t rank, uint32_t region, kvx_page page)
{
    const kvx_region *where = &world.store.layouts[rank].regions[region];
    return (char *)where->base + page * where->page_bytes;
}

static size_t page_size(uint32_t region)
{
    return world.store.layouts[0].regions[region].page_bytes;
}

Test(content, what_was_filled_is_right_on_every_rank_and_region)
{
    cr_expect_eq(verify(0).count, 0);
    cr_expect_eq(verify(1).count, 0);
}

Test(content, one_wrong_bit_is_found_and_placed)
{
    ((char *)page_of(1, 4, world.tables[0].pages[3]))[1151] ^= 0x10;
    const store_mismatch found = verify(0);
    cr_expect_eq(found.count, 1);
    cr_expect_eq(found.rank, 1);
    cr_expect_eq(found.region, 4);
    cr_expect_eq(found.token, 3 * PAGE_TOKENS);
    cr_expect_eq(found.page, world.tables[0].pages[3]);
}

Test(content, a_page_of_the_same_prefix_is_right_in_both_requests)
{
    memcpy(page_of(0, 0, world.tables[0].pages[5]), page_of(0, 0, world.tables[1].pages[5]),
            page_size(0));
    cr_expect_eq(verify(0).count, 0);
}

Test(content, a_stale_page_of_another_request_is_caught)
{
    memcpy(page_of(0, 0, world.tables[0].pages[70]), page_of(0, 0, world.tables[1].pages[70]),
            page_size(0));
    cr_expect_eq(verify(0).count, PAGE_TOKENS, "block 3 differs, so does every token in it");
}

Test(content, two_swapped_pages_are_caught)
{
    const kvx_page page = world.tables[0].pages[7];
    world.tables[0].pages[7] = world.tables[0].pages[8];
    world.tables[0].pages[8] = page;
    cr_expect_eq(verify(0).count, 2 * PAGE_TOKENS * RANKS * LAYERS * 2);
}

Test(content, a_page_of_another_region_or_rank_is_caught)
{
    const kvx_page page = world.tables[0].pages[2];
    memcpy(page_of(0, 0, page), page_of(0, 2, page), page_size(0));
    cr_expect_eq(verify(0).count, PAGE_TOKENS);
    memcpy(page_of(0, 0, page), page_of(1, 0, page), page_size(0));
    cr_expect_eq(verify(0).count, PAGE_TOKENS);
}

Test(content, words_moved_within_a_piece_are_caught)
{
    char *piece = page_of(0, 0, world.tables[0].pages[0]);
    char word[8];
    memcpy(word, piece, 8);
    memmove(piece, piece + 8, 1144);
    memcpy(piece + 1144, word, 8);
    cr_expect_eq(verify(0).count, 1);
}

Test(content, a_freed_page_is_wrong_in_every_piece)
{
    const uint32_t count = world.tables[0].count;
    kvx_page *pages = calloc(count, sizeof(*pages));
    memcpy(pages, world.tables[0].pages, count * sizeof(*pages));
    cache_give(world.cache, &world.tables[0]);
    world.tables[0] = (cache_table){ .pages = pages, .count = count };
    cr_expect_eq(verify(0).count, 1500 * RANKS * LAYERS * 2);
    cr_expect_eq(verify(1).count, 0, "its neighbours are not touched");
}

Test(content, poison_reaches_every_kib_of_a_large_piece)
{
    static unsigned char page[2 * 4096];
    content_poison(page, sizeof(page), 4096);
    for (size_t off = 0; off < sizeof(page); off += 1024)
        cr_expect_eq(page[off], 0xDD);
}

Test(content, memory_that_does_not_fit_is_refused_with_the_remedy)
{
    kv_store store;
    kv_geometry geometry;
    char why[STORE_WHY_MAX];
    cr_assert(geometry_find("deepseek-671b", 61, &geometry, why));
    cr_expect_not(store_open(&(store_params){ .geometry = &geometry,
                                     .rank_count = 64,
                                     .page_tokens = 64,
                                     .page_count = 1 << 24 },
            &store, why));
    cr_expect_not_null(strstr(why, "--pool-tokens"), "%s", why);
    cr_expect_not_null(strstr(why, "available"), "%s", why);
}

Test(content, different_places_have_different_keys)
{
    uint64_t random = test_seed();
    for (uint64_t round = test_rounds(20000); round > 0; round--) {
        const content_place place = { .origin = test_random(&random),
            .rank = (uint32_t)test_random_below(&random, 64),
            .region = (uint32_t)test_random_below(&random, 4096),
            .token = (uint32_t)test_random_below(&random, 1 << 20) };
        content_place other = place;
        switch (test_random_below(&random, 4)) {
        case 0: other.origin ^= UINT64_C(1) << test_random_below(&random, 64); break;
        case 1: other.rank ^= 1U << test_random_below(&random, 6); break;
        case 2: other.region ^= 1U << test_random_below(&random, 12); break;
        default: other.token ^= 1U << test_random_below(&random, 20); break;
        }
        cr_assert_neq(content_key(&place), content_key(&other));

        uint64_t piece[18];
        content_fill(piece, sizeof(piece), content_key(&place));
        cr_assert(content_matches(piece, sizeof(piece), content_key(&place)));
        cr_assert_not(content_matches(piece, sizeof(piece), content_key(&other)));
    }
}
