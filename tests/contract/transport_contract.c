/* SPDX-License-Identifier: Apache-2.0 */
/* What every transport must do; KVX_TEST_TRANSPORT names the one under test. */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include "contract.h"

#include "transport/domain.h"

TestSuite(transport, .timeout = 60);

/* Fill segments of the given size, with gaps between them. */
static void segments_lay(kvx_segment *segments, uint32_t count, uint8_t *base, uint64_t length)
{
    for (uint32_t i = 0; i < count; i++)
        segments[i] = (kvx_segment){ base + i * (length + 3), length };
}

static void read_in_segments(test_pair *pair, uint64_t id, uint32_t count, uint64_t length)
{
    test_reader *const reader = pair->reader;
    kvx_segment *const segments = calloc(count, sizeof(*segments));
    cr_assert_not_null(segments);
    segments_lay(segments, count, reader->local, length);
    const kvx_read read = {
        .id = id,
        .rkey = pair->rkeys[1],
        .remote_off = 4093,
        .length_bytes = count * length,
        .segments = segments,
        .segment_count = count,
    };
    uint32_t taken = 0;
    memset(reader->local, UNTOUCHED, count * (length + 3));
    cr_assert_eq(reader->ops->get(pair->ep, &read, 1, &taken), KVX_OK);
    cr_assert_eq(taken, 1);
    memset(segments, 0, count * sizeof(*segments)); /* borrowed until get() returned */
    reader_wait(reader, reader->completed_count + 1);
    cr_expect_eq(reader->status[id], KVX_OK);
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *const at = reader->local + i * (length + 3);
        cr_expect(pattern_matches(1, 4093 + i * length, at, length),
                "segment %u of %u, %llu bytes each", i, count, (unsigned long long)length);
        cr_expect_eq(at[length], UNTOUCHED);
    }
    free(segments);
}

Test(transport, a_read_fills_every_segment_and_nothing_else)
{
    test_pair pair = pair_open(NULL);
    const uint32_t most = pair.reader->limits.segments_max;
    const uint32_t counts[] = { 1, 2, 3, 7, 64, 1024 };
    const uint64_t lengths[] = { 1, 3, 127, 509, 4096, 5001 };
    uint64_t id = 0;
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        for (size_t j = 0; j < sizeof(lengths) / sizeof(lengths[0]); j++) {
            if (counts[i] <= most && counts[i] * lengths[j] < REGION_BYTES - 4093)
                read_in_segments(&pair, id++, counts[i], lengths[j]);
        }
    }
    if (most <= LOCAL_BYTES / 16)
        read_in_segments(&pair, id++, most, 11);
    pair_close(&pair);
}

Test(transport, a_whole_region_is_read_at_once)
{
    test_pair pair = pair_open(NULL);
    cr_assert_eq(pair_get(&pair, 0, 0, 0, 5, REGION_BYTES), KVX_OK);
    reader_wait(pair.reader, 1);
    cr_expect_eq(pair.reader->status[0], KVX_OK);
    cr_expect(pattern_matches(0, 0, pair.reader->local + 5, REGION_BYTES));
    cr_expect_eq(pair.reader->local[4], UNTOUCHED);
    cr_expect_eq(pair.reader->local[5 + REGION_BYTES], UNTOUCHED);
    pair_close(&pair);
}

/* Together they are more than any transport should copy in one call. */
Test(transport, long_reads_side_by_side_stay_apart)
{
    test_pair pair = pair_open(NULL);
    for (uint64_t id = 0; id < 7; id++)
        cr_assert_eq(pair_get(&pair, id, id % 2, 0, id * (REGION_BYTES + 1), REGION_BYTES), KVX_OK);
    reader_wait(pair.reader, 7);
    for (uint32_t id = 0; id < 7; id++) {
        const uint8_t *const at = pair.reader->local + id * (REGION_BYTES + 1);
        cr_expect_eq(pair.reader->status[id], KVX_OK);
        cr_expect(pattern_matches(id % 2, 0, at, REGION_BYTES));
        cr_expect_eq(at[REGION_BYTES], UNTOUCHED);
    }
    pair_close(&pair);
}

Test(transport, a_domain_has_an_address_and_no_work_before_the_first_read)
{
    const kvx_transport_ops *const ops = transport_under_test();
    test_reader *const reader = reader_open(ops, NULL);
    uint8_t address[KVX_BLOB_MAX];
    size_t length = 0;
    cr_expect_eq(ops->address(reader->domain, address, sizeof(address), &length), KVX_OK);
    cr_expect(length > 0 && length <= KVX_BLOB_MAX);
    for (size_t size = 0; size < length; size++)
        cr_expect_neq(ops->address(reader->domain, address, size, &(size_t){ 0 }), KVX_OK);
    for (size_t size = 0; size < 8; size++)
        cr_expect_neq(ops->pack_key(reader->mr, address, size, &(size_t){ 0 }), KVX_OK);
    cr_expect(reader->limits.memory_kinds & 1, "host memory is always possible");
    reader_drain(reader);
    cr_expect_eq(ops->arm(reader->domain), KVX_OK);
    ops->unreg(NULL);
    ops->forget_key(NULL);
    ops->close(NULL);
    reader_close(reader);
}

