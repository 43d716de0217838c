/* SPDX-License-Identifier: Apache-2.0 */
/* Free pages are taken from the front of an ascending list; pages that come back wait in a heap
 * of their own and are sorted in only when the list runs short, as engines do to keep tables in
 * long runs at little cost. Under load the tables become as scattered as theirs. */
#include "pair/cache.h"

#include <stdlib.h>

#define NO_PAGE UINT32_MAX

typedef struct cache_page {
    uint64_t prefix;  /* names the content, 0: not to be shared */
    uint32_t holders; /* 0: free */
} cache_page;

struct kv_cache {
    uint32_t page_count;
    uint32_t page_tokens;
    cache_page *pages;
    kvx_page *free_list; /* ascending; the first free_next are taken */
    uint32_t free_next;
    uint32_t free_end;
    uint32_t returned; /* free, but not in the list yet */
    kvx_page *index;   /* open addressing from prefix to page; NO_PAGE: empty */
    uint32_t index_mask;
    cache_freed_fn freed;
    void *arg;
};

static bool cache_allocate(kv_cache *cache)
{
    uint32_t slots = 2;
    while (slots < cache->page_count * UINT64_C(2) && slots < UINT32_C(1) << 31)
        slots *= 2;
    cache->index_mask = slots - 1;
    cache->pages = calloc(cache->page_count, sizeof(*cache->pages));
    cache->free_list = calloc(cache->page_count, sizeof(*cache->free_list));
    cache->index = calloc(slots, sizeof(*cache->index));
    return cache->pages != NULL && cache->free_list != NULL && cache->index != NULL;
}

/* Every page without a holder, in ascending order. */
static void free_list_sort(kv_cache *cache)
{
    cache->free_next = 0;
    cache->free_end = 0;
    cache->returned = 0;
    for (kvx_page page = 0; page < cache->page_count; page++)
        if (cache->pages[page].holders == 0)
            cache->free_list[cache->free_end++] = page;
}

kv_cache *cache_create(uint32_t page_count, uint32_t page_tokens, cache_freed_fn freed, void *arg)
{
    kv_cache *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return NULL;
    made->page_count = page_count;
    made->page_tokens = page_tokens;
    made->freed = freed;
    made->arg = arg;
    if (!cache_allocate(made)) {
        cache_destroy(&made);
        return NULL;
    }
    for (uint32_t i = 0; i <= made->index_mask; i++)
        made->index[i] = NO_PAGE;
    free_list_sort(made);
    return made;
}

void cache_destroy(kv_cache **cache)
{
    if (cache == NULL || *cache == NULL)
        return;
    free((*cache)->pages);
    free((*cache)->free_list);
    free((*cache)->index);
    free(*cache);
    *cache = NULL;
}

static uint32_t index_home(const kv_cache *cache, uint64_t prefix)
{
    return (uint32_t)(prefix >> 32) & cache->index_mask;
}

/* The slot that holds a prefix, or the empty one where it belongs. */
static uint32_t index_slot(const kv_cache *cache, uint64_t prefix)
{
    uint32_t slot = index_home(cache, prefix);
    while (cache->index[slot] != NO_PAGE && cache->pages[cache->index[slot]].prefix != prefix)
        slot = (slot + 1) & cache->index_mask;
    return slot;
}

/* Close the gap, so that every entry stays reachable from its home. */
static void index_remove(kv_cache *cache, uint64_t prefix)
{
    uint32_t gap = index_slot(cache, prefix);
    for (uint32_t slot = (gap + 1) & cache->index_mask; cache->index[slot] != NO_PAGE;
            slot = (slot + 1) & cache->index_mask) {
        const uint32_t home = index_home(cache, cache->pages[cache->index[slot]].prefix);
        const uint32_t from_home = (slot - home) & cache->index_mask;
        const uint32_t from_gap = (slot - gap) & cache->index_mask;
        if (from_home < from_gap)
            continue;
        cache->index[gap] = cache->index[slot];
        gap = slot;
    }
    cache->index[gap] = NO_PAGE;
}

