/* SPDX-License-Identifier: Apache-2.0 */
/* The calls' promises between two nodes of one process: what is refused and how it is named,
 * limits and their events, cookies, parameter sizes, states, counters. */
#include <criterion/criterion.h>

#include <string.h>

#include "integration/test_node_world.h"

#define ROOM_BYTES(pages) ((uint64_t)(pages)*WORLD_REGIONS * WORLD_PAGE_BYTES)

static world_pool pools[2];
static kvx_node *owner;
static kvx_node *reader;
static kvx_peer_id peer;
static kvx_page from[WORLD_PAGES];
static kvx_page to[WORLD_PAGES];

static void open_pair(const char *key, const char *value)
{
    kvx_config *config = world_config(key, value, NULL);

    world_log_keep();
    world_pool_init(&pools[0], 1);
    world_pool_init(&pools[1], 0);
    owner = world_open(&pools[0], config, "127.0.0.1:0");
    reader = world_open(&pools[1], config, NULL);
    peer = world_connect(reader, world_address(owner));
    kvx_config_destroy(&config);
    world_pages(from, WORLD_PAGES, 0, 1);
    world_pages(to, WORLD_PAGES, 9, 27);
}

static void setup(void)
{
    open_pair("ping_ms", "100");
}

static void teardown(void)
{
    world_close(&reader);
    world_close(&owner);
    world_pool_fini(&pools[0]);
    world_pool_fini(&pools[1]);
}

TestSuite(api_calls, .init = setup, .fini = teardown, .timeout = 60);
TestSuite(api_limits, .fini = teardown, .timeout = 60);

static kvx_subscription_id ready(uint64_t room, uint32_t pages)
{
    cr_assert_eq(world_publish(owner, room, from, pages), KVX_OK);
    const kvx_subscription_id id = world_subscribe(reader, peer, room);
    (void)world_expect_room(reader, KVX_EVENT_READY, room);
    return id;
}

static kvx_status pull_from(kvx_subscription_id id, uint32_t first_token, uint32_t pages)
{
    const kvx_page_table table = { to, pages };

    return kvx_pull(
            reader, id, KVX_PULL(.tables = &table, .table_count = 1, .first_token = first_token));
}

/* --- what is refused, by name --- */

Test(api_calls, positions_that_do_not_line_up_are_refused_with_the_positions)
{
    const kvx_subscription_id id = ready(71, 4);

    cr_expect_eq(pull_from(id, 0, 3), KVX_INVALID);
    cr_expect(world_log_has("pull room 71: component kv has 4 pages for 64 tokens of 16 a page; "
                            "3 pages from token 0 do not line up"));
    cr_expect_eq(pull_from(id, 8, 4), KVX_INVALID);
    cr_expect(world_log_has("4 pages from token 8 do not line up"));
    cr_expect_eq(pull_from(id, 80, 0), KVX_INVALID);
    cr_expect_eq(pull_from(id, 16, 3), KVX_OK, "and it took nothing");
    (void)world_expect_room(reader, KVX_EVENT_PULLED, 71);
}

Test(api_calls, a_chunk_of_a_room_is_refused_by_name)
{
    const kvx_page_table table = { from, 1 };

    cr_expect_eq(kvx_publish(owner, KVX_OFFER(.room = 72, .tokens = 16, .tables = &table,
                                            .table_count = 1, .is_partial = true)),
            KVX_UNSUPPORTED);
    cr_expect(world_log_has("room 72: publishing in chunks (is_partial) is not built yet"));
    cr_expect_eq(kvx_room_query(owner, 72, NULL), KVX_ROOM_UNKNOWN);
}

Test(api_calls, an_offer_that_does_not_fit_the_pool_is_refused_by_name)
{
    const kvx_page outside[] = { 1, WORLD_PAGES };
    const kvx_page_table table = { from, 2 };

    cr_expect_eq(world_publish(owner, 73, outside, 2), KVX_INVALID);
    cr_expect(world_log_has("room 73: page 64 of kv is not in the pool"));
    cr_expect_eq(kvx_publish(owner,
                         KVX_OFFER(.room = 73, .tokens = 33, .tables = &table, .table_count = 1)),
            KVX_INVALID);
    cr_expect(world_log_has("room 73: component kv has 2 pages, 33 tokens need 3"));
    cr_expect_eq(
            kvx_publish(owner, KVX_OFFER(.room = 73, .tokens = 32, .tables = &table)), KVX_INVALID);
    cr_assert_eq(world_publish(owner, 73, from, 2), KVX_OK);
    cr_expect_eq(world_publish(owner, 73, from, 2), KVX_BUSY, "it is live already");
}

