/* SPDX-License-Identifier: Apache-2.0 */
/* Frames: u32 length of the whole frame, u16 type, u16 magic, payload. Little-endian. */
#include "wire/message.h"

#include <string.h>

#include "base/log.h"
#include "wire/hello.h"
#include "wire/text.h"

#define FRAME_MAGIC 0x564B /* "KV" */

enum { RUN_BYTES = 8, RENEW_BYTES = 24, LEASE_BYTES = 12 };
enum { READY_PARTIAL = 1 };

const char *kvx_message_name(kvx_message_type type)
{
    static const char *const names[] = { "UNKNOWN", "HELLO", "WELCOME", "REJECT", "SUBSCRIBE",
        "READY", "RENEW", "LEASE", "RELEASE", "RELEASED", "ABORT", "REVOKE", "DRAINED", "FAILED",
        "PING", "PONG", "BYE" };
    const unsigned int index = (unsigned int)type;

    return names[index < sizeof(names) / sizeof(*names) ? index : 0];
}

static bool status_is_known(kvx_status status)
{
    switch (status) {
#define STATUS_CASE(name, value, scope, text) case KVX_##name:
        KVX_STATUS_LIST(STATUS_CASE)
#undef STATUS_CASE
        return true;
    }
    return false;
}

static void status_write(kvx_buffer *out, kvx_status status)
{
    kvx_write_u32(out, (uint32_t)(int32_t)status);
}

static kvx_status status_read(kvx_reader *in)
{
    const kvx_status status = (kvx_status)(int32_t)kvx_read_u32(in);

    if (!status_is_known(status))
        in->is_failed = true;
    return status;
}

static void generation_write(kvx_buffer *out, const kvx_generation *generation)
{
    kvx_write_u64(out, generation->epoch);
    kvx_write_u64(out, generation->counter);
}

static kvx_generation generation_read(kvx_reader *in)
{
    const uint64_t epoch = kvx_read_u64(in);

    return (kvx_generation){ .epoch = epoch, .counter = kvx_read_u64(in) };
}

/* Lazy views of tables. */

kvx_page_run kvx_wire_run_at(const kvx_wire_runs *runs, uint32_t index)
{
    const uint8_t *at = runs->data + (size_t)index * RUN_BYTES;

    return (kvx_page_run){ .first = kvx_load_u32(at), .count = kvx_load_u32(at + 4) };
}

kvx_renew_item kvx_wire_renew_at(const uint8_t *view, uint32_t index)
{
    const uint8_t *at = view + (size_t)index * RENEW_BYTES;

    return (kvx_renew_item){
        .nonce = kvx_load_u64(at),
        .generation = { .epoch = kvx_load_u64(at + 8), .counter = kvx_load_u64(at + 16) },
    };
}

kvx_lease_item kvx_wire_lease_at(const uint8_t *view, uint32_t index)
{
    const uint8_t *at = view + (size_t)index * LEASE_BYTES;

    return (kvx_lease_item){
        .nonce = kvx_load_u64(at),
        .status = (kvx_status)(int32_t)kvx_load_u32(at + 8),
    };
}

/* Encoding, one function a message. What decoding would refuse is refused before. */

static kvx_status hello_encode(const kvx_message *message, kvx_buffer *out)
{
    KVX_ENSURE(kvx_hello_is_sound(message->hello), KVX_INVALID);
    KVX_ENSURE(kvx_hello_blob_bytes(message->hello) <= KVX_WIRE_HELLO_MAX, KVX_NO_SPACE);
    kvx_hello_write(message->hello, out);
    return KVX_OK;
}

static kvx_status reject_encode(const kvx_message *message, kvx_buffer *out)
{
    const kvx_status status = message->reject.status;
    const size_t length = strnlen(message->reject.text, sizeof(message->reject.text));

    KVX_ENSURE(status_is_known(status) && status != KVX_OK, KVX_INVALID);
    KVX_ENSURE(length < sizeof(message->reject.text), KVX_INVALID);
    status_write(out, status);
    kvx_write_text(out, message->reject.text);
    return KVX_OK;
}

