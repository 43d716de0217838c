/* SPDX-License-Identifier: Apache-2.0 */
/* What an engine may do with rooms, over each transport: readers early, late, two and none, parts
 * of a room, ends from both sides in each state. What was not delivered is not in its pages. */
#include "integration/api_owner.h"

#include <poll.h>

#define PAGES 40 /* of a room; with the small window a pull takes many rounds */

static const char *const short_lives[][2] = { { "lease_ms", "400" }, { "ping_ms", "50" },
    { "fence_ms", "150" }, { "drain_ms", "20" }, { "close_ms", "100" }, { "margin_ms", "20" },
    { "hold_ms", "300" }, { "peer_timeout_ms", "20000" }, { NULL, NULL } };

static kvx_page from[WORLD_PAGES];
static kvx_page to[WORLD_PAGES];

static void setup(void)
{
    world_log_keep();
    world_pages(from, WORLD_PAGES, 0, 1);
    world_pages(to, WORLD_PAGES, 5, 27); /* 27 and 64 have no common factor */
}

static void start(const api_transport *transport, const char *const settings[][2],
        api_owner **owner, api_reader *reader)
{
    *owner = api_owner_start(transport, settings);
    api_reader_open(reader, transport, *owner, settings);
}

static void finish(api_owner **owner, api_reader *reader)
{
    api_reader_close(reader);
    api_owner_end(owner);
}

static bool is_right(const api_reader *reader, uint32_t first, uint32_t count)
{
    return world_pages_have(&reader->pool, to, OWNER_SEED, from + first, count);
}

static kvx_subscription_id begin_pull(api_reader *reader, uint64_t room)
{
    const kvx_subscription_id id = api_reader_ready(reader, room);

    cr_assert_eq(world_pull(reader->node, id, to, PAGES), KVX_OK);
    return id;
}

TestSuite(api_rooms, .init = setup, .timeout = 60);

/* --- who comes when --- */

API_TEST(api_rooms, a_late_and_an_early_subscriber_get_the_same)
{
    api_owner *owner;
    api_reader reader;

    start(transport, NULL, &owner, &reader);
    for (uint64_t room = 1; room <= 2; room++) {
        if (room == 1)
            cr_assert_eq(api_owner_publish(owner, room, 0, 8), KVX_OK);
        const kvx_subscription_id id = world_subscribe(reader.node, reader.peer, room);
        if (room == 2)
            cr_assert_eq(api_owner_publish(owner, room, 8, 8), KVX_OK);
        (void)world_expect_room(reader.node, KVX_EVENT_READY, room);
        cr_assert_eq(world_pull(reader.node, id, to, 8), KVX_OK);
        (void)world_expect_room(reader.node, KVX_EVENT_PULLED, room);
        cr_expect(is_right(&reader, room == 1 ? 0 : 8, 8));
        cr_expect_eq(api_owner_released(owner, room, WORLD_WAIT_MS), KVX_OK);
    }
    finish(&owner, &reader);
}

static kvx_subscription_id subscribe_as(api_reader *reader, uint32_t number, uint32_t of)
{
    kvx_subscription_id id = { 0 };

    cr_assert_eq(kvx_subscribe(reader->node,
                         KVX_SUBSCRIPTION(.peer = reader->peer, .room = 1, .reader = number,
                                 .readers = of),
                         &id),
            KVX_OK);
    return id;
}

API_TEST(api_rooms, two_readers_each_get_all_and_the_owner_waits_for_both)
{
    api_owner *owner;
    api_reader readers[2];

    start(transport, NULL, &owner, &readers[0]);
    api_reader_open(&readers[1], transport, owner, NULL);
    cr_assert_eq(api_owner_publish(owner, 1, 0, PAGES), KVX_OK);
    for (uint32_t i = 0; i < 2; i++) {
        const kvx_subscription_id id = subscribe_as(&readers[i], i, 2);
        (void)world_expect_room(readers[i].node, KVX_EVENT_READY, 1);
        cr_assert_eq(world_pull(readers[i].node, id, to, PAGES), KVX_OK);
        (void)world_expect_room(readers[i].node, KVX_EVENT_PULLED, 1);
        cr_expect(is_right(&readers[i], 0, PAGES));
        cr_expect_eq(api_owner_released(owner, 1, i == 0 ? 30 : WORLD_WAIT_MS),
                i == 0 ? KVX_AGAIN : KVX_OK);
    }
    api_reader_close(&readers[1]);
    finish(&owner, &readers[0]);
}

