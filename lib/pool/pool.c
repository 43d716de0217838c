/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/pool.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"

static size_t strings_size(const kvx_layout *layout)
{
    size_t size = 0;

    for (uint32_t i = 0; i < layout->component_count; i++)
        size += strlen(layout->components[i].name) + strlen(layout->components[i].axis) + 2;
    for (uint32_t i = 0; i < layout->region_count; i++)
        size += strlen(layout->regions[i].role) + 1;
    return size;
}

/* Copy a string to *at and move *at behind it. */
static const char *string_put(char **at, const char *text)
{
    char *copy = *at;
    const size_t size = strlen(text) + 1;

    memcpy(copy, text, size);
    *at += size;
    return copy;
}

static void layout_copy(kvx_pool *pool, const kvx_layout *layout)
{
    char *at = pool->strings;

    for (uint32_t i = 0; i < layout->component_count; i++) {
        pool->components[i] = layout->components[i];
        pool->components[i].name = string_put(&at, layout->components[i].name);
        pool->components[i].axis = string_put(&at, layout->components[i].axis);
    }
    for (uint32_t i = 0; i < layout->region_count; i++) {
        pool->regions[i] = layout->regions[i];
        pool->regions[i].role = string_put(&at, layout->regions[i].role);
        if (pool->regions[i].page_stride == 0)
            pool->regions[i].page_stride = pool->regions[i].page_bytes;
    }
    pool->component_count = layout->component_count;
    pool->region_count = layout->region_count;
}

kvx_status kvx_pool_create(const kvx_layout *layout, kvx_pool **pool_out)
{
    char why[256];

    if (kvx_layout_check(layout, why, sizeof(why)) != KVX_OK) {
        kvx_log(KVX_LOG_ERROR, "pool: %s", why);
        return KVX_INVALID;
    }
    kvx_pool *pool = calloc(1, sizeof(*pool));
    KVX_ENSURE(pool != NULL, KVX_NO_MEMORY);
    pool->regions = calloc(layout->region_count, sizeof(*pool->regions));
    pool->mrs = calloc(layout->region_count, sizeof(*pool->mrs));
    pool->strings = malloc(strings_size(layout));
    if (pool->regions == NULL || pool->mrs == NULL || pool->strings == NULL)
        goto fail;

    layout_copy(pool, layout);
    *pool_out = pool;
    return KVX_OK;

fail:
    kvx_pool_destroy(&pool);
    return KVX_NO_MEMORY;
}

void kvx_pool_destroy(kvx_pool **pool)
{
    if (pool == NULL || *pool == NULL)
        return;
    kvx_pool_detach(*pool);
    free((*pool)->strings);
    free((*pool)->mrs);
    free((*pool)->regions);
    free(*pool);
    *pool = NULL;
}

static kvx_status region_attach(kvx_pool *pool, kvx_domain *domain, uint32_t index)
{
    const kvx_region *region = &pool->regions[index];
    const uint32_t pages = pool->components[region->component].page_count;
    const uint64_t span = kvx_region_span(region, pages);

    return pool->ops->reg(domain, region->base, span, region->memory_kind, &pool->mrs[index]);
}

kvx_status kvx_pool_attach(kvx_pool *pool, const kvx_transport_ops *ops, kvx_domain *domain)
{
    if (pool->ops != NULL) {
        kvx_log(KVX_LOG_ERROR, "pool: is registered with %s already", pool->ops->name);
        return KVX_BUSY;
    }
    pool->ops = ops;
    for (uint32_t i = 0; i < pool->region_count; i++) {
        const kvx_status st = region_attach(pool, domain, i);
        if (st != KVX_OK) {
            kvx_log(KVX_LOG_ERROR, "pool: region %u (%s, layer %u) could not be registered: %s", i,
                    pool->regions[i].role, pool->regions[i].layer, kvx_status_text(st));
            kvx_pool_detach(pool);
            return st;
        }
    }
    return KVX_OK;
}

void kvx_pool_detach(kvx_pool *pool)
{
    if (pool->ops == NULL)
        return;
    for (uint32_t i = pool->region_count; i-- > 0;) {
        if (pool->mrs[i] != NULL)
            pool->ops->unreg(pool->mrs[i]);
        pool->mrs[i] = NULL;
    }
    pool->ops = NULL;
}

uint64_t kvx_pool_page_bytes(const kvx_pool *pool, uint32_t component)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < pool->region_count; i++)
        if (pool->regions[i].component == component)
            bytes += pool->regions[i].page_bytes;
    return bytes;
}
