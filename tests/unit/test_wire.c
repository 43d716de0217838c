/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>

#include "fuzz/reencode.h"
#include "unit/wire_samples.h"

enum { FIRST_TYPE = KVX_MESSAGE_HELLO, LAST_TYPE = KVX_MESSAGE_BYE };

static kvx_status encode(const kvx_message *message, kvx_buffer *out)
{
    kvx_buffer_reset(out);
    return kvx_wire_encode(message, out);
}

static bool is_hello(kvx_message_type type)
{
    return type == KVX_MESSAGE_HELLO || type == KVX_MESSAGE_WELCOME;
}

static void expect_same_generation(kvx_generation a, kvx_generation b)
{
    cr_assert_eq(a.epoch, b.epoch);
    cr_assert_eq(a.counter, b.counter);
}

static void expect_same_ready(const kvx_message *sent, const kvx_message *came)
{
    cr_assert_eq(sent->ready.nonce, came->ready.nonce);
    cr_assert_eq(sent->ready.room, came->ready.room);
    expect_same_generation(sent->ready.generation, came->ready.generation);
    cr_assert_eq(sent->ready.tokens, came->ready.tokens);
    cr_assert_eq(sent->ready.lease_ms, came->ready.lease_ms);
    cr_assert_eq(sent->ready.echo, came->ready.echo);
    cr_assert_eq(sent->ready.is_partial, came->ready.is_partial);
    cr_assert_eq(sent->ready.component_count, came->ready.component_count);
    for (uint32_t i = 0; i < sent->ready.component_count; i++) {
        const kvx_wire_runs *view = &came->ready.tables[i].view;
        cr_assert_eq(sent->ready.tables[i].run_count, view->count);
        for (uint32_t j = 0; j < view->count; j++) {
            const kvx_page_run run = kvx_wire_run_at(view, j);
            cr_assert_eq(sent->ready.tables[i].runs[j].first, run.first);
            cr_assert_eq(sent->ready.tables[i].runs[j].count, run.count);
        }
    }
    cr_assert_eq(sent->ready.aux.size, came->ready.aux.size);
    if (sent->ready.aux.size > 0)
        cr_assert_arr_eq(sent->ready.aux.data, came->ready.aux.data, sent->ready.aux.size);
}

static void expect_same_lists(const kvx_message *sent, const kvx_message *came)
{
    cr_assert_eq(sent->renew.sequence, came->renew.sequence);
    cr_assert_eq(sent->renew.count, came->renew.count);
    for (uint32_t i = 0; sent->type == KVX_MESSAGE_RENEW && i < sent->renew.count; i++) {
        const kvx_renew_item item = kvx_wire_renew_at(came->renew.view, i);
        cr_assert_eq(sent->renew.items[i].nonce, item.nonce);
        expect_same_generation(sent->renew.items[i].generation, item.generation);
    }
    for (uint32_t i = 0; sent->type == KVX_MESSAGE_LEASE && i < sent->lease.count; i++) {
        const kvx_lease_item item = kvx_wire_lease_at(came->lease.view, i);
        cr_assert_eq(sent->lease.items[i].nonce, item.nonce);
        cr_assert_eq(sent->lease.items[i].status, item.status);
    }
}

static void expect_same_subscribe(const kvx_message *sent, const kvx_message *came)
{
    cr_assert_eq(sent->subscribe.room, came->subscribe.room);
    cr_assert_eq(sent->subscribe.nonce, came->subscribe.nonce);
    cr_assert_eq(sent->subscribe.reader, came->subscribe.reader);
    cr_assert_eq(sent->subscribe.readers, came->subscribe.readers);
    cr_assert_eq(sent->subscribe.patience_ms, came->subscribe.patience_ms);
}

/* Hellos are compared in test_hello.c. */
static void expect_same(const kvx_message *sent, const kvx_message *came)
{
    const kvx_message_type type = sent->type;

    cr_assert_eq(type, came->type);
    if (type == KVX_MESSAGE_READY) {
        expect_same_ready(sent, came);
    } else if (type == KVX_MESSAGE_RENEW || type == KVX_MESSAGE_LEASE) {
        expect_same_lists(sent, came);
    } else if (type == KVX_MESSAGE_SUBSCRIBE) {
        expect_same_subscribe(sent, came);
    } else if (type == KVX_MESSAGE_REJECT) {
        cr_assert_eq(sent->reject.status, came->reject.status);
        cr_assert_str_eq(sent->reject.text, came->reject.text);
    } else if (type == KVX_MESSAGE_RELEASED || type == KVX_MESSAGE_FAILED) {
        cr_assert_eq(sent->released.nonce, came->released.nonce);
        cr_assert_eq(sent->released.status, came->released.status);
    } else if (type == KVX_MESSAGE_PING || type == KVX_MESSAGE_PONG) {
        cr_assert_eq(sent->ping.sequence, came->ping.sequence);
    } else if (!is_hello(type) && type != KVX_MESSAGE_BYE) {
        cr_assert_eq(sent->about.nonce, came->about.nonce);
        cr_assert_eq(sent->about.room, came->about.room);
        expect_same_generation(sent->about.generation, came->about.generation);
    }
}

