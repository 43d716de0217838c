/* SPDX-License-Identifier: Apache-2.0 */
/* Packed key of a transport that names a registration by one number. */
#ifndef KVX_TRANSPORT_KEY_H
#define KVX_TRANSPORT_KEY_H

#include <stddef.h>
#include <stdint.h>

#include "base/check.h"

typedef struct kvx_key {
    uint64_t identity;     /* of the domain that registered */
    uint64_t handle;       /* address or number of the registration */
    uint64_t length_bytes; /* of the registration */
} kvx_key;

/* KVX_NO_SPACE: the buffer is too small. */
KVX_CHECKED kvx_status kvx_key_pack(
        const kvx_key *key, uint32_t magic, void *buffer, size_t size, size_t *length_out);

/* KVX_PROTOCOL: damaged, of another transport, or of another domain than identity.
 * KVX_INVALID: the registration is not length_bytes long. The reason was logged. */
KVX_CHECKED kvx_status kvx_key_unpack(const void *data, size_t size, uint32_t magic,
        uint64_t identity, uint64_t length_bytes, kvx_key *key_out);

#endif
