/* SPDX-License-Identifier: Apache-2.0 */
/* What a node says of itself: its place in the group, the shape of its pool, and for each path an
 * address and a key per region. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "node/node.h"

/* Where a blob lies in storage, which still grows. */
typedef struct span {
    size_t off;
    size_t size;
} span;

static void describe_components(const kvx_pool *pool, kvx_hello *hello)
{
    hello->component_count = pool->component_count;
    for (uint32_t i = 0; i < pool->component_count; i++) {
        const kvx_component *from = &pool->components[i];
        kvx_hello_component *to = &hello->components[i];
        (void)snprintf(to->name, sizeof(to->name), "%s", from->name);
        (void)snprintf(to->axis, sizeof(to->axis), "%s", from->axis == NULL ? "" : from->axis);
        to->page_tokens = from->page_tokens;
        to->page_count = from->page_count;
    }
}

static kvx_status describe_regions(const kvx_pool *pool, kvx_hello *hello)
{
    hello->regions = calloc(pool->region_count, sizeof(*hello->regions));
    KVX_ENSURE(hello->regions != NULL, KVX_NO_MEMORY);
    hello->region_count = pool->region_count;
    for (uint32_t i = 0; i < pool->region_count; i++) {
        const kvx_region *from = &pool->regions[i];
        kvx_hello_region *to = &hello->regions[i];
        (void)snprintf(to->role, sizeof(to->role), "%s", from->role);
        to->component = from->component;
        to->layer = from->layer;
        to->page_bytes = from->page_bytes;
        to->page_stride = from->page_stride;
    }
    return KVX_OK;
}

static kvx_status pack_address(const kvx_node *node, kvx_buffer *storage, span *span_out)
{
    size_t size = 0;
    uint8_t *space = kvx_buffer_space(storage, KVX_BLOB_MAX);

    KVX_ENSURE(space != NULL, KVX_NO_MEMORY);
    KVX_TRY(node->ops->address(node->domain, space, KVX_BLOB_MAX, &size));
    *span_out = (span){ storage->size, size };
    kvx_buffer_commit(storage, size);
    return KVX_OK;
}

static kvx_status pack_key(
        const kvx_node *node, uint32_t region, kvx_buffer *storage, span *span_out)
{
    size_t size = 0;
    uint8_t *space = kvx_buffer_space(storage, KVX_BLOB_MAX);

    KVX_ENSURE(space != NULL, KVX_NO_MEMORY);
    KVX_TRY(node->ops->pack_key(node->pool->mrs[region], space, KVX_BLOB_MAX, &size));
    *span_out = (span){ storage->size, size };
    kvx_buffer_commit(storage, size);
    return KVX_OK;
}

static kvx_blob blob_of(const kvx_hello *hello, span where)
{
    return (kvx_blob){ hello->storage + where.off, (uint32_t)where.size };
}

static kvx_status pack_all(const kvx_node *node, kvx_buffer *storage, span *spans)
{
    KVX_TRY(pack_address(node, storage, &spans[0]));
    for (uint32_t i = 0; i < node->pool->region_count; i++)
        KVX_TRY(pack_key(node, i, storage, &spans[i + 1]));
    return KVX_OK;
}

/* One path: rail 0 and the node's one transport. */
static kvx_status describe_path(const kvx_node *node, kvx_hello *hello)
{
    const uint32_t regions = node->pool->region_count;
    kvx_hello_path *path = &hello->paths[0];
    kvx_buffer storage = { 0 };
    span *spans = calloc(regions + 1, sizeof(*spans));

    path->keys = calloc(regions, sizeof(*path->keys));
    hello->path_count = 1;
    (void)snprintf(path->transport, sizeof(path->transport), "%s", node->ops->name);
    kvx_status status = KVX_NO_MEMORY;
    if (spans != NULL && path->keys != NULL)
        status = pack_all(node, &storage, spans);
    if (status != KVX_OK) {
        kvx_buffer_fini(&storage);
        free(spans);
        return status;
    }
    hello->storage = storage.data;
    path->address = blob_of(hello, spans[0]);
    for (uint32_t i = 0; i < regions; i++)
        path->keys[i] = blob_of(hello, spans[i + 1]);
    free(spans);
    return KVX_OK;
}

/* Peers refuse a longer one before they know who it is. */
static kvx_status check_length(const kvx_node *node, const kvx_hello *hello)
{
    const kvx_message message = { .type = KVX_MESSAGE_HELLO, .hello = hello };
    kvx_buffer frame = { 0 };

    const kvx_status status = kvx_wire_encode(&message, &frame);
    kvx_buffer_fini(&frame);
    if (status != KVX_NO_SPACE)
        return status;
    kvx_log(KVX_LOG_ERROR,
            "rank %" PRIu32 ": the description of %" PRIu32 " regions is longer than a HELLO may "
            "be (%u bytes); give the pool fewer, larger regions",
            node->rank, hello->region_count, KVX_WIRE_HELLO_MAX);
    return KVX_INVALID;
}

kvx_status kvx_node_hello(const kvx_node *node, uint64_t epoch, kvx_hello **hello_out)
{
    kvx_hello *hello = calloc(1, sizeof(*hello));
    KVX_ENSURE(hello != NULL, KVX_NO_MEMORY);

    hello->version_min = KVX_WIRE_VERSION_MIN;
    hello->version_max = KVX_WIRE_VERSION_MAX;
    hello->epoch = epoch;
    hello->rank = node->rank;
    hello->ranks = node->ranks;
    (void)snprintf(hello->compat, sizeof(hello->compat), "%s", node->compat);
    describe_components(node->pool, hello);
    kvx_status status = describe_regions(node->pool, hello);
    if (status == KVX_OK)
        status = describe_path(node, hello);
    if (status == KVX_OK)
        status = check_length(node, hello);
    if (status != KVX_OK) {
        kvx_hello_destroy(&hello);
        return status;
    }
    *hello_out = hello;
    return KVX_OK;
}