Test(wire, every_message_comes_back_as_it_was_sent)
{
    uint64_t state = test_seed();
    kvx_buffer out = { 0 };
    kvx_buffer again = { 0 };

    for (uint64_t round = 0; round < test_rounds(300); round++) {
        for (uint32_t type = FIRST_TYPE; type <= LAST_TYPE; type++) {
            sample_tables tables;
            kvx_message came = { 0 };
            kvx_message sent = sample_message((kvx_message_type)type, &state, &tables);
            cr_assert_eq(encode(&sent, &out), KVX_OK);
            cr_assert_eq(kvx_wire_decode(out.data, (uint32_t)out.size, &came), KVX_OK);
            expect_same(&sent, &came);
            kvx_buffer_reset(&again);
            cr_assert_eq(reencode(&came, &again), KVX_OK);
            cr_assert_eq(again.size, out.size);
            cr_assert_arr_eq(again.data, out.data, out.size);
            sample_message_end(&came);
            sample_message_end(&sent);
        }
    }
    kvx_buffer_fini(&again);
    kvx_buffer_fini(&out);
}

static void put_length(uint8_t *frame, uint32_t length)
{
    for (uint32_t i = 0; i < 4; i++)
        frame[i] = (uint8_t)(length >> (8 * i));
}

/* Decode an exact copy, so that a sanitizer sees a read past its end. */
static kvx_status decode_copy(const uint8_t *frame, size_t size)
{
    kvx_message came = { 0 };
    uint8_t *copy = malloc(size + 1);

    cr_assert_not_null(copy);
    memcpy(copy + 1, frame, size);
    const kvx_status st = kvx_wire_decode(copy + 1, (uint32_t)size, &came);
    if (st == KVX_OK)
        sample_message_end(&came);
    free(copy);
    return st;
}

Test(wire, every_truncation_of_every_message_is_refused)
{
    uint64_t state = test_seed();
    kvx_buffer out = { 0 };

    for (uint32_t type = FIRST_TYPE; type <= LAST_TYPE; type++) {
        sample_tables tables;
        kvx_message sent = sample_message((kvx_message_type)type, &state, &tables);
        cr_assert_eq(encode(&sent, &out), KVX_OK);
        for (uint32_t size = 0; size < out.size; size++) {
            cr_expect_eq(decode_copy(out.data, size), KVX_PROTOCOL);
            if (size < KVX_WIRE_HEADER_BYTES)
                continue;
            put_length(out.data, size);
            cr_expect_eq(decode_copy(out.data, size), KVX_PROTOCOL, "%s of %u bytes",
                    kvx_message_name((kvx_message_type)type), size);
            put_length(out.data, (uint32_t)out.size);
        }
        sample_message_end(&sent);
    }
    kvx_buffer_fini(&out);
}

Test(wire, a_byte_too_many_is_refused_in_every_message)
{
    uint64_t state = test_seed();
    kvx_buffer out = { 0 };

    for (uint32_t type = FIRST_TYPE; type <= LAST_TYPE; type++) {
        sample_tables tables;
        kvx_message sent = sample_message((kvx_message_type)type, &state, &tables);
        cr_assert_eq(encode(&sent, &out), KVX_OK);
        kvx_write_u8(&out, 0);
        put_length(out.data, (uint32_t)out.size);
        cr_expect_eq(decode_copy(out.data, out.size), KVX_PROTOCOL, "%s",
                kvx_message_name((kvx_message_type)type));
        sample_message_end(&sent);
    }
    kvx_buffer_fini(&out);
}

