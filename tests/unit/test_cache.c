/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pair/cache.h"
#include "support/seed.h"

#define MODEL_PAGES    96
#define MODEL_REQUESTS 24
#define MODEL_LIVE     12

static trace_request request_of(uint32_t tokens, uint64_t *prefixes, uint32_t blocks)
{
    return (trace_request){
        .room = 1, .tokens = tokens, .block_count = blocks, .prefixes = prefixes
    };
}

Test(cache, a_request_takes_the_lowest_pages_and_gives_them_back)
{
    kv_cache *cache = cache_create(10, 16, NULL, NULL);
    const trace_request request = request_of(33, NULL, 0);
    cache_table table;
    cr_assert_eq(cache_take(cache, &request, true, &table), KVX_OK);
    cr_expect_eq(table.count, 3);
    cr_expect_eq(table.shared, 0);
    for (uint32_t i = 0; i < 3; i++)
        cr_expect_eq(table.pages[i], i);
    cr_expect_eq(cache_free_count(cache), 7);
    cache_give(cache, &table);
    cr_expect_eq(cache_free_count(cache), 10);
    cr_expect_null(table.pages);
    cache_destroy(&cache);
    cr_expect_null(cache);
}

Test(cache, too_much_for_now_and_too_much_for_ever_are_told_apart)
{
    kv_cache *cache = cache_create(4, 16, NULL, NULL);
    const trace_request small = request_of(40, NULL, 0);
    const trace_request large = request_of(65, NULL, 0);
    cache_table table;
    cache_table other = { .count = 99 };
    cr_assert_eq(cache_take(cache, &small, true, &table), KVX_OK);
    cr_expect_eq(cache_take(cache, &small, true, &other), KVX_AGAIN);
    cr_expect_eq(cache_take(cache, &large, true, &other), KVX_NO_SPACE);
    cr_expect_eq(other.count, 99, "outputs stay untouched on failure");
    cache_give(cache, &table);
    cr_expect_eq(cache_take(cache, &small, true, &other), KVX_OK);
    cache_give(cache, &other);
    cache_destroy(&cache);
}

Test(cache, a_sealed_prefix_is_shared_in_whole_pages_only)
{
    uint64_t prefixes[] = { 11, 22, 33 };
    uint64_t others[] = { 11, 22, 44 };
    kv_cache *cache = cache_create(28, 100, NULL, NULL);
    const trace_request a = request_of(1600, prefixes, 3);
    const trace_request b = request_of(1600, others, 3);
    cache_table first;
    cache_table second;
    cache_table third;
    cr_assert_eq(cache_take(cache, &a, true, &first), KVX_OK);
    cr_assert_eq(cache_take(cache, &b, true, &second), KVX_AGAIN, "not sealed, not shared");
    cache_seal(cache, &a, &first);
    cr_assert_eq(cache_take(cache, &b, true, &second), KVX_OK);
    cr_expect_eq(second.shared, 10, "two blocks are 1024 tokens: ten whole pages of 100");
    cr_expect_eq(memcmp(first.pages, second.pages, 10 * sizeof(kvx_page)), 0);
    cr_expect_neq(first.pages[10], second.pages[10]);
    cr_expect_eq(cache_holders(cache, first.pages[9]), 2);
    cr_expect_eq(cache_take(cache, &b, false, &third), KVX_AGAIN);

    cache_give(cache, &first);
    cr_expect_eq(cache_holders(cache, second.pages[9]), 1, "pages live while somebody holds them");
    cr_expect_eq(cache_free_count(cache), 28 - 16);
    cache_give(cache, &second);
    cr_expect_eq(cache_free_count(cache), 28);
    cr_assert_eq(cache_take(cache, &a, true, &first), KVX_OK);
    cr_expect_eq(first.shared, 0, "what nobody holds is forgotten");
    cache_give(cache, &first);
    cache_destroy(&cache);
}

Test(cache, the_last_page_is_always_the_requests_own)
{
    uint64_t prefixes[] = { 11, 22 };
    kv_cache *cache = cache_create(32, 64, NULL, NULL);
    const trace_request request = request_of(1024, prefixes, 2);
    cache_table first;
    cache_table second;
    cr_assert_eq(cache_take(cache, &request, true, &first), KVX_OK);
    cache_seal(cache, &request, &first);
    cr_assert_eq(cache_take(cache, &request, true, &second), KVX_OK);
    cr_expect_eq(second.shared, 15);
    cache_seal(cache, &request, &second);
    cache_give(cache, &first);
    cache_give(cache, &second);
    cr_expect_eq(cache_free_count(cache), 32);
    cache_destroy(&cache);
}

