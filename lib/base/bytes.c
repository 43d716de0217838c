/* SPDX-License-Identifier: Apache-2.0 */
#include "base/bytes.h"

#include <stdlib.h>
#include <string.h>

#define CAPACITY_MIN 256

static uint64_t load_le(const uint8_t *bytes, size_t count)
{
    uint64_t value = 0;
    for (size_t i = 0; i < count; i++)
        value |= (uint64_t)bytes[i] << (8 * i);
    return value;
}

static void store_le(uint8_t *bytes, size_t count, uint64_t value)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)(value >> (8 * i));
}

uint32_t kvx_load_u32(const uint8_t *bytes)
{
    return (uint32_t)load_le(bytes, sizeof(uint32_t));
}

uint64_t kvx_load_u64(const uint8_t *bytes)
{
    return load_le(bytes, sizeof(uint64_t));
}

void kvx_reader_init(kvx_reader *reader, const void *data, size_t size)
{
    *reader = (kvx_reader){ .data = data, .size = size };
}

const uint8_t *kvx_read_bytes(kvx_reader *reader, size_t count)
{
    static const uint8_t nothing;
    if (reader->is_failed || count > reader->size - reader->offset) {
        reader->is_failed = true;
        return NULL;
    }
    if (count == 0)
        return &nothing;
    const uint8_t *bytes = reader->data + reader->offset;
    reader->offset += count;
    return bytes;
}

static uint64_t read_le(kvx_reader *reader, size_t count)
{
    const uint8_t *bytes = kvx_read_bytes(reader, count);
    return bytes == NULL ? 0 : load_le(bytes, count);
}

uint8_t kvx_read_u8(kvx_reader *reader)
{
    return (uint8_t)read_le(reader, sizeof(uint8_t));
}

uint16_t kvx_read_u16(kvx_reader *reader)
{
    return (uint16_t)read_le(reader, sizeof(uint16_t));
}

uint32_t kvx_read_u32(kvx_reader *reader)
{
    return (uint32_t)read_le(reader, sizeof(uint32_t));
}

uint64_t kvx_read_u64(kvx_reader *reader)
{
    return read_le(reader, sizeof(uint64_t));
}

bool kvx_reader_is_done(const kvx_reader *reader)
{
    return !reader->is_failed && reader->offset == reader->size;
}

size_t kvx_reader_left(const kvx_reader *reader)
{
    return reader->is_failed ? 0 : reader->size - reader->offset;
}

void kvx_buffer_fini(kvx_buffer *buffer)
{
    free(buffer->data);
    *buffer = (kvx_buffer){ 0 };
}

void kvx_buffer_reset(kvx_buffer *buffer)
{
    buffer->start = 0;
    buffer->size = 0;
    buffer->is_failed = false;
}

size_t kvx_buffer_length(const kvx_buffer *buffer)
{
    return buffer->size - buffer->start;
}

/* Room for count more bytes at the end. Never moves what is written to another offset, because
 * kvx_patch_u32() may come for it; consume does that. */
static bool buffer_grow(kvx_buffer *buffer, size_t count)
{
    size_t needed;
    if (__builtin_add_overflow(buffer->size, count, &needed) || needed > SIZE_MAX / 2)
        return false;
    if (buffer->limit != 0 && needed - buffer->start > buffer->limit)
        return false;
    if (needed <= buffer->capacity && buffer->data != NULL)
        return true;
    size_t capacity = buffer->capacity == 0 ? CAPACITY_MIN : buffer->capacity;
    while (capacity < needed)
        capacity *= 2;
    uint8_t *data = realloc(buffer->data, capacity);
    if (data == NULL)
        return false;
    buffer->data = data;
    buffer->capacity = capacity;
    return true;
}

uint8_t *kvx_buffer_space(kvx_buffer *buffer, size_t count)
{
    if (buffer->is_failed || !buffer_grow(buffer, count)) {
        buffer->is_failed = true;
        return NULL;
    }
    return buffer->data + buffer->size;
}

void kvx_buffer_commit(kvx_buffer *buffer, size_t count)
{
    buffer->size += count;
}

static void write_le(kvx_buffer *buffer, uint64_t value, size_t count)
{
    uint8_t *bytes = kvx_buffer_space(buffer, count);
    if (bytes == NULL)
        return;
    store_le(bytes, count, value);
    buffer->size += count;
}

void kvx_write_u8(kvx_buffer *buffer, uint8_t value)
{
    write_le(buffer, value, sizeof(value));
}

void kvx_write_u16(kvx_buffer *buffer, uint16_t value)
{
    write_le(buffer, value, sizeof(value));
}

void kvx_write_u32(kvx_buffer *buffer, uint32_t value)
{
    write_le(buffer, value, sizeof(value));
}

void kvx_write_u64(kvx_buffer *buffer, uint64_t value)
{
    write_le(buffer, value, sizeof(value));
}

void kvx_write_bytes(kvx_buffer *buffer, const void *data, size_t count)
{
    if (count == 0)
        return;
    uint8_t *bytes = kvx_buffer_space(buffer, count);
    if (bytes == NULL)
        return;
    memcpy(bytes, data, count);
    buffer->size += count;
}

/* A failed buffer may end before the offset. */
void kvx_patch_u32(kvx_buffer *buffer, size_t offset, uint32_t value)
{
    if (buffer->is_failed || offset > buffer->size || buffer->size - offset < sizeof(value)) {
        buffer->is_failed = true;
        return;
    }
    store_le(buffer->data + offset, sizeof(value), value);
}

/* What is left moves to the front once it is no more than what went, so that each byte moves
 * about once however small the pieces are. */
void kvx_buffer_consume(kvx_buffer *buffer, size_t count)
{
    const size_t length = kvx_buffer_length(buffer);
    if (count >= length) {
        buffer->start = 0;
        buffer->size = 0;
        return;
    }
    buffer->start += count;
    const size_t left = length - count;
    if (left > buffer->start)
        return;
    memmove(buffer->data, buffer->data + buffer->start, left);
    buffer->start = 0;
    buffer->size = left;
}