API_TEST(api_rooms, a_taken_place_and_another_number_of_readers_are_refused)
{
    api_owner *owner;
    api_reader readers[2];
    kvx_subscription_id id;

    start(transport, NULL, &owner, &readers[0]);
    api_reader_open(&readers[1], transport, owner, NULL);
    cr_assert_eq(api_owner_publish(owner, 1, 0, 8), KVX_OK);
    (void)subscribe_as(&readers[0], 1, 2);
    (void)world_expect_room(readers[0].node, KVX_EVENT_READY, 1);
    (void)subscribe_as(&readers[1], 1, 2);
    (void)api_reader_failed(&readers[1], 1, KVX_REFUSED);
    (void)subscribe_as(&readers[1], 0, 3);
    (void)api_reader_failed(&readers[1], 1, KVX_REFUSED);
    cr_expect_eq(
            kvx_subscribe(readers[1].node,
                    KVX_SUBSCRIPTION(.peer = readers[1].peer, .room = 1, .reader = 2, .readers = 2),
                    &id),
            KVX_INVALID);
    api_reader_close(&readers[1]);
    finish(&owner, &readers[0]);
}

API_TEST(api_rooms, a_reader_that_never_comes_keeps_no_pages_for_ever)
{
    api_owner *owner;
    api_reader reader;

    start(transport, short_lives, &owner, &reader);
    cr_assert_eq(api_owner_publish(owner, 1, 0, 8), KVX_OK);
    cr_expect_eq(api_owner_released(owner, 1, 100), KVX_AGAIN);
    cr_expect_eq(api_owner_released(owner, 1, WORLD_WAIT_MS), KVX_EXPIRED);
    (void)world_subscribe(reader.node, reader.peer, 1);
    (void)api_reader_failed(&reader, 1, KVX_EXPIRED);
    cr_expect_eq(api_owner_metrics(owner).lapsed, (uint64_t)1);
    finish(&owner, &reader);
}

/* --- parts of a room --- */

static void pull_without_prefix(const api_transport *transport, uint32_t skip)
{
    const kvx_page_table table = { to, PAGES - skip };
    api_owner *owner;
    api_reader reader;

    start(transport, NULL, &owner, &reader);
    cr_assert_eq(api_owner_publish(owner, 1, 0, PAGES), KVX_OK);
    const kvx_subscription_id id = api_reader_ready(&reader, 1);
    cr_assert_eq(kvx_pull(reader.node, id,
                         KVX_PULL(.tables = &table, .table_count = 1,
                                 .first_token = skip * WORLD_PAGE_TOKENS)),
            KVX_OK);
    const kvx_event event = world_expect_room(reader.node, KVX_EVENT_PULLED, 1);
    cr_expect_eq(event.stats.pages, (uint64_t)(PAGES - skip) * WORLD_REGIONS);
    cr_expect_eq(event.stats.bytes, event.stats.pages * WORLD_PAGE_BYTES);
    cr_expect(is_right(&reader, skip, PAGES - skip), "skip %u", skip);
    cr_expect_eq(reader.pool.memory[0][(size_t)to[PAGES - skip] * WORLD_PAGE_BYTES], 0,
            "the next page is as it was");
    cr_expect_eq(api_owner_released(owner, 1, WORLD_WAIT_MS), KVX_OK);
    finish(&owner, &reader);
}

API_TEST(api_rooms, a_prefix_of_none_one_all_but_one_and_all_pages_is_skipped)
{
    static const uint32_t skips[] = { 0, 1, PAGES - 1, PAGES };

    for (uint32_t i = 0; i < 4; i++)
        pull_without_prefix(transport, skips[i]);
}

