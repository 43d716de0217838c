/* SPDX-License-Identifier: Apache-2.0 */
/* A HELLO begins so that every version can read it: magic, then the range of versions. */
#include "wire/hello.h"

#include <stdlib.h>
#include <string.h>

#include "kvx/transport.h"

#include "pool/text.h"
#include "wire/text.h"

static const char hello_magic[8] = { 'K', 'V', 'E', 'X', 'P', 'R', 'E', 'S' };

void kvx_hello_destroy(kvx_hello **hello)
{
    if (hello == NULL || *hello == NULL)
        return;
    for (uint32_t i = 0; i < KVX_PATH_MAX; i++)
        free((*hello)->paths[i].keys);
    free((*hello)->regions);
    free((*hello)->storage);
    free(*hello);
    *hello = NULL;
}

static bool has_common_version(const kvx_hello *hello)
{
    return hello->version_min <= KVX_WIRE_VERSION_MAX && hello->version_max >= KVX_WIRE_VERSION_MIN;
}

static bool component_is_sound(const kvx_hello_component *component)
{
    return kvx_text_is_name(component->name, sizeof(component->name)) &&
           kvx_text_is_name(component->axis, sizeof(component->axis)) && component->page_count > 0;
}

/* What is checked here, the receiver may compute with: spans do not overflow. */
static bool region_is_sound(const kvx_hello *hello, const kvx_hello_region *region)
{
    uint64_t span = 0;

    if (region->component >= hello->component_count ||
            !kvx_text_is_name(region->role, sizeof(region->role)))
        return false;
    const uint32_t pages = hello->components[region->component].page_count;
    return region->page_bytes > 0 && region->page_stride >= region->page_bytes &&
           !__builtin_mul_overflow(region->page_stride, (uint64_t)(pages - 1), &span) &&
           !__builtin_add_overflow(span, region->page_bytes, &span);
}

static bool path_is_sound(const kvx_hello *hello, const kvx_hello_path *path)
{
    if (!kvx_text_is_name(path->transport, sizeof(path->transport)) ||
            path->address.size > KVX_BLOB_MAX || (path->keys == NULL && hello->region_count > 0))
        return false;
    for (uint32_t i = 0; i < hello->region_count; i++)
        if (path->keys[i].size > KVX_BLOB_MAX)
            return false;
    return true;
}

static bool header_is_sound(const kvx_hello *hello)
{
    const size_t compat_length = strnlen(hello->compat, sizeof(hello->compat));

    return hello->version_min > 0 && hello->version_min <= hello->version_max &&
           hello->auth_kind <= UINT16_MAX && hello->auth.size <= KVX_BLOB_MAX &&
           (hello->auth_kind != 0 || hello->auth.size == 0) &&
           compat_length < sizeof(hello->compat) &&
           kvx_text_clean_length(hello->compat, compat_length) == compat_length &&
           hello->component_count <= KVX_COMPONENT_MAX && hello->region_count <= KVX_REGION_MAX &&
           hello->path_count <= KVX_PATH_MAX;
}

bool kvx_hello_is_sound(const kvx_hello *hello)
{
    if (!header_is_sound(hello))
        return false;
    for (uint32_t i = 0; i < hello->component_count; i++)
        if (!component_is_sound(&hello->components[i]))
            return false;
    for (uint32_t i = 0; i < hello->region_count; i++)
        if (!region_is_sound(hello, &hello->regions[i]))
            return false;
    for (uint32_t i = 0; i < hello->path_count; i++)
        if (!path_is_sound(hello, &hello->paths[i]))
            return false;
    return true;
}

size_t kvx_hello_blob_bytes(const kvx_hello *hello)
{
    size_t size = hello->auth.size;

    for (uint32_t i = 0; i < hello->path_count; i++) {
        size += hello->paths[i].address.size;
        for (uint32_t j = 0; j < hello->region_count; j++)
            size += hello->paths[i].keys[j].size;
    }
    return size;
}

static void components_write(const kvx_hello *hello, kvx_buffer *out)
{
    kvx_write_u8(out, (uint8_t)hello->component_count);
    for (uint32_t i = 0; i < hello->component_count; i++) {
        kvx_write_text(out, hello->components[i].name);
        kvx_write_text(out, hello->components[i].axis);
        kvx_write_u32(out, hello->components[i].page_tokens);
        kvx_write_u32(out, hello->components[i].page_count);
    }
}

static void regions_write(const kvx_hello *hello, kvx_buffer *out)
{
    kvx_write_u16(out, (uint16_t)hello->region_count);
    for (uint32_t i = 0; i < hello->region_count; i++) {
        kvx_write_u8(out, (uint8_t)hello->regions[i].component);
        kvx_write_text(out, hello->regions[i].role);
        kvx_write_u32(out, hello->regions[i].layer);
        kvx_write_u64(out, hello->regions[i].page_bytes);
        kvx_write_u64(out, hello->regions[i].page_stride);
    }
}

