/* SPDX-License-Identifier: Apache-2.0 */
#include "pair/store.h"

#include "pair/content.h"
#include "pair/host.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define REGION_ALIGN UINT64_C(4096)
#define GIB          (1024.0 * 1024.0 * 1024.0)

static uint64_t region_bytes(const store_params *params, uint32_t role)
{
    const uint64_t bytes = (uint64_t)params->page_count * params->page_tokens *
                           params->geometry->roles[role].token_bytes;
    return (bytes + REGION_ALIGN - 1) / REGION_ALIGN * REGION_ALIGN;
}

static uint64_t rank_bytes(const store_params *params)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < params->geometry->role_count; i++)
        bytes += region_bytes(params, i);
    return bytes * params->geometry->layers;
}

uint64_t store_bytes(const store_params *params)
{
    return rank_bytes(params) * params->rank_count;
}

static bool fits_host(const store_params *params, char why_out[STORE_WHY_MAX])
{
    const uint64_t needed = store_bytes(params);
    const uint64_t available = host_available_bytes();
    if (needed <= available)
        return true;
    (void)snprintf(why_out, STORE_WHY_MAX,
            "the pools need %.1f GiB (%u ranks of %.2f GiB), but only %.1f GiB are available: "
            "choose a smaller --pool-tokens, --layers or --ranks",
            (double)needed / GIB, params->rank_count, (double)rank_bytes(params) / GIB,
            (double)available / GIB);
    return false;
}