static kvx_status subscribe_encode(const kvx_message *message, kvx_buffer *out)
{
    KVX_ENSURE(message->subscribe.reader < message->subscribe.readers, KVX_INVALID);
    kvx_write_u64(out, message->subscribe.room);
    kvx_write_u64(out, message->subscribe.nonce);
    kvx_write_u32(out, message->subscribe.reader);
    kvx_write_u32(out, message->subscribe.readers);
    kvx_write_u32(out, message->subscribe.patience_ms);
    return KVX_OK;
}

/* Tables are measured first: what is over the limit must not be copied. */
static kvx_status ready_check(const kvx_message *message)
{
    uint64_t bytes = 0;

    KVX_ENSURE(message->ready.component_count <= KVX_COMPONENT_MAX, KVX_INVALID);
    KVX_ENSURE(message->ready.aux.size <= KVX_AUX_MAX, KVX_INVALID);
    for (uint32_t i = 0; i < message->ready.component_count; i++)
        bytes += (uint64_t)message->ready.tables[i].run_count * RUN_BYTES;
    KVX_ENSURE(bytes <= KVX_WIRE_FRAME_MAX, KVX_NO_SPACE);
    return KVX_OK;
}

static void runs_encode(const kvx_page_run *runs, uint32_t count, kvx_buffer *out)
{
    kvx_write_u32(out, count);
    for (uint32_t i = 0; i < count; i++) {
        kvx_write_u32(out, runs[i].first);
        kvx_write_u32(out, runs[i].count);
    }
}

static kvx_status ready_encode(const kvx_message *message, kvx_buffer *out)
{
    KVX_TRY(ready_check(message));
    kvx_write_u64(out, message->ready.nonce);
    kvx_write_u64(out, message->ready.room);
    generation_write(out, &message->ready.generation);
    kvx_write_u32(out, message->ready.tokens);
    kvx_write_u32(out, message->ready.lease_ms);
    kvx_write_u64(out, message->ready.echo);
    kvx_write_u8(out, message->ready.is_partial ? READY_PARTIAL : 0);
    kvx_write_u8(out, (uint8_t)message->ready.component_count);
    for (uint32_t i = 0; i < message->ready.component_count; i++)
        runs_encode(message->ready.tables[i].runs, message->ready.tables[i].run_count, out);
    kvx_write_u32(out, message->ready.aux.size);
    kvx_write_bytes(out, message->ready.aux.data, message->ready.aux.size);
    return KVX_OK;
}

static kvx_status renew_encode(const kvx_message *message, kvx_buffer *out)
{
    KVX_ENSURE(message->renew.count <= KVX_WIRE_RENEW_MAX, KVX_INVALID);
    kvx_write_u64(out, message->renew.sequence);
    kvx_write_u32(out, message->renew.count);
    for (uint32_t i = 0; i < message->renew.count; i++) {
        kvx_write_u64(out, message->renew.items[i].nonce);
        generation_write(out, &message->renew.items[i].generation);
    }
    return KVX_OK;
}

static kvx_status lease_encode(const kvx_message *message, kvx_buffer *out)
{
    KVX_ENSURE(message->lease.count <= KVX_WIRE_RENEW_MAX, KVX_INVALID);
    kvx_write_u64(out, message->lease.sequence);
    kvx_write_u32(out, message->lease.count);
    for (uint32_t i = 0; i < message->lease.count; i++) {
        KVX_ENSURE(status_is_known(message->lease.items[i].status), KVX_INVALID);
        kvx_write_u64(out, message->lease.items[i].nonce);
        status_write(out, message->lease.items[i].status);
    }
    return KVX_OK;
}