Test(wire, flipped_bits_never_crash_and_what_decodes_is_canonical)
{
    uint64_t state = test_seed();
    kvx_buffer out = { 0 };
    kvx_buffer again = { 0 };

    for (uint64_t round = 0; round < test_rounds(3000); round++) {
        sample_tables tables;
        kvx_message came = { 0 };
        const uint32_t type = FIRST_TYPE + sample_below(&state, LAST_TYPE);
        kvx_message sent = sample_message((kvx_message_type)type, &state, &tables);
        cr_assert_eq(encode(&sent, &out), KVX_OK);
        for (uint32_t flips = 1 + sample_below(&state, 3); flips > 0; flips--)
            out.data[sample_below(&state, (uint32_t)out.size)] ^=
                    (uint8_t)(1u << sample_below(&state, 8));
        if (kvx_wire_decode(out.data, (uint32_t)out.size, &came) == KVX_OK) {
            kvx_buffer_reset(&again);
            if (!is_hello(came.type) || came.hello->version_min <= KVX_WIRE_VERSION_MAX) {
                cr_assert_eq(reencode(&came, &again), KVX_OK);
                cr_assert_eq(again.size, out.size);
                cr_assert_arr_eq(again.data, out.data, out.size);
            }
            sample_message_end(&came);
        }
        sample_message_end(&sent);
    }
    kvx_buffer_fini(&again);
    kvx_buffer_fini(&out);
}

Test(wire, the_first_frame_of_a_stream_is_measured_by_its_header)
{
    const kvx_message ping = { .type = KVX_MESSAGE_PING, .ping = { .sequence = 7 } };
    kvx_buffer out = { 0 };
    uint32_t length = 99;

    cr_assert_eq(kvx_wire_encode(&ping, &out), KVX_OK);
    cr_assert_eq(kvx_wire_encode(&ping, &out), KVX_OK);
    for (size_t size = 0; size < KVX_WIRE_HEADER_BYTES; size++)
        cr_expect_eq(kvx_wire_frame_length(out.data, size, 64, &length), KVX_AGAIN);
    cr_expect_eq(length, 99u);
    cr_expect_eq(kvx_wire_frame_length(out.data, out.size, 15, &length), KVX_PROTOCOL);
    cr_expect_eq(length, 99u);
    cr_expect_eq(kvx_wire_frame_length(out.data, 8, 16, &length), KVX_OK);
    cr_expect_eq(length, 16u);
    cr_expect_eq(out.size, (size_t)32);
    kvx_buffer_fini(&out);
}

Test(wire, a_header_that_is_not_ours_is_refused)
{
    static const struct {
        const char *what;
        uint8_t header[KVX_WIRE_HEADER_BYTES];
    } rows[] = {
        { "another protocol", { 'G', 'E', 'T', ' ', '/', ' ', 'H', 'T' } },
        { "no such type", { 8, 0, 0, 0, 17, 0, 'K', 'V' } },
        { "type 0", { 8, 0, 0, 0, 0, 0, 'K', 'V' } },
        { "shorter than its header", { 7, 0, 0, 0, KVX_MESSAGE_BYE, 0, 'K', 'V' } },
        { "longer than 16 MiB", { 1, 0, 0, 1, KVX_MESSAGE_BYE, 0, 'K', 'V' } },
        { "another magic", { 8, 0, 0, 0, KVX_MESSAGE_BYE, 0, 'K', 'W' } },
    };
    uint32_t length = 0;

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        cr_expect_eq(kvx_wire_frame_length(rows[i].header, 8, KVX_WIRE_FRAME_MAX, &length),
                KVX_PROTOCOL, "%s", rows[i].what);
        cr_expect_eq(decode_copy(rows[i].header, 8), KVX_PROTOCOL, "%s", rows[i].what);
    }
}

Test(wire, what_would_not_decode_is_not_encoded_and_leaves_the_buffer_alone)
{
    static const kvx_lease_item unknown = { .nonce = 1, .status = (kvx_status)-9 };
    static const uint8_t aux[KVX_AUX_MAX + 1];
    const kvx_message rows[] = {
        { .type = (kvx_message_type)0 },
        { .type = (kvx_message_type)17 },
        { .type = KVX_MESSAGE_REJECT, .reject = { .status = KVX_OK } },
        { .type = KVX_MESSAGE_SUBSCRIBE, .subscribe = { .reader = 2, .readers = 2 } },
        { .type = KVX_MESSAGE_READY, .ready = { .component_count = KVX_COMPONENT_MAX + 1 } },
        { .type = KVX_MESSAGE_READY, .ready = { .aux = { aux, KVX_AUX_MAX + 1 } } },
        { .type = KVX_MESSAGE_RENEW, .renew = { .count = KVX_WIRE_RENEW_MAX + 1 } },
        { .type = KVX_MESSAGE_LEASE, .lease = { .count = KVX_WIRE_RENEW_MAX + 1 } },
        { .type = KVX_MESSAGE_LEASE, .lease = { .count = 1, .items = &unknown } },
        { .type = KVX_MESSAGE_FAILED, .released = { .status = KVX_OK } },
        { .type = KVX_MESSAGE_RELEASED, .released = { .status = (kvx_status)1 } },
    };
    kvx_buffer out = { 0 };

    kvx_write_u32(&out, 0x12345678);
    kvx_write_u32(&out, 42);
    kvx_buffer_consume(&out, 4);
    const size_t before = kvx_buffer_length(&out);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        cr_expect_eq(kvx_wire_encode(&rows[i], &out), KVX_INVALID, "row %zu", i);
        cr_expect_not(out.is_failed);
        cr_expect_eq(kvx_buffer_length(&out), before);
        cr_expect_eq(kvx_load_u32(out.data + out.start), 42u);
    }
    kvx_buffer_fini(&out);
}

