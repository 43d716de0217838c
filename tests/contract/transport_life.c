/* SPDX-License-Identifier: Apache-2.0 */
/* What every transport must do when ends go away, and under random reads. */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include "contract.h"
#include "seed.h"

TestSuite(transport_life, .timeout = 120);

static bool is_untouched(const uint8_t *bytes, uint64_t length)
{
    for (uint64_t i = 0; i < length; i++) {
        if (bytes[i] != UNTOUCHED)
            return false;
    }
    return true;
}

Test(transport_life, after_disconnect_nothing_is_written_and_nothing_completes)
{
    test_pair pair = pair_open(NULL);
    test_reader *const reader = pair.reader;
    for (uint64_t id = 0; id < 50; id++)
        cr_assert_eq(pair_get(&pair, id, 0, id * 4096, id * 65536, 65536), KVX_OK);
    (void)reader_progress(reader);
    while (reader->ops->disconnect(pair.ep) == KVX_AGAIN)
        (void)reader_progress(reader);
    pair.ep = NULL;

    const uint32_t completed_count = reader->completed_count;
    memset(reader->local, UNTOUCHED, LOCAL_BYTES);
    reader_drain(reader);
    cr_expect_eq(reader->completed_count, completed_count);
    cr_expect(is_untouched(reader->local, LOCAL_BYTES));
    pair_close(&pair);
}

/* Post reads of four segments until the window is full; returns how many. */
static uint32_t fill_window(test_pair *pair)
{
    kvx_segment segments[4];
    const uint32_t most = pair->reader->limits.segments_max;
    const uint32_t count = most < 4 ? most : 4;
    for (uint32_t i = 0; i < count; i++)
        segments[i] = (kvx_segment){ pair->reader->local + 8 * i, 8 };
    const kvx_read read = { .rkey = pair->rkeys[0],
        .length_bytes = 8 * (uint64_t)count,
        .segments = segments,
        .segment_count = count };
    uint32_t posted = 0;
    uint32_t taken = 0;
    while (pair->reader->ops->get(pair->ep, &read, 1, &taken) == KVX_OK)
        posted += taken;
    return posted;
}

static void connect_again(test_pair *pair)
{
    test_reader *const reader = pair->reader;
    char why[256] = "";
    for (uint32_t i = 0; i < REGION_COUNT; i++)
        reader->ops->forget_key(pair->rkeys[i]);
    while (reader->ops->disconnect(pair->ep) == KVX_AGAIN)
        (void)reader_progress(reader);
    cr_assert_eq(reader_connect(reader, &pair->owner->offer.address, why, sizeof(why), &pair->ep),
            KVX_OK, "%s", why);
    for (uint32_t i = 0; i < REGION_COUNT; i++) {
        const blob *const key = &pair->owner->offer.keys[i];
        cr_assert_eq(reader->ops->import_key(
                             pair->ep, key->data, key->length, REGION_BYTES, &pair->rkeys[i]),
                KVX_OK);
    }
}

Test(transport_life, a_window_filled_and_dropped_is_whole_again)
{
    test_pair pair = pair_open(NULL);
    const uint32_t window = fill_window(&pair);
    cr_expect(window > 0 && window <= pair.reader->limits.reads_in_flight_max);
    for (int round = 0; round < 8; round++) {
        connect_again(&pair);
        cr_expect_eq(fill_window(&pair), window, "round %d", round);
    }
    pair_close(&pair);
}