Test(transport, arm_asks_for_progress_while_reads_wait_and_nothing_wakes)
{
    test_pair pair = pair_open(NULL);
    const kvx_transport_ops *const ops = pair.reader->ops;
    cr_assert_eq(pair_get(&pair, 0, 0, 0, 0, 100), KVX_OK);
    if (ops->event_fd(pair.reader->domain) < 0)
        cr_expect_eq(ops->arm(pair.reader->domain), KVX_AGAIN);
    reader_wait(pair.reader, 1);
    reader_drain(pair.reader);
    cr_expect_eq(ops->arm(pair.reader->domain), KVX_OK);
    pair_close(&pair);
}

Test(transport, get_never_completes_by_itself)
{
    test_pair pair = pair_open(NULL);
    for (uint64_t id = 0; id < 100; id++)
        cr_assert_eq(pair_get(&pair, id, 0, id, id * 16, 16), KVX_OK);
    cr_expect_eq(pair.reader->completed_count, 0);
    reader_wait(pair.reader, 100);
    pair_close(&pair);
}

/* Each read takes one byte, so that many fit. */
static uint32_t offer_batch(test_pair *pair, kvx_read *reads, uint32_t from, uint32_t count)
{
    uint32_t taken = 0;
    const kvx_status status = pair->reader->ops->get(pair->ep, reads + from, count - from, &taken);
    cr_assert(status == KVX_OK || status == KVX_AGAIN);
    cr_expect_eq(taken > 0, status == KVX_OK);
    return taken;
}

Test(transport, a_batch_larger_than_the_window_is_taken_in_parts)
{
    test_pair pair = pair_open(NULL);
    test_reader *const reader = pair.reader;
    const uint32_t window = reader->limits.reads_in_flight_max;
    const uint32_t count = window < COMPLETED_MAX / 3 ? 3 * window : COMPLETED_MAX;
    kvx_read *const reads = calloc(count, sizeof(*reads));
    kvx_segment *const segments = calloc(count, sizeof(*segments));
    for (uint32_t i = 0; i < count; i++) {
        segments[i] = (kvx_segment){ reader->local + i, 1 };
        reads[i] = (kvx_read){ .id = i,
            .rkey = pair.rkeys[0],
            .remote_off = i,
            .length_bytes = 1,
            .segments = &segments[i],
            .segment_count = 1 };
    }
    uint32_t taken = offer_batch(&pair, reads, 0, count);
    cr_expect(window >= count || taken <= window);
    uint32_t full_count = 0;
    while (taken < count) {
        const uint32_t more = offer_batch(&pair, reads, taken, count);
        full_count += more == 0;
        taken += more;
        cr_expect_leq(taken - reader->completed_count, window);
        (void)reader_progress(reader);
    }
    reader_wait(reader, count);
    cr_expect(window >= count || full_count > 0, "a full window answers AGAIN");
    cr_expect(pattern_matches(0, 0, reader->local, count));
    pair_close(&pair);
    free(reads);
    free(segments);
}

Test(transport, a_range_outside_the_registration_is_refused)
{
    static const struct {
        uint64_t off;
        uint64_t length;
    } rows[] = {
        { REGION_BYTES, 1 },
        { REGION_BYTES - 1, 2 },
        { 0, REGION_BYTES + 1 },
        { UINT64_MAX, 1 },
        { UINT64_MAX - 15, 16 },
        { UINT64_MAX - 15, 32 },
        { UINT64_C(1) << 63, 4096 },
    };
    test_pair pair = pair_open(NULL);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        cr_expect_eq(
                pair_get(&pair, i, 0, rows[i].off, 0, rows[i].length), KVX_INVALID, "row %zu", i);
    reader_drain(pair.reader);
    cr_expect_eq(pair.reader->completed_count, 0);
    cr_expect_eq(pair.reader->local[0], UNTOUCHED);
    pair_close(&pair);
}

Test(transport, reads_before_a_bad_one_are_taken)
{
    test_pair pair = pair_open(NULL);
    const kvx_segment segment = { pair.reader->local, 8 };
    kvx_read reads[3];
    for (uint32_t i = 0; i < 3; i++)
        reads[i] = (kvx_read){ .id = i,
            .rkey = pair.rkeys[0],
            .length_bytes = 8,
            .segments = &segment,
            .segment_count = 1 };
    reads[1].remote_off = REGION_BYTES;
    uint32_t taken = 77;
    cr_expect_eq(pair.reader->ops->get(pair.ep, reads, 3, &taken), KVX_OK);
    cr_expect_eq(taken, 1);
    cr_expect_eq(pair.reader->ops->get(pair.ep, reads + 1, 2, &taken), KVX_INVALID);
    cr_expect_eq(taken, 1, "outputs are written only on success");
    reader_wait(pair.reader, 1);
    reader_drain(pair.reader);
    cr_expect_eq(pair.reader->completed_count, 1);
    pair_close(&pair);
}