Test(wire, a_table_over_the_frame_limit_has_no_space_and_is_not_even_read)
{
    static const kvx_page_run run = { 0, 1 };
    kvx_message message = { .type = KVX_MESSAGE_READY, .ready = { .component_count = 1 } };
    kvx_buffer out = { 0 };

    message.ready.tables[0].runs = &run;
    message.ready.tables[0].run_count = UINT32_MAX;
    cr_expect_eq(kvx_wire_encode(&message, &out), KVX_NO_SPACE);
    cr_expect_eq(kvx_buffer_length(&out), (size_t)0);
    kvx_buffer_fini(&out);
}

Test(wire, a_table_just_over_the_frame_limit_has_no_space_and_one_that_fits_is_sent)
{
    const uint32_t most = KVX_WIRE_FRAME_MAX / 8;
    kvx_page_run *runs = calloc(most, sizeof(*runs));
    kvx_message message = { .type = KVX_MESSAGE_READY, .ready = { .component_count = 1 } };
    kvx_message came = { 0 };
    kvx_buffer out = { 0 };

    cr_assert_not_null(runs);
    message.ready.tables[0].runs = runs;
    message.ready.tables[0].run_count = most;
    cr_expect_eq(kvx_wire_encode(&message, &out), KVX_NO_SPACE);
    cr_expect_eq(kvx_buffer_length(&out), (size_t)0);
    message.ready.tables[0].run_count = most - 16;
    cr_assert_eq(kvx_wire_encode(&message, &out), KVX_OK);
    cr_assert_eq(kvx_wire_decode(out.data, (uint32_t)out.size, &came), KVX_OK);
    cr_expect_eq(came.ready.tables[0].view.count, most - 16);
    kvx_buffer_fini(&out);
    free(runs);
}

Test(wire, a_buffer_at_its_limit_is_left_as_before)
{
    const kvx_message ping = { .type = KVX_MESSAGE_PING, .ping = { .sequence = 7 } };
    kvx_buffer out = { .limit = 40 };

    cr_assert_eq(kvx_wire_encode(&ping, &out), KVX_OK);
    cr_assert_eq(kvx_wire_encode(&ping, &out), KVX_OK);
    cr_expect_eq(kvx_wire_encode(&ping, &out), KVX_NO_MEMORY);
    cr_expect_eq(kvx_buffer_length(&out), (size_t)32);
    cr_expect_not(out.is_failed);
    kvx_buffer_consume(&out, 16);
    cr_expect_eq(kvx_wire_encode(&ping, &out), KVX_OK);
    kvx_buffer_fini(&out);
}

Test(wire, a_failed_buffer_takes_no_message)
{
    const kvx_message ping = { .type = KVX_MESSAGE_PING };
    kvx_buffer out = { .is_failed = true };

    cr_expect_eq(kvx_wire_encode(&ping, &out), KVX_NO_MEMORY);
    cr_expect(out.is_failed);
    kvx_buffer_fini(&out);
}

Test(wire, full_lists_are_taken_and_longer_ones_are_refused)
{
    kvx_renew_item *items = calloc(KVX_WIRE_RENEW_MAX, sizeof(*items));
    const kvx_message message = { .type = KVX_MESSAGE_RENEW,
        .renew = { .items = items, .count = KVX_WIRE_RENEW_MAX } };
    kvx_buffer out = { 0 };

    cr_assert_not_null(items);
    cr_assert_eq(kvx_wire_encode(&message, &out), KVX_OK);
    cr_expect_eq(decode_copy(out.data, out.size), KVX_OK);
    /* One more item, and the count that says so. */
    for (uint32_t i = 0; i < 3; i++)
        kvx_write_u64(&out, 0);
    put_length(out.data, (uint32_t)out.size);
    put_length(out.data + KVX_WIRE_HEADER_BYTES + 8, KVX_WIRE_RENEW_MAX + 1);
    cr_expect_eq(decode_copy(out.data, out.size), KVX_PROTOCOL);
    kvx_buffer_fini(&out);
    free(items);
}