/* Pages come from the kernel as they are first touched, so that a start takes no time. */
static void *rank_map(uint64_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* Layer by layer, the roles of each beside each other. */
static void rank_describe(kv_store *store, const store_params *params, uint32_t rank_idx)
{
    kvx_region *region = store->regions + (size_t)rank_idx * store->region_count;
    char *base = store->memory[rank_idx];

    store->layouts[rank_idx] = (kvx_layout){
        .components = &store->component,
        .component_count = 1,
        .regions = region,
        .region_count = store->region_count,
    };
    for (uint32_t layer = 0; layer < store->geometry.layers; layer++)
        for (uint32_t role = 0; role < store->geometry.role_count; role++, region++) {
            *region = (kvx_region){
                .role = store->geometry.roles[role].name,
                .layer = layer,
                .base = base,
                .page_bytes = (uint64_t)store->page_tokens * store->geometry.roles[role].token_bytes,
                .memory_kind = KVX_MEMORY_HOST,
            };
            base += region_bytes(params, role);
        }
}

static void store_init(kv_store *store, const store_params *params)
{
    *store = (kv_store){
        .geometry = *params->geometry,
        .first_rank = params->first_rank,
        .rank_count = params->rank_count,
        .page_tokens = params->page_tokens,
        .page_count = params->page_count,
        .region_count = params->geometry->layers * params->geometry->role_count,
        .rank_bytes = rank_bytes(params),
    };
    store->component = (kvx_component){
        .name = "kv",
        .page_tokens = params->page_tokens,
        .page_count = params->page_count,
        .axis = store->geometry.axis,
    };
    store->memory = calloc(store->rank_count, sizeof(*store->memory));
    store->layouts = calloc(store->rank_count, sizeof(*store->layouts));
    store->regions =
            calloc((size_t)store->rank_count * store->region_count, sizeof(*store->regions));
}

bool store_open(const store_params *params, kv_store *store_out, char why_out[STORE_WHY_MAX])
{
    if (!fits_host(params, why_out))
        return false;

    /* In its final place: the layouts point into it. */
    kv_store *const store = store_out;
    store_init(store, params);
    if (store->memory == NULL || store->layouts == NULL || store->regions == NULL)
        goto fail;
    for (uint32_t i = 0; i < store->rank_count; i++) {
        store->memory[i] = rank_map(store->rank_bytes);
        if (store->memory[i] == NULL)
            goto fail;
        rank_describe(store, params, i);
    }
    return true;

fail:
    (void)snprintf(why_out, STORE_WHY_MAX, "cannot map %.1f GiB of memory: %s",
            (double)store_bytes(params) / GIB, strerror(errno));
    store_close(store);
    return false;
}

void store_close(kv_store *store)
{
    for (uint32_t i = 0; store->memory != NULL && i < store->rank_count; i++)
        if (store->memory[i] != NULL)
            (void)munmap(store->memory[i], store->rank_bytes);
    free(store->memory);
    free(store->layouts);
    free(store->regions);
    *store = (kv_store){ 0 };
}

/* The pieces of one page in one region. */
typedef struct page_pieces {
    char *base;
    uint32_t piece_bytes;
    uint32_t first_token;
    uint32_t token_count; /* the last page of a request may be partly used */
} page_pieces;

static page_pieces pieces_of(
        const kv_store *store, const kvx_region *region, const store_range *range, uint32_t i)
{
    const uint32_t first = i * store->page_tokens;
    const uint32_t left = range->request->tokens - first;
    return (page_pieces){
        .base = (char *)region->base + range->table->pages[i] * region->page_bytes,
        .piece_bytes = (uint32_t)(region->page_bytes / store->page_tokens),
        .first_token = first,
        .token_count = left < store->page_tokens ? left : store->page_tokens,
    };
}

static void region_fill(
        const kv_store *store, uint32_t rank_idx, uint32_t region, const store_range *range)
{
    content_place place = { .rank = store->first_rank + rank_idx, .region = region };
    const kvx_region *const where = &store->layouts[rank_idx].regions[region];

    for (uint32_t i = range->first; i < range->first + range->count; i++) {
        const page_pieces pieces = pieces_of(store, where, range, i);
        for (uint32_t t = 0; t < pieces.token_count; t++) {
            place.token = pieces.first_token + t;
            place.origin = trace_origin(range->request, place.token);
            content_fill(pieces.base + (size_t)t * pieces.piece_bytes, pieces.piece_bytes,
                    content_key(&place));
        }
    }
}

void store_fill(kv_store *store, const store_range *range)
{
    for (uint32_t rank_idx = 0; rank_idx < store->rank_count; rank_idx++)
        for (uint32_t region = 0; region < store->region_count; region++)
            region_fill(store, rank_idx, region, range);
}

static void mismatch_add(store_mismatch *found, const content_place *place, kvx_page page)
{
    if (found->count++ > 0)
        return;
    found->rank = place->rank;
    found->region = place->region;
    found->token = place->token;
    found->page = page;
}

static void region_verify(const kv_store *store, uint32_t rank_idx, uint32_t region,
        const store_range *range, store_mismatch *found)
{
    content_place place = { .rank = store->first_rank + rank_idx, .region = region };
    const kvx_region *const where = &store->layouts[rank_idx].regions[region];

    for (uint32_t i = range->first; i < range->first + range->count; i++) {
        const page_pieces pieces = pieces_of(store, where, range, i);
        for (uint32_t t = 0; t < pieces.token_count; t++) {
            place.token = pieces.first_token + t;
            place.origin = trace_origin(range->request, place.token);
            if (!content_matches(pieces.base + (size_t)t * pieces.piece_bytes, pieces.piece_bytes,
                        content_key(&place)))
                mismatch_add(found, &place, range->table->pages[i]);
        }
    }
}

void store_verify(const kv_store *store, const store_range *range, store_mismatch *found)
{
    for (uint32_t rank_idx = 0; rank_idx < store->rank_count; rank_idx++)
        for (uint32_t region = 0; region < store->region_count; region++)
            region_verify(store, rank_idx, region, range, found);
}

void store_poison(void *store, kvx_page page)
{
    const kv_store *const kv = store;
    for (uint32_t i = 0; i < kv->rank_count * kv->region_count; i++) {
        const kvx_region *const region = &kv->regions[i];
        content_poison((char *)region->base + page * region->page_bytes, region->page_bytes,
                region->page_bytes / kv->page_tokens);
    }
}