Test(transport, a_malformed_read_is_refused_before_the_transport_sees_it)
{
    test_pair pair = pair_open(NULL);
    const kvx_domain_limits *const limits = &pair.reader->limits;
    uint8_t *const local = pair.reader->local;
    const kvx_segment good[] = { { local, 8 }, { local + 8, 8 } };
    const kvx_segment empty[] = { { local, 16 }, { local, 0 } };
    const kvx_segment huge[] = { { local, UINT64_MAX }, { local, 17 } };
    kvx_read read = {
        .rkey = pair.rkeys[0], .length_bytes = 16, .segments = good, .segment_count = 2
    };
    cr_expect_eq(kvx_read_check(&read, limits), KVX_OK);
    read.segments = empty;
    cr_expect_eq(kvx_read_check(&read, limits), KVX_INVALID);
    read.segments = huge;
    cr_expect_eq(kvx_read_check(&read, limits), KVX_INVALID);
    read.segments = good;
    const uint64_t wrong_bytes[] = { 0, 1, 15, 17, UINT64_MAX };
    for (size_t i = 0; i < sizeof(wrong_bytes) / sizeof(wrong_bytes[0]); i++) {
        read.length_bytes = wrong_bytes[i];
        cr_expect_eq(kvx_read_check(&read, limits), KVX_INVALID);
    }
    read.length_bytes = 16;
    read.segment_count = 0;
    cr_expect_eq(kvx_read_check(&read, limits), KVX_INVALID);
    read.segment_count = limits->segments_max + 1;
    cr_expect_eq(kvx_read_check(&read, limits), KVX_INVALID);
    cr_expect_eq(pair_get(&pair, 0, 0, 0, 0, 0), KVX_INVALID, "a read of nothing");
    pair_close(&pair);
}

Test(transport, a_damaged_key_is_refused)
{
    test_pair pair = pair_open(NULL);
    const kvx_transport_ops *const ops = pair.reader->ops;
    blob key = pair.owner->offer.keys[0];
    kvx_rkey *rkey = NULL;
    for (size_t i = 0; i < key.length; i++) {
        key.data[i] ^= (uint8_t)(1U << (i % 8));
        cr_expect_eq(ops->import_key(pair.ep, key.data, key.length, REGION_BYTES, &rkey),
                KVX_PROTOCOL, "byte %zu", i);
        key.data[i] ^= (uint8_t)(1U << (i % 8));
    }
    for (size_t length = 0; length < key.length; length++)
        cr_expect_eq(ops->import_key(pair.ep, key.data, length, REGION_BYTES, &rkey), KVX_PROTOCOL,
                "length %zu", length);
    cr_expect_eq(
            ops->import_key(pair.ep, key.data, key.length + 1, REGION_BYTES, &rkey), KVX_PROTOCOL);
    cr_expect_eq(
            ops->import_key(pair.ep, key.data, key.length, REGION_BYTES - 1, &rkey), KVX_INVALID);
    cr_expect_null(rkey);
    pair_close(&pair);
}

Test(transport, a_key_of_another_domain_is_refused)
{
    test_pair pair = pair_open(NULL);
    const kvx_transport_ops *const ops = pair.reader->ops;
    blob key;
    kvx_rkey *rkey = NULL;
    cr_assert_eq(ops->pack_key(pair.reader->mr, key.data, sizeof(key.data), &key.length), KVX_OK);
    cr_expect_eq(ops->import_key(pair.ep, key.data, key.length, LOCAL_BYTES, &rkey), KVX_PROTOCOL);
    pair_close(&pair);
}

Test(transport, a_damaged_address_is_refused)
{
    test_pair pair = pair_open(NULL);
    blob address = pair.owner->offer.address;
    char why[256] = "";
    kvx_ep *ep = NULL;
    for (size_t i = 0; i < address.length; i++) {
        address.data[i] ^= (uint8_t)(1U << (i % 8));
        cr_expect_eq(reader_connect(pair.reader, &address, why, sizeof(why), &ep), KVX_PROTOCOL,
                "byte %zu", i);
        address.data[i] ^= (uint8_t)(1U << (i % 8));
    }
    const size_t whole = address.length;
    for (address.length = 0; address.length < whole; address.length++)
        cr_expect_eq(reader_connect(pair.reader, &address, why, sizeof(why), &ep), KVX_PROTOCOL,
                "length %zu", address.length);
    cr_expect_neq(why[0], '\0', "a refusal says why");
    cr_expect_null(ep);
    pair_close(&pair);
}
