/* SPDX-License-Identifier: Apache-2.0 */
/* A paged KV cache as an engine keeps one: who holds which page, and which pages hold a prefix
 * that another request can use. Only whole pages are shared, while somebody holds them. */
#ifndef PAIR_CACHE_H
#define PAIR_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "kvx/layout.h"
#include "pair/trace.h"

typedef struct kv_cache kv_cache;

/* Pages of one request in token order. */
typedef struct cache_table {
    kvx_page *pages;
    uint32_t count;
    uint32_t shared; /* so many at the front were here already and hold their content */
} cache_table;

/* Called for each page that nobody holds any more, before it can be given out again. */
typedef void (*cache_freed_fn)(void *arg, kvx_page page);

/* NULL: out of memory. */
kv_cache *cache_create(uint32_t page_count, uint32_t page_tokens, cache_freed_fn freed, void *arg);
void cache_destroy(kv_cache **cache);

/* Take pages for a request. KVX_AGAIN: not enough are free; KVX_NO_SPACE: there will never be;
 * KVX_NO_MEMORY. The last page is always the request's own, as an engine computes at least the
 * last token. */
kvx_status cache_take(
        kv_cache *cache, const trace_request *request, bool may_share, cache_table *table_out);

/* The pages of a request hold its content now: later requests may share them. */
void cache_seal(kv_cache *cache, const trace_request *request, const cache_table *table);

/* Leave the pages; the table is zeroed. */
void cache_give(kv_cache *cache, cache_table *table);

/* Pages that nobody holds. */
uint32_t cache_free_count(const kv_cache *cache);

/* Pages that a request of so many tokens needs. */
uint32_t cache_pages_for(const kv_cache *cache, uint32_t tokens);

/* How many hold a page, for tests. */
uint32_t cache_holders(const kv_cache *cache, kvx_page page);

#endif