/* A naive model: who holds which page, found by looking at every table. */
typedef struct cache_model {
    kv_cache *cache;
    trace_request requests[MODEL_REQUESTS];
    uint64_t prefixes[MODEL_REQUESTS][8];
    const trace_request *live[MODEL_LIVE];
    cache_table tables[MODEL_LIVE];
    bool is_freed[MODEL_PAGES]; /* told by the callback since the last take */
} cache_model;

static void note_freed(void *arg, kvx_page page)
{
    cache_model *const model = arg;
    cr_assert_lt(page, MODEL_PAGES);
    cr_expect_not(model->is_freed[page], "page %u was freed twice", page);
    model->is_freed[page] = true;
}

static void model_requests(cache_model *model, uint64_t *random)
{
    for (int i = 0; i < MODEL_REQUESTS; i++) {
        const uint32_t tokens = (uint32_t)(1 + test_random_below(random, 4096));
        uint64_t prefix = 0;
        model->requests[i] = request_of(tokens, model->prefixes[i], tokens / TRACE_BLOCK_TOKENS);
        for (uint32_t block = 0; block < 8; block++) {
            prefix = trace_mix(prefix * 3 + test_random_below(random, 2) + 1);
            model->prefixes[i][block] = prefix;
        }
    }
}

static void model_check(const cache_model *model)
{
    uint32_t holders[MODEL_PAGES] = { 0 };
    uint32_t free_count = 0;
    for (int i = 0; i < MODEL_LIVE; i++)
        for (uint32_t at = 0; at < model->tables[i].count; at++) {
            cr_assert_lt(model->tables[i].pages[at], MODEL_PAGES);
            holders[model->tables[i].pages[at]]++;
        }
    for (kvx_page page = 0; page < MODEL_PAGES; page++) {
        cr_assert_eq(cache_holders(model->cache, page), holders[page], "page %u", page);
        free_count += holders[page] == 0;
    }
    cr_assert_eq(cache_free_count(model->cache), free_count);
}

/* The tokens of every shared page must be the same in the request that wrote it. */
static void check_sharing(const cache_model *model, int taken, uint32_t page_tokens)
{
    const cache_table *table = &model->tables[taken];
    for (int i = 0; i < MODEL_LIVE; i++)
        for (uint32_t at = 0; i != taken && at < model->tables[i].count; at++)
            for (uint32_t mine = 0; mine < table->count; mine++) {
                if (model->tables[i].pages[at] != table->pages[mine])
                    continue;
                cr_assert_eq(at, mine, "a page is shared at its own position");
                const uint32_t last = (mine + 1) * page_tokens - 1;
                cr_assert_eq(
                        trace_origin(model->live[i], last), trace_origin(model->live[taken], last));
                cr_assert_leq(last, model->live[taken]->tokens);
            }
}

static void model_step(cache_model *model, uint64_t *random, uint32_t page_tokens)
{
    const int slot = (int)test_random_below(random, MODEL_LIVE);
    cache_table *const table = &model->tables[slot];
    if (table->count > 0) {
        cache_give(model->cache, table);
        return;
    }
    const trace_request *request = &model->requests[test_random_below(random, MODEL_REQUESTS)];
    const uint32_t free_before = cache_free_count(model->cache);
    const kvx_status st = cache_take(model->cache, request, test_random_below(random, 4) > 0, table);
    if (st == KVX_AGAIN) {
        cr_assert_lt(free_before, cache_pages_for(model->cache, request->tokens));
        return;
    }
    if (st == KVX_NO_SPACE)
        return;
    cr_assert_eq(st, KVX_OK);
    model->live[slot] = request;
    check_sharing(model, slot, page_tokens);
    for (uint32_t i = 0; i < table->count; i++)
        model->is_freed[table->pages[i]] = false;
    if (test_random_below(random, 3) > 0)
        cache_seal(model->cache, request, table);
}

Test(cache, under_churn_every_page_has_the_holders_that_tables_say)
{
    uint64_t random = test_seed();
    static const uint32_t page_tokens[] = { 48, 64, 100, 1024 };
    for (uint64_t round = test_rounds(40); round > 0; round--) {
        cache_model model = { 0 };
        const uint32_t tokens = page_tokens[round % 4];
        model.cache = cache_create(MODEL_PAGES, tokens, note_freed, &model);
        cr_assert_not_null(model.cache);
        model_requests(&model, &random);
        for (int step = 0; step < 400; step++) {
            model_step(&model, &random, tokens);
            model_check(&model);
        }
        for (int i = 0; i < MODEL_LIVE; i++)
            cache_give(model.cache, &model.tables[i]);
        cr_assert_eq(cache_free_count(model.cache), MODEL_PAGES);
        cache_destroy(&model.cache);
    }
}
