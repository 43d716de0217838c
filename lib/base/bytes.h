/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds-checked cursors over bytes, fixed little-endian. A failed cursor stays failed, so that
 * a codec reads like its schema and checks once at the end. */
#ifndef KVX_BASE_BYTES_H
#define KVX_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"

/* Reads from memory it does not own. */
typedef struct kvx_reader {
    const uint8_t *data;
    size_t size;
    size_t offset;
    bool is_failed; /* read past the end once; every later read gives 0 */
} kvx_reader;

void kvx_reader_init(kvx_reader *reader, const void *data, size_t size);
uint8_t kvx_read_u8(kvx_reader *reader);
uint16_t kvx_read_u16(kvx_reader *reader);
uint32_t kvx_read_u32(kvx_reader *reader);
uint64_t kvx_read_u64(kvx_reader *reader);
/* Borrow count bytes; NULL (and failed) if there are fewer. count 0 gives a non-NULL pointer. */
const uint8_t *kvx_read_bytes(kvx_reader *reader, size_t count);
/* Whether nothing failed and nothing is left over. */
bool kvx_reader_is_done(const kvx_reader *reader);
size_t kvx_reader_left(const kvx_reader *reader);

/* Growing output; data[start .. size) is what was written and not consumed. Zeroed is empty. */
typedef struct kvx_buffer {
    uint8_t *data;
    size_t start;
    size_t size;
    size_t capacity;
    size_t limit;   /* most bytes between start and size; 0: none */
    bool is_failed; /* out of memory or over the limit; writes are dropped until reset */
} kvx_buffer;

void kvx_buffer_fini(kvx_buffer *buffer);
/* Forget the content and the failure, keep the memory. */
void kvx_buffer_reset(kvx_buffer *buffer);
void kvx_write_u8(kvx_buffer *buffer, uint8_t value);
void kvx_write_u16(kvx_buffer *buffer, uint16_t value);
void kvx_write_u32(kvx_buffer *buffer, uint32_t value);
void kvx_write_u64(kvx_buffer *buffer, uint64_t value);
void kvx_write_bytes(kvx_buffer *buffer, const void *data, size_t count);
/* Overwrite four bytes at an absolute offset in data (a length that is known only at the end). */
void kvx_patch_u32(kvx_buffer *buffer, size_t offset, uint32_t value);
/* Drop count bytes at the front. What is left may move: pointers and offsets into data are void. */
void kvx_buffer_consume(kvx_buffer *buffer, size_t count);
/* Make room for at least count more bytes behind size, for reading into; NULL if it cannot. */
uint8_t *kvx_buffer_space(kvx_buffer *buffer, size_t count);
/* Count bytes were put there. */
void kvx_buffer_commit(kvx_buffer *buffer, size_t count);
size_t kvx_buffer_length(const kvx_buffer *buffer);

/* Little-endian access to memory, for tables that are decoded lazily. */
uint32_t kvx_load_u32(const uint8_t *bytes);
uint64_t kvx_load_u64(const uint8_t *bytes);

#endif