static kvx_status about_encode(const kvx_message *message, kvx_buffer *out)
{
    kvx_write_u64(out, message->about.nonce);
    kvx_write_u64(out, message->about.room);
    generation_write(out, &message->about.generation);
    return KVX_OK;
}

static kvx_status released_encode(const kvx_message *message, kvx_buffer *out)
{
    const kvx_status status = message->released.status;
    const bool may_be_ok = message->type == KVX_MESSAGE_RELEASED;

    KVX_ENSURE(status_is_known(status) && (may_be_ok || status != KVX_OK), KVX_INVALID);
    kvx_write_u64(out, message->released.nonce);
    status_write(out, status);
    return KVX_OK;
}

static kvx_status ping_encode(const kvx_message *message, kvx_buffer *out)
{
    kvx_write_u64(out, message->ping.sequence);
    return KVX_OK;
}

static kvx_status bye_encode(const kvx_message *message, kvx_buffer *out)
{
    (void)message;
    (void)out;
    return KVX_OK;
}

/* Decoding, one function a message. A failed reader is noticed at the end of the frame. */

static kvx_status hello_decode(kvx_reader *in, kvx_message *message)
{
    const size_t size = kvx_reader_left(in);
    const uint8_t *payload = kvx_read_bytes(in, size);

    KVX_ENSURE(size + KVX_WIRE_HEADER_BYTES <= KVX_WIRE_HELLO_MAX, KVX_PROTOCOL);
    return kvx_hello_read(payload, size, &message->hello_in);
}

static kvx_status reject_decode(kvx_reader *in, kvx_message *message)
{
    message->reject.status = status_read(in);
    kvx_read_text(in, message->reject.text, sizeof(message->reject.text));
    return message->reject.status != KVX_OK ? KVX_OK : KVX_PROTOCOL;
}

static kvx_status subscribe_decode(kvx_reader *in, kvx_message *message)
{
    message->subscribe.room = kvx_read_u64(in);
    message->subscribe.nonce = kvx_read_u64(in);
    message->subscribe.reader = kvx_read_u32(in);
    message->subscribe.readers = kvx_read_u32(in);
    message->subscribe.patience_ms = kvx_read_u32(in);
    return message->subscribe.reader < message->subscribe.readers ? KVX_OK : KVX_PROTOCOL;
}

static kvx_status tables_decode(kvx_reader *in, kvx_message *message)
{
    const uint8_t count = kvx_read_u8(in);

    KVX_ENSURE(count <= KVX_COMPONENT_MAX, KVX_PROTOCOL);
    message->ready.component_count = count;
    for (uint32_t i = 0; i < count; i++) {
        kvx_wire_runs *view = &message->ready.tables[i].view;
        view->count = kvx_read_u32(in);
        view->data = kvx_read_bytes(in, (size_t)view->count * RUN_BYTES);
        KVX_ENSURE(view->data != NULL, KVX_PROTOCOL);
    }
    return KVX_OK;
}

static kvx_status ready_decode(kvx_reader *in, kvx_message *message)
{
    message->ready.nonce = kvx_read_u64(in);
    message->ready.room = kvx_read_u64(in);
    message->ready.generation = generation_read(in);
    message->ready.tokens = kvx_read_u32(in);
    message->ready.lease_ms = kvx_read_u32(in);
    message->ready.echo = kvx_read_u64(in);
    const uint8_t flags = kvx_read_u8(in);
    KVX_ENSURE((flags & ~READY_PARTIAL) == 0, KVX_PROTOCOL);
    message->ready.is_partial = flags != 0;
    KVX_TRY(tables_decode(in, message));
    message->ready.aux.size = kvx_read_u32(in);
    KVX_ENSURE(message->ready.aux.size <= KVX_AUX_MAX, KVX_PROTOCOL);
    message->ready.aux.data = kvx_read_bytes(in, message->ready.aux.size);
    return KVX_OK;
}