API_TEST(api_rooms, a_release_reads_nothing_and_frees_the_room)
{
    api_owner *owner;
    api_reader reader;

    start(transport, NULL, &owner, &reader);
    cr_assert_eq(api_owner_publish(owner, 1, 0, PAGES), KVX_OK);
    cr_assert_eq(kvx_release(reader.node, api_reader_ready(&reader, 1)), KVX_OK);
    const kvx_event event = world_expect_room(reader.node, KVX_EVENT_PULLED, 1);
    cr_expect(event.stats.bytes == 0 && event.stats.reads == 0);
    cr_expect_eq(api_owner_released(owner, 1, WORLD_WAIT_MS), KVX_OK);
    finish(&owner, &reader);
}

/* --- the reader ends it, in each state --- */

API_TEST(api_rooms, a_cancel_before_the_room_is_published_leaves_it_to_others)
{
    api_owner *owner;
    api_reader reader;

    start(transport, NULL, &owner, &reader);
    const kvx_subscription_id id = world_subscribe(reader.node, reader.peer, 1);
    cr_assert_eq(kvx_cancel(reader.node, id), KVX_OK);
    (void)api_reader_failed(&reader, 1, KVX_CANCELLED);
    cr_expect_eq(kvx_cancel(reader.node, id), KVX_NOT_FOUND);
    while (api_owner_query(owner, 1) == KVX_ROOM_AWAITED)
        (void)poll(NULL, 0, 1);
    cr_assert_eq(api_owner_publish(owner, 1, 0, 8), KVX_OK);
    cr_assert_eq(world_pull(reader.node, api_reader_ready(&reader, 1), to, 8), KVX_OK);
    (void)world_expect_room(reader.node, KVX_EVENT_PULLED, 1);
    finish(&owner, &reader);
}

API_TEST(api_rooms, a_cancel_when_it_is_ready_frees_it)
{
    api_owner *owner;
    api_reader reader;

    start(transport, NULL, &owner, &reader);
    cr_assert_eq(api_owner_publish(owner, 1, 0, 8), KVX_OK);
    cr_assert_eq(kvx_cancel(reader.node, api_reader_ready(&reader, 1)), KVX_OK);
    (void)api_reader_failed(&reader, 1, KVX_CANCELLED);
    cr_expect_eq(api_owner_released(owner, 1, WORLD_WAIT_MS), KVX_OK);
    finish(&owner, &reader);
}

/* Nothing writes these pages any more: they stay as they are. */
static void expect_quiet(api_reader *reader)
{
    static uint8_t before[WORLD_REGIONS][WORLD_PAGES * WORLD_PAGE_BYTES];

    for (uint32_t r = 0; r < WORLD_REGIONS; r++)
        memcpy(before[r], reader->pool.memory[r], sizeof(before[r]));
    for (int i = 0; i < 50; i++)
        cr_assert_neq(kvx_node_progress(reader->node), KVX_INVALID);
    for (uint32_t r = 0; r < WORLD_REGIONS; r++)
        cr_expect_eq(memcmp(before[r], reader->pool.memory[r], sizeof(before[r])), 0);
}

API_TEST(api_rooms, a_cancel_while_it_is_pulled_ends_quiet_and_frees_it)
{
    api_owner *owner;
    api_reader reader;

    start(transport, NULL, &owner, &reader);
    cr_assert_eq(api_owner_publish(owner, 1, 0, PAGES), KVX_OK);
    const kvx_subscription_id id = begin_pull(&reader, 1);
    api_reader_until_midway(&reader);
    cr_assert_eq(kvx_cancel(reader.node, id), KVX_OK);
    const kvx_event event = api_reader_failed(&reader, 1, KVX_CANCELLED);
    cr_expect_lt(event.stats.bytes, (uint64_t)PAGES * WORLD_REGIONS * WORLD_PAGE_BYTES);
    expect_quiet(&reader);
    cr_expect_eq(api_owner_released(owner, 1, WORLD_WAIT_MS), KVX_OK);
    finish(&owner, &reader);
}