static void paths_write(const kvx_hello *hello, kvx_buffer *out)
{
    kvx_write_u8(out, (uint8_t)hello->path_count);
    for (uint32_t i = 0; i < hello->path_count; i++) {
        kvx_write_u32(out, hello->paths[i].rail);
        kvx_write_text(out, hello->paths[i].transport);
        kvx_write_blob(out, &hello->paths[i].address);
        for (uint32_t j = 0; j < hello->region_count; j++)
            kvx_write_blob(out, &hello->paths[i].keys[j]);
    }
}

void kvx_hello_write(const kvx_hello *hello, kvx_buffer *out)
{
    kvx_write_bytes(out, hello_magic, sizeof(hello_magic));
    kvx_write_u32(out, hello->version_min);
    kvx_write_u32(out, hello->version_max);
    kvx_write_u16(out, (uint16_t)hello->auth_kind);
    kvx_write_blob(out, &hello->auth);
    kvx_write_u64(out, hello->epoch);
    kvx_write_u32(out, hello->rank_wanted);
    kvx_write_u32(out, hello->rank);
    kvx_write_u32(out, hello->ranks);
    kvx_write_text(out, hello->compat);
    components_write(hello, out);
    regions_write(hello, out);
    paths_write(hello, out);
}

/* Smallest encodings; a count that could not fit into what is left is refused before memory is
 * taken for it. */
enum { REGION_BYTES_MIN = 1 + 2 + 4 + 8 + 8, KEY_BYTES_MIN = 2 };

static void components_read(kvx_hello *hello, kvx_reader *in)
{
    const uint8_t count = kvx_read_u8(in);

    in->is_failed |= count > KVX_COMPONENT_MAX;
    for (uint32_t i = 0; i < count && !in->is_failed; i++) {
        kvx_hello_component *component = &hello->components[i];
        kvx_read_text(in, component->name, sizeof(component->name));
        kvx_read_text(in, component->axis, sizeof(component->axis));
        component->page_tokens = kvx_read_u32(in);
        component->page_count = kvx_read_u32(in);
    }
    hello->component_count = in->is_failed ? 0 : count;
}

static kvx_status regions_read(kvx_hello *hello, kvx_reader *in)
{
    const uint16_t count = kvx_read_u16(in);

    KVX_ENSURE(count <= KVX_REGION_MAX, KVX_PROTOCOL);
    KVX_ENSURE(count <= kvx_reader_left(in) / REGION_BYTES_MIN, KVX_PROTOCOL);
    /* One more, so that none at all is not taken for a lack of memory. */
    hello->regions = calloc((size_t)count + 1, sizeof(*hello->regions));
    KVX_ENSURE(hello->regions != NULL, KVX_NO_MEMORY);
    hello->region_count = count;
    for (uint32_t i = 0; i < count; i++) {
        kvx_hello_region *region = &hello->regions[i];
        region->component = kvx_read_u8(in);
        kvx_read_text(in, region->role, sizeof(region->role));
        region->layer = kvx_read_u32(in);
        region->page_bytes = kvx_read_u64(in);
        region->page_stride = kvx_read_u64(in);
    }
    return in->is_failed ? KVX_PROTOCOL : KVX_OK;
}

static kvx_status path_read(const kvx_hello *hello, kvx_hello_path *path, kvx_reader *in)
{
    path->rail = kvx_read_u32(in);
    kvx_read_text(in, path->transport, sizeof(path->transport));
    path->address = kvx_read_blob(in);
    KVX_ENSURE(!in->is_failed, KVX_PROTOCOL);
    KVX_ENSURE(hello->region_count <= kvx_reader_left(in) / KEY_BYTES_MIN, KVX_PROTOCOL);
    path->keys = calloc((size_t)hello->region_count + 1, sizeof(*path->keys));
    KVX_ENSURE(path->keys != NULL, KVX_NO_MEMORY);
    for (uint32_t i = 0; i < hello->region_count; i++)
        path->keys[i] = kvx_read_blob(in);
    return in->is_failed ? KVX_PROTOCOL : KVX_OK;
}

static kvx_status paths_read(kvx_hello *hello, kvx_reader *in)
{
    const uint8_t count = kvx_read_u8(in);

    KVX_ENSURE(count <= KVX_PATH_MAX, KVX_PROTOCOL);
    for (uint32_t i = 0; i < count; i++)
        KVX_TRY(path_read(hello, &hello->paths[i], in));
    hello->path_count = count;
    return KVX_OK;
}