Test(transport_life, endpoints_to_one_peer_are_independent)
{
    test_pair pair = pair_open(NULL);
    test_reader *const reader = pair.reader;
    const blob *const key = &pair.owner->offer.keys[1];
    kvx_ep *other = NULL;
    kvx_rkey *rkey = NULL;
    char why[256] = "";
    cr_assert_eq(reader_connect(reader, &pair.owner->offer.address, why, sizeof(why), &other),
            KVX_OK, "%s", why);
    cr_assert_eq(
            reader->ops->import_key(other, key->data, key->length, REGION_BYTES, &rkey), KVX_OK);
    uint32_t taken = 0;
    const kvx_segment segment = { reader->local, 1000 };
    const kvx_read read = { .id = 1,
        .rkey = rkey,
        .remote_off = 3,
        .length_bytes = 1000,
        .segments = &segment,
        .segment_count = 1 };
    cr_expect_eq(reader->ops->get(pair.ep, &read, 1, &taken), KVX_INVALID,
            "a key belongs to the endpoint it was imported for");
    cr_assert_eq(reader->ops->get(other, &read, 1, &taken), KVX_OK);
    cr_assert_eq(pair_get(&pair, 2, 0, 0, 2000, 100), KVX_OK);
    reader->ops->forget_key(pair.rkeys[0]);
    reader->ops->forget_key(pair.rkeys[1]);
    memset(pair.rkeys, 0, sizeof(pair.rkeys));
    while (reader->ops->disconnect(pair.ep) == KVX_AGAIN)
        (void)reader_progress(reader);
    pair.ep = NULL;
    reader_drain(reader);
    cr_expect_eq(reader->times[1], 1);
    cr_expect_eq(reader->status[1], KVX_OK);
    cr_expect(pattern_matches(1, 3, reader->local, 1000));
    reader->ops->forget_key(rkey);
    while (reader->ops->disconnect(other) == KVX_AGAIN)
        (void)reader_progress(reader);
    pair_close(&pair);
}

Test(transport_life, memory_can_be_registered_again)
{
    test_pair pair = pair_open(NULL);
    test_reader *const reader = pair.reader;
    cr_assert(owner_order(pair.owner, ORDER_REGISTER));
    for (uint32_t i = 0; i < REGION_COUNT; i++) {
        const blob *const key = &pair.owner->offer.keys[i];
        reader->ops->forget_key(pair.rkeys[i]);
        cr_assert_eq(reader->ops->import_key(
                             pair.ep, key->data, key->length, REGION_BYTES, &pair.rkeys[i]),
                KVX_OK);
    }
    cr_assert_eq(pair_get(&pair, 0, 1, 77, 0, 50000), KVX_OK);
    reader_wait(reader, 1);
    cr_expect_eq(reader->status[0], KVX_OK);
    cr_expect(pattern_matches(1, 77, reader->local, 50000));
    pair_close(&pair);
}

/* Reads that were accepted end, each once, and none that failed left foreign bytes. */
static void expect_lost(test_reader *reader, uint32_t count, uint64_t length)
{
    reader_wait(reader, count);
    for (uint32_t id = 0; id < count; id++) {
        const uint8_t *const at = reader->local + id * length;
        const kvx_status status = reader->status[id];
        cr_expect_eq(reader->times[id], 1);
        cr_expect(status == KVX_OK || status == KVX_PEER_LOST);
        if (status == KVX_OK)
            cr_expect(pattern_matches(0, id * length, at, length));
        for (uint64_t i = 0; i < length; i++)
            cr_assert(at[i] == UNTOUCHED || at[i] == pattern_at(0, id * length + i));
    }
    cr_expect_eq(reader->status[count - 1], KVX_PEER_LOST);
}

static void post_many(test_pair *pair, uint32_t count, uint64_t length)
{
    for (uint32_t id = 0; id < count; id++)
        cr_assert_eq(pair_get(pair, id, 0, id * length, id * length, length), KVX_OK);
}

static void expect_no_way_back(test_pair *pair)
{
    char why[256] = "";
    kvx_ep *ep = NULL;
    cr_expect_eq(pair_get(pair, 0, 0, 0, 0, 8), KVX_PEER_LOST);
    cr_expect_eq(reader_connect(pair->reader, &pair->owner->offer.address, why, sizeof(why), &ep),
            KVX_UNREACHABLE);
    cr_expect_neq(why[0], '\0');
}

Test(transport_life, a_closed_owner_loses_its_readers)
{
    test_pair pair = pair_open(NULL);
    post_many(&pair, 500, 2000);
    cr_assert(owner_order(pair.owner, ORDER_CLOSE));
    expect_lost(pair.reader, 500, 2000);
    expect_no_way_back(&pair);
    pair_close(&pair);
}

