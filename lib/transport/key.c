/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/key.h"

#include "base/log.h"
#include "transport/blob.h"

kvx_status kvx_key_pack(
        const kvx_key *key, uint32_t magic, void *buffer, size_t size, size_t *length_out)
{
    kvx_blob blob;
    kvx_blob_begin(&blob, buffer, size, magic);
    kvx_blob_u64(&blob, key->identity);
    kvx_blob_u64(&blob, key->handle);
    kvx_blob_u64(&blob, key->length_bytes);
    return kvx_blob_end(&blob, length_out);
}

static kvx_status parse(const void *data, size_t size, uint32_t magic, kvx_key *key_out)
{
    kvx_reader reader;
    KVX_TRY(kvx_blob_open(&reader, data, size, magic));
    const kvx_key key = {
        .identity = kvx_read_u64(&reader),
        .handle = kvx_read_u64(&reader),
        .length_bytes = kvx_read_u64(&reader),
    };
    KVX_ENSURE(kvx_reader_is_done(&reader), KVX_PROTOCOL);
    *key_out = key;
    return KVX_OK;
}

kvx_status kvx_key_unpack(const void *data, size_t size, uint32_t magic, uint64_t identity,
        uint64_t length_bytes, kvx_key *key_out)
{
    kvx_key key;
    if (parse(data, size, magic, &key) != KVX_OK) {
        kvx_log(KVX_LOG_ERROR, "a memory key of %zu bytes is damaged or of another transport", size);
        return KVX_PROTOCOL;
    }
    if (key.identity != identity) {
        kvx_log(KVX_LOG_ERROR, "a memory key is of domain %016llx, not of %016llx",
                (unsigned long long)key.identity, (unsigned long long)identity);
        return KVX_PROTOCOL;
    }
    if (key.length_bytes != length_bytes) {
        kvx_log(KVX_LOG_ERROR, "a memory key is for %llu bytes, expected were %llu",
                (unsigned long long)key.length_bytes, (unsigned long long)length_bytes);
        return KVX_INVALID;
    }
    *key_out = key;
    return KVX_OK;
}