/* --- pages --- */

static void expect_failed_page(
        kvx_subscription_id id, const kvx_page *pages, kvx_status status, kvx_page page)
{
    cr_assert_eq(world_pull(reader, id, pages, 4), KVX_OK);
    const kvx_event event = world_expect(reader, KVX_EVENT_FAILED);
    cr_expect_eq(event.subscription.value, id.value);
    cr_expect(event.has_page && event.page == page, "page %u is named", event.page);
    cr_expect_eq(event.status, status, "%s", kvx_status_name(event.status));
    cr_expect_eq(event.scope, KVX_SCOPE_REQUEST);
    (void)world_expect(owner, KVX_EVENT_RELEASED);
}

Test(api_calls, a_page_that_is_busy_or_not_there_fails_the_pull_by_its_number)
{
    const kvx_page outside[] = { 1, 2, WORLD_PAGES + 3, 4 };
    const kvx_page published[] = { 1, 2, 3, 40 };
    const kvx_page one[] = { 40 };

    expect_failed_page(ready(1, 4), outside, KVX_INVALID, WORLD_PAGES + 3);
    cr_assert_eq(world_publish(reader, 50, one, 1), KVX_OK);
    expect_failed_page(ready(2, 4), published, KVX_BUSY, 40);
}

static kvx_metrics_snapshot metrics(kvx_node *node)
{
    kvx_metrics_snapshot snapshot = { .struct_size = sizeof(snapshot) };

    cr_assert_eq(kvx_node_metrics(node, &snapshot), KVX_OK);
    return snapshot;
}

/* Wait for an event of the reader while the owner, who has no thread, is progressed. */
static kvx_event expect_driving(kvx_event_kind kind)
{
    const uint64_t until = world_now_ms() + WORLD_WAIT_MS;
    kvx_event event;

    do {
        cr_assert_lt(world_now_ms(), until, "event %d does not come", (int)kind);
        (void)kvx_node_wait(owner, &event, 1);
    } while (!kvx_node_poll(reader, &event) || event.kind != kind);
    return event;
}

/* An owner that nobody progresses: it confirms nothing, so that a pull stays under way. */
static void open_driven(void)
{
    kvx_config *config = world_config("progress", "caller", NULL);

    open_pair("ping_ms", "100");
    world_close(&owner);
    owner = world_open(&pools[0], config, "127.0.0.1:0");
    kvx_config_destroy(&config);
    cr_assert_eq(kvx_disconnect(reader, peer), KVX_OK);
    cr_assert_eq(kvx_connect(reader, world_address(owner), 0, &peer), KVX_OK);
    (void)expect_driving(KVX_EVENT_PEER_UP);
}

Test(api_limits, pages_of_a_pull_are_neither_published_nor_pulled_into_again)
{
    const kvx_page more[] = { 60, 61, 9 };

    open_driven();
    cr_assert_eq(world_publish(owner, 1, from, 4), KVX_OK);
    cr_assert_eq(world_publish(owner, 2, from, 3), KVX_OK);
    const kvx_subscription_id first = world_subscribe(reader, peer, 1);
    const kvx_subscription_id second = world_subscribe(reader, peer, 2);
    (void)expect_driving(KVX_EVENT_READY);
    (void)expect_driving(KVX_EVENT_READY);
    cr_assert_eq(world_pull(reader, first, to, 4), KVX_OK);
    while (metrics(reader).bytes_read < ROOM_BYTES(4))
        continue;
    cr_expect_eq(world_publish(reader, 90, more, 3), KVX_BUSY);
    cr_expect(world_log_has("room 90: page 9 of kv is the target of a pull"));
    cr_assert_eq(world_pull(reader, second, more, 3), KVX_OK);
    const kvx_event event = world_expect_room(reader, KVX_EVENT_FAILED, 2);
    cr_expect(event.status == KVX_BUSY && event.has_page && event.page == 9);
    (void)expect_driving(KVX_EVENT_PULLED);
    cr_expect_eq(world_publish(reader, 90, more, 3), KVX_OK, "now they are free again");
    cr_assert_eq(kvx_disconnect(reader, peer), KVX_OK);
}

/* --- limits --- */

