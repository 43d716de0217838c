/* SPDX-License-Identifier: Apache-2.0 */
/* The first byte chooses: 0, a frame as it comes; else the type of a frame whose payload is the
 * rest. What decodes must encode to the same bytes. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/reencode.h"
#include "wire/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool claim)
{
    if (!claim)
        abort();
}

static bool is_hello(const kvx_message *message)
{
    return message->type == KVX_MESSAGE_HELLO || message->type == KVX_MESSAGE_WELCOME;
}

/* Of a foreign version only the range is known. */
static bool is_foreign(const kvx_message *message)
{
    return is_hello(message) && (message->hello->version_min > KVX_WIRE_VERSION_MAX ||
                                        message->hello->version_max < KVX_WIRE_VERSION_MIN);
}

static void try_hello(const kvx_hello *hello)
{
    char why[256];
    kvx_hello *copy = NULL;

    if (kvx_hello_copy(hello, &copy) != KVX_OK)
        return;
    if (kvx_hello_match(hello, copy, true, why, sizeof(why)) == KVX_MISMATCH)
        require(strnlen(why, sizeof(why)) < sizeof(why));
    kvx_hello_destroy(&copy);
}

static void try_decoded(const kvx_message *message, const uint8_t *frame, size_t size)
{
    kvx_buffer out = { 0 };

    if (is_hello(message))
        try_hello(message->hello);
    if (!is_foreign(message)) {
        require(reencode(message, &out) == KVX_OK);
        require(kvx_buffer_length(&out) == size);
        require(memcmp(out.data + out.start, frame, size) == 0);
    }
    kvx_buffer_fini(&out);
}

static void try_frame(const uint8_t *frame, size_t size)
{
    kvx_message message = { 0 };
    uint32_t length = 0;

    if (kvx_wire_frame_length(frame, size, KVX_WIRE_HELLO_MAX, &length) == KVX_OK)
        require(length >= KVX_WIRE_HEADER_BYTES && length <= KVX_WIRE_HELLO_MAX);
    if (kvx_wire_decode(frame, (uint32_t)size, &message) != KVX_OK)
        return;
    require(kvx_wire_frame_length(frame, size, KVX_WIRE_FRAME_MAX, &length) == KVX_OK);
    require(length == size);
    try_decoded(&message, frame, size);
    if (is_hello(&message))
        kvx_hello_destroy(&message.hello_in);
}

static void try_payload(uint8_t type, const uint8_t *payload, size_t size)
{
    const uint32_t length = (uint32_t)(size + KVX_WIRE_HEADER_BYTES);
    uint8_t *frame = malloc(length);

    if (frame == NULL)
        return;
    const uint8_t header[KVX_WIRE_HEADER_BYTES] = { (uint8_t)length, (uint8_t)(length >> 8),
        (uint8_t)(length >> 16), (uint8_t)(length >> 24), type, 0, 'K', 'V' };
    memcpy(frame, header, sizeof(header));
    memcpy(frame + sizeof(header), payload, size);
    try_frame(frame, length);
    free(frame);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || size > KVX_WIRE_FRAME_MAX / 2)
        return 0;
    if (data[0] == 0)
        try_frame(data + 1, size - 1);
    else
        try_payload(data[0], data + 1, size - 1);
    return 0;
}
