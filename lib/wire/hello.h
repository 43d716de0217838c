/* SPDX-License-Identifier: Apache-2.0 */
/* Payload of HELLO and WELCOME. */
#ifndef KVX_WIRE_HELLO_H
#define KVX_WIRE_HELLO_H

#include "base/bytes.h"
#include "wire/message.h"

/* Whether a hello can be written so that it decodes again. */
bool kvx_hello_is_sound(const kvx_hello *hello);

/* Bytes of all its blobs, the larger part of a payload. */
size_t kvx_hello_blob_bytes(const kvx_hello *hello);

/* Write the payload of a sound hello. */
void kvx_hello_write(const kvx_hello *hello, kvx_buffer *out);

/* Read a whole payload. KVX_PROTOCOL: malformed. KVX_NO_MEMORY. */
KVX_CHECKED kvx_status kvx_hello_read(const uint8_t *payload, size_t size, kvx_hello **hello_out);

#endif