Test(api_limits, too_many_pulls_are_refused_until_there_is_credit)
{
    open_pair("pulls_max", "1");
    const kvx_subscription_id first = ready(1, 40);
    const kvx_subscription_id second = ready(2, 40);
    kvx_status status = KVX_OK;

    cr_assert_eq(world_pull(reader, first, to, 20), KVX_INVALID, "a refusal takes no credit");
    cr_assert_eq(world_pull(reader, first, to, 40), KVX_OK);
    status = world_pull(reader, second, to, 40);
    if (status == KVX_AGAIN) { /* the first may be done already */
        (void)world_expect(reader, KVX_EVENT_CREDIT);
        status = world_pull(reader, second, to, 40);
    }
    cr_expect_eq(status, KVX_OK);
    (void)world_expect_room(reader, KVX_EVENT_PULLED, 2);
}

Test(api_limits, a_reservation_keeps_its_room_from_being_refused)
{
    char limit[32];

    (void)snprintf(limit, sizeof(limit), "%llu", (unsigned long long)ROOM_BYTES(10));
    open_pair("parked_bytes_max", limit);
    cr_expect_eq(kvx_reserve(owner, 1, ROOM_BYTES(11)), KVX_NO_SPACE);
    cr_assert_eq(kvx_reserve(owner, 1, ROOM_BYTES(6)), KVX_OK);
    cr_expect_eq(kvx_room_query(owner, 1, NULL), KVX_ROOM_RESERVED);
    cr_expect_eq(kvx_reserve(owner, 1, ROOM_BYTES(1)), KVX_BUSY);
    cr_expect_eq(world_publish(owner, 2, from, 5), KVX_AGAIN);
    cr_expect_eq(world_publish(owner, 2, from, 4), KVX_OK);
    cr_expect_eq(world_publish(owner, 1, from + 10, 6), KVX_OK);
    cr_expect_eq(world_publish(owner, 3, from + 20, 1), KVX_AGAIN);
    cr_assert_eq(kvx_revoke(owner, 2), KVX_OK);
    (void)world_expect(owner, KVX_EVENT_ROOM);
    cr_expect_eq(world_publish(owner, 3, from + 20, 4), KVX_OK);
}

Test(api_limits, too_many_subscriptions_are_refused)
{
    kvx_subscription_id id;

    open_pair("subscriptions_max", "2");
    (void)world_subscribe(reader, peer, 1);
    const kvx_subscription_id last = world_subscribe(reader, peer, 2);
    cr_expect_eq(
            kvx_subscribe(reader, KVX_SUBSCRIPTION(.peer = peer, .room = 3), &id), KVX_NO_SPACE);
    cr_assert_eq(kvx_cancel(reader, last), KVX_OK);
    (void)world_expect_room(reader, KVX_EVENT_FAILED, 2);
    cr_expect_eq(kvx_subscribe(reader, KVX_SUBSCRIPTION(.peer = peer, .room = 3), &id), KVX_OK);
}

Test(api_limits, too_many_who_wait_for_a_room_are_refused_by_its_owner)
{
    open_pair("waiting_max", "2");
    for (uint64_t room = 1; room <= 3; room++)
        (void)world_subscribe(reader, peer, room);
    cr_expect_eq(world_expect(reader, KVX_EVENT_FAILED).room, (uint64_t)3);
    cr_assert_eq(world_publish(owner, 1, from, 2), KVX_OK);
    (void)world_expect_room(reader, KVX_EVENT_READY, 1);
}

/* --- events, cookies, sizes --- */

Test(api_calls, a_cookie_comes_back_in_each_event_of_its_room)
{
    const kvx_page_table table = { from, 4 };
    int ours;
    int theirs;
    kvx_subscription_id id;

    cr_assert_eq(kvx_publish(owner, KVX_OFFER(.room = 1, .tokens = 64, .tables = &table,
                                            .table_count = 1, .user = &theirs)),
            KVX_OK);
    cr_assert_eq(
            kvx_subscribe(reader, KVX_SUBSCRIPTION(.peer = peer, .room = 1, .user = &ours), &id),
            KVX_OK);
    cr_expect_eq(world_expect(reader, KVX_EVENT_READY).user, &ours);
    cr_assert_eq(world_pull(reader, id, to, 4), KVX_OK);
    const kvx_event event = world_expect(reader, KVX_EVENT_PULLED);
    cr_expect(event.user == &ours && event.room == 1 && event.subscription.value == id.value &&
              event.peer.value == peer.value && event.status == KVX_OK);
    cr_expect_eq(world_expect(owner, KVX_EVENT_RELEASED).user, &theirs);
}