static kvx_status renew_decode(kvx_reader *in, kvx_message *message)
{
    message->renew.sequence = kvx_read_u64(in);
    message->renew.count = kvx_read_u32(in);
    KVX_ENSURE(message->renew.count <= KVX_WIRE_RENEW_MAX, KVX_PROTOCOL);
    message->renew.view = kvx_read_bytes(in, (size_t)message->renew.count * RENEW_BYTES);
    return KVX_OK;
}

static kvx_status lease_decode(kvx_reader *in, kvx_message *message)
{
    message->lease.sequence = kvx_read_u64(in);
    message->lease.count = kvx_read_u32(in);
    KVX_ENSURE(message->lease.count <= KVX_WIRE_RENEW_MAX, KVX_PROTOCOL);
    message->lease.view = kvx_read_bytes(in, (size_t)message->lease.count * LEASE_BYTES);
    KVX_ENSURE(message->lease.view != NULL, KVX_PROTOCOL);
    for (uint32_t i = 0; i < message->lease.count; i++) {
        const kvx_lease_item item = kvx_wire_lease_at(message->lease.view, i);
        KVX_ENSURE(status_is_known(item.status), KVX_PROTOCOL);
    }
    return KVX_OK;
}

static kvx_status about_decode(kvx_reader *in, kvx_message *message)
{
    message->about.nonce = kvx_read_u64(in);
    message->about.room = kvx_read_u64(in);
    message->about.generation = generation_read(in);
    return KVX_OK;
}

static kvx_status released_decode(kvx_reader *in, kvx_message *message)
{
    message->released.nonce = kvx_read_u64(in);
    message->released.status = status_read(in);
    const bool may_be_ok = message->type == KVX_MESSAGE_RELEASED;
    return may_be_ok || message->released.status != KVX_OK ? KVX_OK : KVX_PROTOCOL;
}

static kvx_status ping_decode(kvx_reader *in, kvx_message *message)
{
    message->ping.sequence = kvx_read_u64(in);
    return KVX_OK;
}

static kvx_status bye_decode(kvx_reader *in, kvx_message *message)
{
    (void)in;
    (void)message;
    return KVX_OK;
}

typedef struct message_codec {
    kvx_status (*encode)(const kvx_message *message, kvx_buffer *out);
    kvx_status (*decode)(kvx_reader *in, kvx_message *message);
} message_codec;

static const message_codec codecs[] = {
    [KVX_MESSAGE_HELLO] = { hello_encode, hello_decode },
    [KVX_MESSAGE_WELCOME] = { hello_encode, hello_decode },
    [KVX_MESSAGE_REJECT] = { reject_encode, reject_decode },
    [KVX_MESSAGE_SUBSCRIBE] = { subscribe_encode, subscribe_decode },
    [KVX_MESSAGE_READY] = { ready_encode, ready_decode },
    [KVX_MESSAGE_RENEW] = { renew_encode, renew_decode },
    [KVX_MESSAGE_LEASE] = { lease_encode, lease_decode },
    [KVX_MESSAGE_RELEASE] = { about_encode, about_decode },
    [KVX_MESSAGE_RELEASED] = { released_encode, released_decode },
    [KVX_MESSAGE_ABORT] = { about_encode, about_decode },
    [KVX_MESSAGE_REVOKE] = { about_encode, about_decode },
    [KVX_MESSAGE_DRAINED] = { about_encode, about_decode },
    [KVX_MESSAGE_FAILED] = { released_encode, released_decode },
    [KVX_MESSAGE_PING] = { ping_encode, ping_decode },
    [KVX_MESSAGE_PONG] = { ping_encode, ping_decode },
    [KVX_MESSAGE_BYE] = { bye_encode, bye_decode },
};

/* NULL: no such message. */
static const message_codec *codec_find(unsigned int type)
{
    if (type == 0 || type >= sizeof(codecs) / sizeof(*codecs))
        return NULL;
    return &codecs[type];
}

