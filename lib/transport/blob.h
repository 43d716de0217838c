/* SPDX-License-Identifier: Apache-2.0 */
/* Frame of a transport's address or key: a magic, the content, a checksum. The checksum tells
 * damage, not malice: whoever can forge a blob can forge its checksum. */
#ifndef KVX_TRANSPORT_BLOB_H
#define KVX_TRANSPORT_BLOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

/* Writes into the caller's bytes, little-endian; what does not fit is remembered. */
typedef struct kvx_blob {
    uint8_t *data;
    size_t size;
    size_t length;
    bool is_failed;
} kvx_blob;

void kvx_blob_begin(kvx_blob *blob, void *data, size_t size, uint32_t magic);
void kvx_blob_u32(kvx_blob *blob, uint32_t value);
void kvx_blob_u64(kvx_blob *blob, uint64_t value);
void kvx_blob_bytes(kvx_blob *blob, const void *bytes, size_t count);
/* Append the checksum. KVX_NO_SPACE: the blob did not fit. */
KVX_CHECKED kvx_status kvx_blob_end(kvx_blob *blob, size_t *length_out);

/* Check magic and checksum and set the reader on the content between them.
 * KVX_PROTOCOL: not such a blob, or damaged. */
KVX_CHECKED kvx_status kvx_blob_open(
        kvx_reader *reader, const void *data, size_t length, uint32_t magic);

#endif