API_TEST(api_rooms, a_cancel_while_it_is_confirmed_delivers_nothing)
{
    const uint64_t all = (uint64_t)PAGES * WORLD_REGIONS * WORLD_PAGE_BYTES;
    api_owner *owner;
    api_reader reader;

    start(transport, NULL, &owner, &reader);
    cr_assert_eq(api_owner_publish(owner, 1, 0, PAGES), KVX_OK);
    const kvx_subscription_id id = begin_pull(&reader, 1);
    api_owner_freeze(owner);
    while (api_metrics(reader.node).bytes_read < all)
        cr_assert_neq(kvx_node_progress(reader.node), KVX_INVALID);
    for (int i = 0; i < 20; i++)
        cr_assert_neq(kvx_node_progress(reader.node), KVX_INVALID);
    cr_expect_eq(kvx_room_query(reader.node, 1, NULL), KVX_ROOM_PULLING);
    cr_assert_eq(kvx_cancel(reader.node, id), KVX_OK);
    (void)api_reader_failed(&reader, 1, KVX_CANCELLED);
    api_owner_thaw(owner);
    cr_expect_eq(api_owner_released(owner, 1, WORLD_WAIT_MS), KVX_OK);
    expect_quiet(&reader);
    cr_expect_eq(api_metrics(reader.node).pulled, (uint64_t)0);
    finish(&owner, &reader);
}

/* --- the owner ends it, in each state --- */

API_TEST(api_rooms, an_abort_before_the_room_is_published_fails_who_waits)
{
    api_owner *owner;
    api_reader reader;

    start(transport, NULL, &owner, &reader);
    (void)world_subscribe(reader.node, reader.peer, 1);
    while (api_owner_query(owner, 1) != KVX_ROOM_AWAITED)
        cr_assert_neq(kvx_node_progress(reader.node), KVX_INVALID);
    cr_assert_eq(api_owner_abort(owner, 1), KVX_OK);
    (void)api_reader_failed(&reader, 1, KVX_GONE);
    (void)world_subscribe(reader.node, reader.peer, 1);
    (void)api_reader_failed(&reader, 1, KVX_GONE);
    finish(&owner, &reader);
}

API_TEST(api_rooms, an_abort_or_a_revoke_before_the_pull_takes_the_pages_back)
{
    api_owner *owner;
    api_reader reader;

    start(transport, NULL, &owner, &reader);
    for (uint64_t room = 1; room <= 2; room++) {
        cr_assert_eq(api_owner_publish(owner, room, 0, 8), KVX_OK);
        const kvx_subscription_id id = api_reader_ready(&reader, room);
        cr_assert_eq(
                room == 1 ? api_owner_abort(owner, room) : api_owner_revoke(owner, room), KVX_OK);
        (void)api_reader_failed(&reader, room, KVX_REVOKED);
        cr_expect_eq(world_pull(reader.node, id, to, 8), KVX_NOT_FOUND);
        cr_expect_eq(api_owner_released(owner, room, WORLD_WAIT_MS), KVX_REVOKED);
    }
    finish(&owner, &reader);
}

API_TEST(api_rooms, a_revoke_in_the_pull_drains_it_before_the_pages_come_back)
{
    api_owner *owner;
    api_reader reader;

    start(transport, NULL, &owner, &reader);
    for (uint64_t room = 1; room <= 2; room++) {
        cr_assert_eq(api_owner_publish(owner, room, 0, PAGES), KVX_OK);
        (void)begin_pull(&reader, room);
        api_reader_until_midway(&reader);
        cr_assert_eq(
                room == 1 ? api_owner_abort(owner, room) : api_owner_revoke(owner, room), KVX_OK);
        cr_expect_eq(api_owner_released(owner, room, 30), KVX_AGAIN, "the reader has not answered");
        cr_expect_eq(api_owner_query(owner, room), KVX_ROOM_REVOKING);
        (void)api_reader_failed(&reader, room, KVX_REVOKED);
        cr_expect_eq(api_owner_released(owner, room, WORLD_WAIT_MS), KVX_REVOKED);
        expect_quiet(&reader);
    }
    finish(&owner, &reader);
}