static bool is_hello(kvx_message_type type)
{
    return type == KVX_MESSAGE_HELLO || type == KVX_MESSAGE_WELCOME;
}

static void header_write(kvx_message_type type, kvx_buffer *out)
{
    kvx_write_u32(out, 0); /* patched when the length is known */
    kvx_write_u16(out, (uint16_t)type);
    kvx_write_u16(out, FRAME_MAGIC);
}

static kvx_status frame_write(const kvx_message *message, kvx_buffer *out)
{
    const message_codec *codec = codec_find((unsigned int)message->type);
    const uint32_t most = is_hello(message->type) ? KVX_WIRE_HELLO_MAX : KVX_WIRE_FRAME_MAX;
    const size_t before = kvx_buffer_length(out);

    KVX_ENSURE(codec != NULL, KVX_INVALID);
    header_write(message->type, out);
    KVX_TRY(codec->encode(message, out));
    const size_t length = kvx_buffer_length(out) - before;
    KVX_ENSURE(!out->is_failed, KVX_NO_MEMORY);
    KVX_ENSURE(length <= most, KVX_NO_SPACE);
    kvx_patch_u32(out, out->size - length, (uint32_t)length);
    return KVX_OK;
}

kvx_status kvx_wire_encode(const kvx_message *message, kvx_buffer *out)
{
    const size_t before = kvx_buffer_length(out);

    KVX_ENSURE(!out->is_failed, KVX_NO_MEMORY);
    const kvx_status st = frame_write(message, out);
    if (st != KVX_OK) {
        kvx_log(KVX_LOG_ERROR, "wire: %s could not be encoded: %s", kvx_message_name(message->type),
                kvx_status_text(st));
        out->size = out->start + before;
        out->is_failed = false;
    }
    return st;
}

kvx_status kvx_wire_frame_length(
        const uint8_t *data, size_t size, uint32_t frame_max, uint32_t *length_out)
{
    kvx_reader in;

    KVX_ENSURE(size >= KVX_WIRE_HEADER_BYTES, KVX_AGAIN);
    kvx_reader_init(&in, data, KVX_WIRE_HEADER_BYTES);
    const uint32_t length = kvx_read_u32(&in);
    const uint16_t type = kvx_read_u16(&in);
    const uint16_t magic = kvx_read_u16(&in);
    KVX_ENSURE(magic == FRAME_MAGIC && codec_find(type) != NULL, KVX_PROTOCOL);
    KVX_ENSURE(length >= KVX_WIRE_HEADER_BYTES && length <= frame_max, KVX_PROTOCOL);
    *length_out = length;
    return KVX_OK;
}

static kvx_status frame_read(const uint8_t *frame, uint32_t length, kvx_message *message)
{
    kvx_reader in;
    uint32_t stated = 0;

    KVX_ENSURE(kvx_wire_frame_length(frame, length, KVX_WIRE_FRAME_MAX, &stated) == KVX_OK,
            KVX_PROTOCOL);
    KVX_ENSURE(stated == length, KVX_PROTOCOL);
    kvx_reader_init(&in, frame, length);
    (void)kvx_read_u32(&in);
    message->type = (kvx_message_type)kvx_read_u16(&in);
    (void)kvx_read_u16(&in);
    KVX_TRY(codecs[message->type].decode(&in, message));
    /* A hello takes its whole payload, so there is none to give back here. */
    KVX_ENSURE(kvx_reader_is_done(&in), KVX_PROTOCOL);
    return KVX_OK;
}

kvx_status kvx_wire_decode(const uint8_t *frame, uint32_t length, kvx_message *message_out)
{
    kvx_message message = { 0 };

    const kvx_status st = frame_read(frame, length, &message);
    if (st != KVX_OK) {
        kvx_log(KVX_LOG_DEBUG, "wire: %s of %u bytes could not be decoded: %s",
                kvx_message_name(message.type), length, kvx_status_text(st));
        return st;
    }
    *message_out = message;
    return KVX_OK;
}
