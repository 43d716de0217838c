/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/blob.h"

#include <string.h>

#define MAGIC_BYTES    4
#define CHECKSUM_BYTES 8

/* FNV-1a, 64 bits: each step is one-to-one, so any single changed byte changes the sum. */
static uint64_t checksum(const uint8_t *data, size_t length)
{
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < length; i++)
        sum = (sum ^ data[i]) * UINT64_C(0x100000001b3);
    return sum;
}

void kvx_blob_bytes(kvx_blob *blob, const void *bytes, size_t count)
{
    if (blob->is_failed || count > blob->size - blob->length) {
        blob->is_failed = true;
        return;
    }
    memcpy(blob->data + blob->length, bytes, count);
    blob->length += count;
}

static void append_number(kvx_blob *blob, uint64_t value, size_t bytes)
{
    uint8_t text[8];
    for (size_t i = 0; i < bytes; i++)
        text[i] = (uint8_t)(value >> (8 * i));
    kvx_blob_bytes(blob, text, bytes);
}

void kvx_blob_u32(kvx_blob *blob, uint32_t value)
{
    append_number(blob, value, 4);
}

void kvx_blob_u64(kvx_blob *blob, uint64_t value)
{
    append_number(blob, value, 8);
}

void kvx_blob_begin(kvx_blob *blob, void *data, size_t size, uint32_t magic)
{
    *blob = (kvx_blob){ .data = data, .size = size };
    kvx_blob_u32(blob, magic);
}

kvx_status kvx_blob_end(kvx_blob *blob, size_t *length_out)
{
    kvx_blob_u64(blob, checksum(blob->data, blob->length));
    KVX_ENSURE(!blob->is_failed, KVX_NO_SPACE);
    *length_out = blob->length;
    return KVX_OK;
}

kvx_status kvx_blob_open(kvx_reader *reader, const void *data, size_t length, uint32_t magic)
{
    const uint8_t *const bytes = data;
    KVX_ENSURE(bytes != NULL && length >= MAGIC_BYTES + CHECKSUM_BYTES, KVX_PROTOCOL);

    const size_t end = length - CHECKSUM_BYTES;
    KVX_ENSURE(kvx_load_u32(bytes) == magic, KVX_PROTOCOL);
    KVX_ENSURE(kvx_load_u64(bytes + end) == checksum(bytes, end), KVX_PROTOCOL);
    kvx_reader_init(reader, bytes + MAGIC_BYTES, end - MAGIC_BYTES);
    return KVX_OK;
}