Test(api_calls, an_event_that_nobody_polled_gives_way_to_the_last)
{
    kvx_event event;
    kvx_status status = KVX_OK;

    cr_assert_eq(world_publish(owner, 1, from, 4), KVX_OK);
    (void)world_subscribe(reader, peer, 1);
    while (kvx_room_query(reader, 1, NULL) != KVX_ROOM_READY)
        continue;
    cr_assert_eq(kvx_revoke(owner, 1), KVX_OK);
    while (kvx_room_query(reader, 1, &status) != KVX_ROOM_ENDED)
        continue;
    cr_expect_eq(status, KVX_REVOKED);
    cr_expect_eq(world_expect(reader, KVX_EVENT_FAILED).status, KVX_REVOKED);
    cr_expect_not(kvx_node_poll(reader, &event));
    cr_expect_eq(event.kind, KVX_EVENT_NONE);
}

Test(api_calls, what_ready_points_at_lives_until_the_end_was_polled)
{
    const kvx_subscription_id id = ready(1, 40);

    cr_assert_eq(kvx_cancel(reader, id), KVX_OK);
    (void)world_expect_room(reader, KVX_EVENT_FAILED, 1);
    cr_assert_eq(world_publish(owner, 2, from, 8), KVX_OK);
    const kvx_subscription_id again = world_subscribe(reader, peer, 2);
    const kvx_event event = world_expect_room(reader, KVX_EVENT_READY, 2);
    cr_assert_eq(kvx_cancel(reader, again), KVX_OK);
    while (kvx_room_query(reader, 2, NULL) != KVX_ROOM_ENDED)
        continue;
    cr_expect_eq(event.ready.components[0].run_count, 1u);
    cr_expect_eq(event.ready.components[0].runs[0].count, 8u);
    cr_expect_eq(memcmp(event.ready.aux, "first token", event.ready.aux_bytes), 0);
    (void)world_expect_room(reader, KVX_EVENT_FAILED, 2);
}

Test(api_calls, structs_of_no_size_or_of_a_newer_version_are_refused)
{
    const kvx_page_table table = { from, 1 };
    kvx_offer offer = *KVX_OFFER(.room = 1, .tokens = 16, .tables = &table, .table_count = 1);
    kvx_subscription wanted = *KVX_SUBSCRIPTION(.peer = peer, .room = 1);
    kvx_pull_params pull = *KVX_PULL(.tables = NULL);
    kvx_metrics_snapshot snapshot = { .struct_size = sizeof(snapshot) };
    kvx_subscription_id id = { 7 };

    offer.struct_size = 0;
    cr_expect_eq(kvx_publish(owner, &offer), KVX_INVALID);
    offer.struct_size = sizeof(offer) + 8;
    cr_expect_eq(kvx_publish(owner, &offer), KVX_INVALID);
    wanted.struct_size = sizeof(wanted) + 8;
    cr_expect_eq(kvx_subscribe(reader, &wanted, &id), KVX_INVALID);
    cr_expect_eq(id.value, (uint64_t)7);
    pull.struct_size = 0;
    cr_expect_eq(kvx_pull(reader, id, &pull), KVX_INVALID);
    snapshot.struct_size = sizeof(snapshot) + 8;
    cr_expect_eq(kvx_node_metrics(owner, &snapshot), KVX_INVALID);
    snapshot.struct_size = 0;
    cr_expect_eq(kvx_node_metrics(owner, &snapshot), KVX_INVALID);
}

Test(api_calls, a_struct_of_an_older_version_has_the_defaults_for_the_rest)
{
    const kvx_page_table table = { from, 2 };
    kvx_offer offer = *KVX_OFFER(.room = 1, .tokens = 32, .tables = &table, .table_count = 1,
            .aux = "x", .aux_bytes = 1, .user = &pools);

    offer.struct_size = offsetof(kvx_offer, aux);
    cr_assert_eq(kvx_publish(owner, &offer), KVX_OK);
    (void)world_subscribe(reader, peer, 1);
    cr_expect_eq(world_expect(reader, KVX_EVENT_READY).ready.aux_bytes, 0u);
    cr_assert_eq(kvx_revoke(owner, 1), KVX_OK);
    cr_expect_null(world_expect(owner, KVX_EVENT_RELEASED).user);
}

/* --- states and counters --- */