API_TEST(api_rooms, a_revoke_after_the_pull_finds_nothing)
{
    api_owner *owner;
    api_reader reader;

    start(transport, NULL, &owner, &reader);
    cr_assert_eq(api_owner_publish(owner, 1, 0, PAGES), KVX_OK);
    (void)begin_pull(&reader, 1);
    (void)world_expect_room(reader.node, KVX_EVENT_PULLED, 1);
    cr_expect_eq(api_owner_released(owner, 1, WORLD_WAIT_MS), KVX_OK);
    cr_expect_eq(api_owner_revoke(owner, 1), KVX_NOT_FOUND);
    cr_expect(is_right(&reader, 0, PAGES));
    finish(&owner, &reader);
}

/* --- leases that run out --- */

API_TEST(api_rooms, a_reader_that_stops_in_mid_pull_loses_its_lease_and_gets_nothing)
{
    api_owner *owner;
    api_reader reader;

    start(transport, short_lives, &owner, &reader);
    cr_assert_eq(api_owner_publish(owner, 1, 0, PAGES), KVX_OK);
    (void)begin_pull(&reader, 1);
    api_reader_until_midway(&reader);
    cr_expect_eq(api_owner_released(owner, 1, WORLD_WAIT_MS), KVX_EXPIRED, "nobody renewed");
    (void)api_reader_failed(&reader, 1, KVX_EXPIRED);
    expect_quiet(&reader);
    cr_expect_eq(api_metrics(reader.node).failed_expired, (uint64_t)1);
    cr_expect_eq(api_owner_metrics(owner).leases_expired, (uint64_t)1);
    finish(&owner, &reader);
}

API_TEST(api_rooms, an_owner_that_stops_in_mid_pull_is_not_trusted_any_longer)
{
    static const char *const settings[][2] = { { "lease_ms", "400" }, { "ping_ms", "50" },
        { "fence_ms", "150" }, { "drain_ms", "20" }, { "close_ms", "100" }, { "margin_ms", "20" },
        { "peer_timeout_ms", "20000" }, { "window_bytes", "4KiB" }, { "read_bytes_max", "4KiB" },
        { NULL, NULL } };
    api_owner *owner;
    api_reader reader;

    start(transport, settings, &owner, &reader);
    cr_assert_eq(api_owner_publish(owner, 1, 0, PAGES), KVX_OK);
    (void)begin_pull(&reader, 1);
    api_owner_freeze(owner);
    api_reader_until_midway(&reader);
    const uint64_t until = world_now_ms() + 450;
    while (world_now_ms() < until)
        (void)poll(NULL, 0, 5);
    (void)api_reader_failed(&reader, 1, KVX_EXPIRED);
    api_owner_thaw(owner);
    (void)api_owner_released(owner, 1, WORLD_WAIT_MS);
    expect_quiet(&reader);
    finish(&owner, &reader);
}

API_TEST(api_rooms, a_confirmation_that_does_not_come_ends_at_the_deadline)
{
    const kvx_page_table table = { to, 8 };
    api_owner *owner;
    api_reader reader;

    start(transport, NULL, &owner, &reader);
    cr_assert_eq(api_owner_publish(owner, 1, 0, 8), KVX_OK);
    const kvx_subscription_id id = api_reader_ready(&reader, 1);
    cr_assert_eq(kvx_pull(reader.node, id,
                         KVX_PULL(.tables = &table, .table_count = 1, .deadline_ms = 200)),
            KVX_OK);
    api_owner_freeze(owner);
    (void)api_reader_failed(&reader, 1, KVX_DEADLINE);
    api_owner_thaw(owner);
    (void)api_owner_released(owner, 1, WORLD_WAIT_MS);
    finish(&owner, &reader);
}