static kvx_status body_read(kvx_hello *hello, kvx_reader *in)
{
    hello->auth_kind = kvx_read_u16(in);
    hello->auth = kvx_read_blob(in);
    hello->epoch = kvx_read_u64(in);
    hello->rank_wanted = kvx_read_u32(in);
    hello->rank = kvx_read_u32(in);
    hello->ranks = kvx_read_u32(in);
    kvx_read_text(in, hello->compat, sizeof(hello->compat));
    components_read(hello, in);
    KVX_TRY(regions_read(hello, in));
    KVX_TRY(paths_read(hello, in));
    KVX_ENSURE(kvx_reader_is_done(in), KVX_PROTOCOL);
    return kvx_hello_is_sound(hello) ? KVX_OK : KVX_PROTOCOL;
}

static kvx_status payload_read(kvx_hello *hello, size_t size)
{
    kvx_reader in;

    kvx_reader_init(&in, hello->storage, size);
    const uint8_t *magic = kvx_read_bytes(&in, sizeof(hello_magic));
    hello->version_min = kvx_read_u32(&in);
    hello->version_max = kvx_read_u32(&in);
    KVX_ENSURE(magic != NULL && !in.is_failed, KVX_PROTOCOL);
    KVX_ENSURE(memcmp(magic, hello_magic, sizeof(hello_magic)) == 0, KVX_PROTOCOL);
    KVX_ENSURE(hello->version_min > 0, KVX_PROTOCOL);
    KVX_ENSURE(hello->version_min <= hello->version_max, KVX_PROTOCOL);
    if (!has_common_version(hello))
        return KVX_OK;
    return body_read(hello, &in);
}

kvx_status kvx_hello_read(const uint8_t *payload, size_t size, kvx_hello **hello_out)
{
    kvx_status st = KVX_NO_MEMORY;

    kvx_hello *hello = calloc(1, sizeof(*hello));
    KVX_ENSURE(hello != NULL, KVX_NO_MEMORY);
    hello->storage = malloc(size + 1);
    if (hello->storage == NULL)
        goto fail;
    memcpy(hello->storage, payload, size);
    st = payload_read(hello, size);
    if (st != KVX_OK)
        goto fail;

    *hello_out = hello;
    return KVX_OK;

fail:
    kvx_hello_destroy(&hello);
    return st;
}

/* Copy a blob to *at and move *at behind it. */
static kvx_blob blob_put(uint8_t **at, const kvx_blob *blob)
{
    uint8_t *data = *at;

    if (blob->size > 0)
        memcpy(data, blob->data, blob->size);
    *at += blob->size;
    return (kvx_blob){ .data = data, .size = blob->size };
}

/* A copy of the plain values that owns nothing yet. */
static kvx_hello *hello_shell(const kvx_hello *hello)
{
    kvx_hello *copy = malloc(sizeof(*copy));

    if (copy == NULL)
        return NULL;
    *copy = *hello;
    copy->regions = NULL;
    copy->storage = NULL;
    for (uint32_t i = 0; i < KVX_PATH_MAX; i++)
        copy->paths[i].keys = NULL;
    return copy;
}

static kvx_status copy_allocate(kvx_hello *copy, const kvx_hello *hello)
{
    const size_t regions = (size_t)hello->region_count + 1;

    copy->storage = malloc(kvx_hello_blob_bytes(hello) + 1);
    copy->regions = calloc(regions, sizeof(*copy->regions));
    KVX_ENSURE(copy->storage != NULL && copy->regions != NULL, KVX_NO_MEMORY);
    for (uint32_t i = 0; i < hello->path_count; i++) {
        copy->paths[i].keys = calloc(regions, sizeof(*copy->paths[i].keys));
        KVX_ENSURE(copy->paths[i].keys != NULL, KVX_NO_MEMORY);
    }
    return KVX_OK;
}

kvx_status kvx_hello_copy(const kvx_hello *hello, kvx_hello **copy_out)
{
    kvx_hello *copy = hello_shell(hello);

    KVX_ENSURE(copy != NULL, KVX_NO_MEMORY);
    if (copy_allocate(copy, hello) != KVX_OK) {
        kvx_hello_destroy(&copy);
        return KVX_NO_MEMORY;
    }
    uint8_t *at = copy->storage;
    if (hello->region_count > 0)
        memcpy(copy->regions, hello->regions, hello->region_count * sizeof(*copy->regions));
    copy->auth = blob_put(&at, &hello->auth);
    for (uint32_t i = 0; i < hello->path_count; i++) {
        copy->paths[i].address = blob_put(&at, &hello->paths[i].address);
        for (uint32_t j = 0; j < hello->region_count; j++)
            copy->paths[i].keys[j] = blob_put(&at, &hello->paths[i].keys[j]);
    }
    *copy_out = copy;
    return KVX_OK;
}
