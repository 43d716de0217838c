/* SPDX-License-Identifier: Apache-2.0 */
/* The KV memory of the ranks in this process: one mapping a rank, cut into regions, and the
 * layouts that describe it to the library. */
#ifndef PAIR_STORE_H
#define PAIR_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvx/layout.h"
#include "pair/cache.h"
#include "pair/geometry.h"
#include "pair/trace.h"

#define STORE_WHY_MAX 512

typedef struct store_params {
    const kv_geometry *geometry; /* copied */
    uint32_t first_rank;
    uint32_t rank_count;
    uint32_t page_tokens;
    uint32_t page_count;
} store_params;

typedef struct kv_store {
    kv_geometry geometry;
    uint32_t first_rank;
    uint32_t rank_count;
    uint32_t page_tokens;
    uint32_t page_count;
    uint32_t region_count;
    uint64_t rank_bytes;     /* of the memory of a rank */
    kvx_component component; /* the one that all layouts share */
    kvx_region *regions;     /* rank_count * region_count */
    kvx_layout *layouts;     /* rank_count */
    void **memory;           /* rank_count */
} kv_store;

/* What verification found. */
typedef struct store_mismatch {
    uint64_t count; /* of pieces that are wrong */
    uint32_t rank;  /* of the first one, as the rest */
    uint32_t region;
    uint32_t token;
    kvx_page page;
} store_mismatch;

/* Some pages of a request's table: first, first + 1, ... */
typedef struct store_range {
    const trace_request *request;
    const cache_table *table;
    uint32_t first;
    uint32_t count;
} store_range;

/* Bytes of memory that a store will take. */
uint64_t store_bytes(const store_params *params);

/* Map the memory. On failure why_out says how much there is and what to change. */
bool store_open(const store_params *params, kv_store *store_out, char why_out[STORE_WHY_MAX]);
void store_close(kv_store *store);

/* Write pages as the computation of the request would leave them, on every rank. */
void store_fill(kv_store *store, const store_range *range);

/* Compare pages byte by byte on every rank, adding to found. */
void store_verify(const kv_store *store, const store_range *range, store_mismatch *found);

/* Spoil a page on every rank. A cache_freed_fn for a store. */
void store_poison(void *store, kvx_page page);

#endif