/* Replace one byte of an encoded message, given its offset in the payload. */
static kvx_status decode_damaged(const kvx_message *message, size_t payload_off, uint8_t byte)
{
    kvx_buffer out = { 0 };

    cr_assert_eq(kvx_wire_encode(message, &out), KVX_OK);
    cr_assert_lt(KVX_WIRE_HEADER_BYTES + payload_off, out.size);
    out.data[KVX_WIRE_HEADER_BYTES + payload_off] = byte;
    const kvx_status st = decode_copy(out.data, out.size);
    kvx_buffer_fini(&out);
    return st;
}

Test(wire, values_that_nobody_sends_are_refused)
{
    kvx_message reject = { .type = KVX_MESSAGE_REJECT, .reject = { .status = KVX_GONE } };
    const kvx_message released = { .type = KVX_MESSAGE_RELEASED };
    const kvx_message failed = { .type = KVX_MESSAGE_FAILED, .released = { .status = KVX_GONE } };
    const kvx_message ready = { .type = KVX_MESSAGE_READY };
    const kvx_message subscribe = { .type = KVX_MESSAGE_SUBSCRIBE, .subscribe = { .readers = 1 } };
    static const kvx_lease_item item = { .nonce = 1, .status = KVX_OK };
    const kvx_message lease = { .type = KVX_MESSAGE_LEASE, .lease = { .items = &item, .count = 1 } };

    (void)snprintf(reject.reject.text, sizeof(reject.reject.text), "text");
    cr_expect_eq(decode_damaged(&reject, 7, 0x00), KVX_PROTOCOL); /* a zero inside a string */
    cr_expect_eq(decode_damaged(&reject, 7, 0x1B), KVX_PROTOCOL); /* a control character */
    cr_expect_eq(decode_damaged(&reject, 7, 0xFF), KVX_PROTOCOL); /* not UTF-8 */
    cr_expect_eq(decode_damaged(&reject, 7, 'x'), KVX_OK);
    cr_expect_eq(decode_damaged(&released, 8, 1), KVX_PROTOCOL);  /* no such status */
    cr_expect_eq(decode_damaged(&failed, 8, 0xF7), KVX_PROTOCOL); /* -9, neither */
    cr_expect_eq(decode_damaged(&ready, 48, 2), KVX_PROTOCOL);    /* unknown flag */
    cr_expect_eq(decode_damaged(&ready, 48, 1), KVX_OK);
    cr_expect_eq(decode_damaged(&ready, 49, 9), KVX_PROTOCOL);     /* components */
    cr_expect_eq(decode_damaged(&ready, 52, 2), KVX_PROTOCOL);     /* aux of 128 KiB */
    cr_expect_eq(decode_damaged(&subscribe, 16, 1), KVX_PROTOCOL); /* reader 1 of 1 */
    cr_expect_eq(decode_damaged(&lease, 20, 5), KVX_PROTOCOL);
}

Test(wire, a_reject_text_is_cut_before_half_a_character)
{
    kvx_message message = { .type = KVX_MESSAGE_REJECT, .reject = { .status = KVX_MISMATCH } };
    kvx_message came = { 0 };
    kvx_buffer out = { 0 };

    (void)snprintf(message.reject.text, sizeof(message.reject.text), "caf\xC3");
    cr_assert_eq(kvx_wire_encode(&message, &out), KVX_OK);
    cr_assert_eq(kvx_wire_decode(out.data, (uint32_t)out.size, &came), KVX_OK);
    cr_expect_str_eq(came.reject.text, "caf");
    kvx_buffer_fini(&out);
}

Test(wire, every_message_has_a_name)
{
    cr_expect_str_eq(kvx_message_name(KVX_MESSAGE_HELLO), "HELLO");
    cr_expect_str_eq(kvx_message_name(KVX_MESSAGE_DRAINED), "DRAINED");
    cr_expect_str_eq(kvx_message_name(KVX_MESSAGE_BYE), "BYE");
    cr_expect_str_eq(kvx_message_name((kvx_message_type)0), "UNKNOWN");
    cr_expect_str_eq(kvx_message_name((kvx_message_type)17), "UNKNOWN");
    cr_expect_str_eq(kvx_message_name((kvx_message_type)-1), "UNKNOWN");
}