Test(transport_life, a_killed_owner_loses_its_readers)
{
    test_pair pair = pair_open(NULL);
    if (pair.owner->pid == 0) {
        pair_close(&pair);
        cr_skip_test("the transport reaches its own process only");
    }
    post_many(&pair, 500, 2000);
    owner_kill(pair.owner);
    expect_lost(pair.reader, 500, 2000);
    expect_no_way_back(&pair);
    pair_close(&pair);
}

#define REPLAY_READS 6000

/* What one random read was to do. */
typedef struct expectation {
    uint32_t region;
    uint64_t remote_off;
    uint64_t local_off;
    uint64_t length;
} expectation;

/* Draw a read into a piece of local memory of its own; its segments leave gaps of one byte. */
static kvx_read draw(test_pair *pair, uint64_t *state, uint64_t id, kvx_segment *segments,
        expectation *plan, uint64_t slot_bytes)
{
    const uint32_t count = 1 + (uint32_t)(test_random(state) % 9);
    uint8_t *at = pair->reader->local + id * slot_bytes;
    *plan = (expectation){ .region = (uint32_t)(test_random_below(state, REGION_COUNT)),
        .local_off = id * slot_bytes };
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t length = 1 + test_random(state) % (slot_bytes / count - 1);
        segments[i] = (kvx_segment){ at, length };
        at += length + test_random(state) % 2;
        plan->length += length;
    }
    plan->remote_off = test_random(state) % (REGION_BYTES - plan->length);
    return (kvx_read){ .id = id,
        .rkey = pair->rkeys[plan->region],
        .remote_off = plan->remote_off,
        .length_bytes = plan->length,
        .segments = segments,
        .segment_count = count };
}

static void verify(const expectation *plan, const kvx_segment *segments, const kvx_read *read)
{
    uint64_t off = plan->remote_off;
    for (uint32_t i = 0; i < read->segment_count; i++) {
        cr_expect(pattern_matches(plan->region, off, segments[i].base, segments[i].length_bytes));
        off += segments[i].length_bytes;
    }
}

static void replay_random_reads(const char *const *settings)
{
    test_pair pair = pair_open(settings);
    test_reader *const reader = pair.reader;
    uint64_t state = test_seed();
    const uint64_t slot_bytes = LOCAL_BYTES / REPLAY_READS;
    kvx_segment(*segments)[9] = calloc(REPLAY_READS, sizeof(*segments));
    expectation *const plans = calloc(REPLAY_READS, sizeof(*plans));
    kvx_read *const reads = calloc(REPLAY_READS, sizeof(*reads));
    for (uint64_t id = 0; id < REPLAY_READS; id++)
        reads[id] = draw(&pair, &state, id, segments[id], &plans[id], slot_bytes);
    for (uint32_t posted = 0; posted < REPLAY_READS;) {
        const uint32_t most = REPLAY_READS - posted;
        const uint32_t count = 1 + (uint32_t)(test_random(&state) % (most < 300 ? most : 300));
        uint32_t taken = 0;
        if (reader->ops->get(pair.ep, reads + posted, count, &taken) == KVX_OK)
            posted += taken;
        if (test_random(&state) % 3 != 0)
            (void)reader_progress(reader);
    }
    reader_wait(reader, REPLAY_READS);
    for (uint64_t id = 0; id < REPLAY_READS; id++) {
        cr_expect_eq(reader->status[id], KVX_OK);
        verify(&plans[id], segments[id], &reads[id]);
    }
    pair_close(&pair);
    free(segments);
    free(plans);
    free(reads);
}

Test(transport_life, random_reads_bring_the_right_bytes)
{
    replay_random_reads(NULL);
}

/* Settings of cma; other transports do not ask for them. */
Test(transport_life, random_reads_survive_calls_of_few_entries)
{
    static const char *const tight[] = { "call_entries", "3", NULL };
    replay_random_reads(tight);
}

Test(transport_life, random_reads_survive_calls_of_few_bytes)
{
    static const char *const tight[] = { "call_bytes", "4KiB", NULL };
    replay_random_reads(tight);
}
