/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/text.h"

#include <string.h>

#include "kvx/transport.h"

#include "pool/text.h"

void kvx_write_text(kvx_buffer *out, const char *text)
{
    const size_t length = kvx_text_clean_length(text, strnlen(text, UINT16_MAX));

    kvx_write_u16(out, (uint16_t)length);
    kvx_write_bytes(out, text, length);
}

void kvx_read_text(kvx_reader *in, char *text_out, size_t size)
{
    const uint16_t length = kvx_read_u16(in);
    const char *bytes = (const char *)kvx_read_bytes(in, length);

    text_out[0] = '\0';
    if (bytes == NULL)
        return;
    if (length >= size || kvx_text_clean_length(bytes, length) != length) {
        in->is_failed = true;
        return;
    }
    memcpy(text_out, bytes, length);
    text_out[length] = '\0';
}

void kvx_write_blob(kvx_buffer *out, const kvx_blob *blob)
{
    kvx_write_u16(out, (uint16_t)blob->size);
    kvx_write_bytes(out, blob->data, blob->size);
}

kvx_blob kvx_read_blob(kvx_reader *in)
{
    const uint16_t size = kvx_read_u16(in);

    if (size > KVX_BLOB_MAX)
        in->is_failed = true;
    return (kvx_blob){ .data = kvx_read_bytes(in, size), .size = in->is_failed ? 0 : size };
}