Test(api_calls, a_room_s_state_can_be_asked_on_both_sides)
{
    kvx_status status = KVX_CLOSED;

    cr_expect_eq(kvx_room_query(owner, 1, &status), KVX_ROOM_UNKNOWN);
    cr_expect_eq(status, KVX_OK);
    const kvx_subscription_id id = world_subscribe(reader, peer, 1);
    cr_expect_eq(kvx_room_query(reader, 1, NULL), KVX_ROOM_WAITING);
    while (kvx_room_query(owner, 1, NULL) != KVX_ROOM_AWAITED)
        continue;
    cr_assert_eq(world_publish(owner, 1, from, 4), KVX_OK);
    cr_expect_eq(kvx_room_query(owner, 1, NULL), KVX_ROOM_PUBLISHED);
    (void)world_expect(reader, KVX_EVENT_READY);
    cr_expect_eq(kvx_room_query(reader, 1, NULL), KVX_ROOM_READY);
    cr_assert_eq(world_pull(reader, id, to, 4), KVX_OK);
    (void)world_expect(reader, KVX_EVENT_PULLED);
    cr_expect_eq(kvx_room_query(reader, 1, &status), KVX_ROOM_ENDED);
    cr_expect_eq(status, KVX_OK);
    (void)world_expect(owner, KVX_EVENT_RELEASED);
    cr_expect_eq(kvx_room_query(owner, 1, &status), KVX_ROOM_FREED);
    cr_expect_eq(status, KVX_OK);
}

Test(api_calls, counters_add_up_when_everything_is_over)
{
    for (uint64_t room = 1; room <= 6; room++) {
        const kvx_subscription_id id = ready(room, 8);
        if (room % 3 == 0)
            cr_assert_eq(kvx_cancel(reader, id), KVX_OK);
        else
            cr_assert_eq(world_pull(reader, id, to, 8), KVX_OK);
        (void)world_expect_room(reader, room % 3 == 0 ? KVX_EVENT_FAILED : KVX_EVENT_PULLED, room);
        (void)world_expect_room(owner, KVX_EVENT_RELEASED, room);
    }
    cr_assert_eq(world_publish(owner, 7, from, 8), KVX_OK);
    cr_assert_eq(kvx_revoke(owner, 7), KVX_OK);
    (void)world_expect_room(owner, KVX_EVENT_RELEASED, 7);
    const kvx_metrics_snapshot o = metrics(owner);
    const kvx_metrics_snapshot r = metrics(reader);
    cr_expect_eq(o.published, o.released + o.lapsed + o.taken_back);
    cr_expect(o.released == 6 && o.taken_back == 1 && o.leases_granted == 6);
    cr_expect(o.parked_rooms == 0 && o.parked_bytes == 0 && o.leases == 0);
    cr_expect_eq(r.subscribed, r.pulled + r.failed_cancelled);
    cr_expect(r.pulled == 4 && r.failed_cancelled == 2);
    cr_expect_eq(r.bytes_read, 4 * ROOM_BYTES(8));
    cr_expect_eq(r.pages_read, (uint64_t)4 * 8 * WORLD_REGIONS);
    cr_expect(r.reads_in_flight == 0 && r.bytes_in_flight == 0 && r.subscriptions == 0);
    cr_expect(o.links_opened == 1 && r.links_opened == 1 && o.protocol_errors == 0);
    cr_expect_eq(o.foreign_messages, (uint64_t)0);
}

/* --- changing the pool --- */

/* A reader that nobody progresses holds its lease; the pool is not free before that is over. */
Test(api_limits, a_pool_under_a_live_lease_is_not_changed_until_the_lease_is_over)
{
    kvx_config *config = world_config("progress", "caller", NULL);
    world_pool next;
    kvx_status status = KVX_OK;

    open_pair("lease_ms", "1500");
    world_close(&reader);
    reader = world_open(&pools[1], config, NULL);
    kvx_config_destroy(&config);
    peer = world_connect(reader, world_address(owner));
    (void)ready(1, 4);
    world_pool_init(&next, 3);
    cr_expect_eq(kvx_node_reregister(owner, &next.layout, 50), KVX_AGAIN);
    cr_expect_eq(world_publish(owner, 2, from, 2), KVX_CLOSED);
    cr_expect_eq(kvx_room_query(owner, 1, &status), KVX_ROOM_REVOKING);
    cr_expect_eq(kvx_node_reregister(owner, &next.layout, WORLD_WAIT_MS), KVX_OK);
    cr_expect_eq(kvx_room_query(owner, 1, &status), KVX_ROOM_FREED);
    cr_expect_eq(status, KVX_REVOKED);
    world_pool_fini(&pools[0]);
    pools[0] = next;
    cr_expect_neq(world_expect_room(reader, KVX_EVENT_FAILED, 1).status, KVX_OK);
    (void)world_expect(reader, KVX_EVENT_PEER_UP);
    (void)world_subscribe(reader, peer, 2);
    cr_assert_eq(world_publish(owner, 2, from, 2), KVX_OK);
    (void)world_expect_room(reader, KVX_EVENT_READY, 2);
}
