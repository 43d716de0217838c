/* SPDX-License-Identifier: Apache-2.0 */
/* Strings and blobs in messages: a 16-bit length, then the bytes. */
#ifndef KVX_WIRE_TEXT_H
#define KVX_WIRE_TEXT_H

#include "base/bytes.h"
#include "wire/message.h"

/* Write a zero-terminated string, cut before what would not decode. */
void kvx_write_text(kvx_buffer *out, const char *text);
/* Read a string and terminate it; the reader fails if it does not fit or is not clean. */
void kvx_read_text(kvx_reader *in, char *text_out, size_t size);

/* The caller keeps blobs within KVX_BLOB_MAX. */
void kvx_write_blob(kvx_buffer *out, const kvx_blob *blob);
/* Borrow a blob of at most KVX_BLOB_MAX bytes from the reader's memory. */
kvx_blob kvx_read_blob(kvx_reader *in);

#endif