/* What names the content of the i-th page of a request; 0 where it is not wholly in blocks that
 * others can have as well. */
static uint64_t page_prefix(const kv_cache *cache, const trace_request *request, uint32_t i)
{
    const uint64_t end = (uint64_t)(i + 1) * cache->page_tokens;
    if (end > (uint64_t)request->block_count * TRACE_BLOCK_TOKENS)
        return 0;
    const uint32_t block = (uint32_t)((end - 1) / TRACE_BLOCK_TOKENS);
    const uint64_t prefix = trace_mix(request->prefixes[block] + i);
    return prefix == 0 ? 1 : prefix;
}

static uint32_t find_shared(
        const kv_cache *cache, const trace_request *request, kvx_page *pages, uint32_t most)
{
    uint32_t count = 0;
    while (count < most) {
        const uint64_t prefix = page_prefix(cache, request, count);
        const kvx_page page = prefix == 0 ? NO_PAGE : cache->index[index_slot(cache, prefix)];
        if (page == NO_PAGE)
            break;
        pages[count++] = page;
    }
    return count;
}

static void take_fresh(kv_cache *cache, kvx_page *pages, uint32_t count)
{
    if (cache->free_end - cache->free_next < count)
        free_list_sort(cache);
    for (uint32_t i = 0; i < count; i++)
        pages[i] = cache->free_list[cache->free_next++];
}

kvx_status cache_take(
        kv_cache *cache, const trace_request *request, bool may_share, cache_table *table_out)
{
    const uint32_t count = cache_pages_for(cache, request->tokens);
    if (count > cache->page_count)
        return KVX_NO_SPACE;

    kvx_page *pages = calloc(count, sizeof(*pages));
    if (pages == NULL)
        return KVX_NO_MEMORY;
    const uint32_t shared = may_share ? find_shared(cache, request, pages, count - 1) : 0;
    if (cache_free_count(cache) < count - shared) {
        free(pages);
        return KVX_AGAIN;
    }
    take_fresh(cache, pages + shared, count - shared);
    for (uint32_t i = 0; i < count; i++)
        cache->pages[pages[i]].holders++;
    *table_out = (cache_table){ .pages = pages, .count = count, .shared = shared };
    return KVX_OK;
}

void cache_seal(kv_cache *cache, const trace_request *request, const cache_table *table)
{
    for (uint32_t i = table->shared; i < table->count; i++) {
        const kvx_page page = table->pages[i];
        const uint64_t prefix = page_prefix(cache, request, i);
        if (prefix == 0)
            return;
        const uint32_t slot = index_slot(cache, prefix);
        if (cache->index[slot] != NO_PAGE)
            continue;
        cache->pages[page].prefix = prefix;
        cache->index[slot] = page;
    }
}

static void page_leave(kv_cache *cache, kvx_page page)
{
    cache_page *const state = &cache->pages[page];
    if (--state->holders > 0)
        return;
    if (state->prefix != 0)
        index_remove(cache, state->prefix);
    state->prefix = 0;
    cache->returned++;
    if (cache->freed != NULL)
        cache->freed(cache->arg, page);
}

void cache_give(kv_cache *cache, cache_table *table)
{
    for (uint32_t i = 0; i < table->count; i++)
        page_leave(cache, table->pages[i]);
    free(table->pages);
    *table = (cache_table){ 0 };
}

uint32_t cache_free_count(const kv_cache *cache)
{
    return cache->free_end - cache->free_next + cache->returned;
}

uint32_t cache_pages_for(const kv_cache *cache, uint32_t tokens)
{
    return tokens / cache->page_tokens + (tokens % cache->page_tokens != 0);
}

uint32_t cache_holders(const kv_cache *cache, kvx_page page)
{
    return cache->pages[page].holders;
}
