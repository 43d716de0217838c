/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of four ranks over loopback: one room on all of them, or on none. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "test_node_world.h"

#define RANKS 4
#define PAGES 6

static world_pool owner_pools[RANKS];
static world_pool reader_pools[RANKS];
static kvx_group *owners;
static kvx_group *readers;
static kvx_peer_id peer;

static kvx_event expect_event(kvx_group *group, kvx_event_kind kind)
{
    const uint64_t until = world_now_ms() + WORLD_WAIT_MS;
    kvx_event event;

    do {
        if (kvx_group_wait(group, &event, WORLD_WAIT_MS) && event.kind == kind)
            return event;
    } while (world_now_ms() < until);
    cr_assert_fail("event %d did not come", (int)kind);
    return event;
}

static kvx_group *open_group(
        world_pool *pools, uint8_t seed, const kvx_config *config, const char *listen)
{
    static kvx_layout layouts[RANKS];
    kvx_group *group = NULL;

    for (uint32_t i = 0; i < RANKS; i++) {
        world_pool_init(&pools[i], seed == 0 ? 0 : (uint8_t)(seed + i));
        layouts[i] = pools[i].layout;
    }
    cr_assert_eq(kvx_group_open(KVX_GROUP_PARAMS(.config = config, .layouts = layouts,
                                        .rank_count = RANKS, .listen = listen),
                         &group),
            KVX_OK);
    return group;
}

static void open_groups(const kvx_config *config)
{
    char address[320];

    world_log_keep();
    owners = open_group(owner_pools, 10, config, "127.0.0.1:0");
    readers = open_group(reader_pools, 0, config, NULL);
    cr_assert_eq(kvx_node_address(kvx_group_node(owners, 0), address, sizeof(address)), KVX_OK);
    cr_assert_eq(kvx_group_connect(readers, address, &peer), KVX_OK);
    cr_assert_eq(expect_event(readers, KVX_EVENT_PEER_UP).peer.value, peer.value);
}

static void setup(void)
{
    kvx_config *config = world_config(NULL);

    open_groups(config);
    kvx_config_destroy(&config);
}

static void teardown(void)
{
    cr_expect_eq(kvx_group_close(&readers, WORLD_WAIT_MS), KVX_OK);
    cr_expect_eq(kvx_group_close(&owners, WORLD_WAIT_MS), KVX_OK);
    for (uint32_t i = 0; i < RANKS; i++) {
        world_pool_fini(&owner_pools[i]);
        world_pool_fini(&reader_pools[i]);
    }
}

TestSuite(node_group, .init = setup, .fini = teardown, .timeout = 60);
TestSuite(node_group_opened, .fini = teardown, .timeout = 60);

static kvx_page from[PAGES];
static kvx_page to[PAGES];
static int cookie;

static kvx_status publish(uint64_t room)
{
    const kvx_page_table table = { from, PAGES };

    world_pages(from, PAGES, 3, 5);
    return kvx_group_publish(
            owners, KVX_OFFER(.room = room, .tokens = PAGES * WORLD_PAGE_TOKENS, .tables = &table,
                            .table_count = 1, .aux = "aux", .aux_bytes = 3, .user = &cookie));
}

static kvx_subscription_id subscribe(uint64_t room)
{
    kvx_subscription_id id;

    cr_assert_eq(kvx_group_subscribe(readers,
                         KVX_SUBSCRIPTION(.peer = peer, .room = room, .user = &cookie), NULL, &id),
            KVX_OK);
    return id;
}

static kvx_status pull(kvx_subscription_id id)
{
    const kvx_page_table table = { to, PAGES };

    world_pages(to, PAGES, 50, 63);
    return kvx_group_pull(readers, id, KVX_PULL(.tables = &table, .table_count = 1));
}

static void pull_once(uint64_t room)
{
    cr_assert_eq(publish(room), KVX_OK);
    const kvx_subscription_id id = subscribe(room);
    const kvx_event ready = expect_event(readers, KVX_EVENT_READY);
    cr_expect_eq(ready.subscription.value, id.value);
    cr_expect_eq(ready.user, &cookie);
    cr_expect_eq(ready.ready.components[0].page_count, PAGES);
    cr_expect_eq(memcmp(ready.ready.aux, "aux", 3), 0);
    cr_assert_eq(pull(id), KVX_OK);
    const kvx_event pulled = expect_event(readers, KVX_EVENT_PULLED);
    cr_expect_eq(pulled.room, room);
    cr_expect_eq(pulled.peer.value, peer.value);
    cr_expect_eq(pulled.stats.bytes, (uint64_t)RANKS * PAGES * WORLD_REGIONS * WORLD_PAGE_BYTES);
    for (uint32_t i = 0; i < RANKS; i++)
        cr_expect(world_pages_equal(&reader_pools[i], to, &owner_pools[i], from, PAGES), "rank %u",
                i);
    const kvx_event released = expect_event(owners, KVX_EVENT_RELEASED);
    cr_expect_eq(released.room, room);
    cr_expect_eq(released.status, KVX_OK);
    cr_expect_eq(released.user, &cookie);
}

Test(node_group, a_room_is_pulled_on_every_rank)
{
    for (uint64_t room = 1; room <= 20; room++)
        pull_once(room);
}

Test(node_group, pages_given_early_are_pulled_on_every_rank)
{
    const kvx_page_table table = { to, PAGES };
    kvx_subscription_id id;

    world_pages(to, PAGES, 50, 63);
    cr_assert_eq(kvx_group_subscribe(readers, KVX_SUBSCRIPTION(.peer = peer, .room = 1),
                         KVX_PULL(.tables = &table, .table_count = 1), &id),
            KVX_OK);
    cr_assert_eq(publish(1), KVX_OK);
    (void)expect_event(readers, KVX_EVENT_PULLED);
    for (uint32_t i = 0; i < RANKS; i++)
        cr_expect(world_pages_equal(&reader_pools[i], to, &owner_pools[i], from, PAGES));
}

Test(node_group, one_failing_rank_fails_all_with_its_cause)
{
    cr_assert_eq(publish(1), KVX_OK);
    const kvx_subscription_id id = subscribe(1);
    (void)expect_event(readers, KVX_EVENT_READY);
    cr_assert_eq(kvx_revoke(kvx_group_node(owners, 2), 1), KVX_OK);
    const kvx_event failed = expect_event(readers, KVX_EVENT_FAILED);
    cr_expect_eq(failed.status, KVX_REVOKED);
    cr_expect_eq(failed.subscription.value, id.value);
    cr_expect_neq(strstr(failed.text, "rank 2"), NULL, "%s", failed.text);
    cr_expect_not(failed.pages_held);
    cr_expect_eq(pull(id), KVX_NOT_FOUND);
    cr_expect_eq(expect_event(owners, KVX_EVENT_RELEASED).status, KVX_REVOKED);
    pull_once(2);
}

Test(node_group, a_cancelled_room_ends_on_every_rank)
{
    const kvx_subscription_id id = subscribe(1);

    cr_assert_eq(kvx_group_cancel(readers, id), KVX_OK);
    cr_expect_eq(expect_event(readers, KVX_EVENT_FAILED).status, KVX_CANCELLED);
    cr_expect_eq(kvx_group_cancel(readers, id), KVX_NOT_FOUND);
    pull_once(2); /* another room: the ABORT of the first may still be on its way */
}

Test(node_group, a_lost_rank_is_a_lost_group)
{
    char address[320];
    kvx_config *config = world_config(NULL);

    cr_assert_eq(kvx_node_address(kvx_group_node(owners, 0), address, sizeof(address)), KVX_OK);
    (void)subscribe(1);
    cr_assert_eq(kvx_group_close(&owners, WORLD_WAIT_MS), KVX_OK);
    bool is_failed = false;
    bool is_lost = false;
    while (!is_failed || !is_lost) {
        kvx_event event;
        cr_assert(kvx_group_wait(readers, &event, WORLD_WAIT_MS));
        is_failed = is_failed || event.kind == KVX_EVENT_FAILED;
        is_lost = is_lost || (event.kind == KVX_EVENT_PEER_LOST && event.peer.value == peer.value);
    }
    for (uint32_t i = 0; i < RANKS; i++)
        world_pool_fini(&owner_pools[i]);
    owners = open_group(owner_pools, 10, config, address);
    (void)expect_event(readers, KVX_EVENT_PEER_UP);
    pull_once(2);
    kvx_config_destroy(&config);
}

Test(node_group, what_one_rank_refuses_no_rank_publishes)
{
    const kvx_page page = 1;
    const kvx_page_table table = { &page, 1 };
    kvx_room_state state;

    /* Rank 3 has the room already. */
    cr_assert_eq(kvx_publish(kvx_group_node(owners, 3),
                         KVX_OFFER(.room = 1, .tokens = 1, .tables = &table, .table_count = 1)),
            KVX_OK);
    cr_expect_eq(publish(1), KVX_BUSY);
    for (uint32_t i = 0; i < 3; i++) {
        state = kvx_room_query(kvx_group_node(owners, i), 1, NULL);
        cr_expect_eq(state, KVX_ROOM_FREED, "rank %u: %d", i, state);
    }
    pull_once(2);
}

Test(node_group_opened, the_parked_limit_refuses_before_any_rank_has_begun)
{
    kvx_config *config = world_config("parked_rooms_max", "1", NULL);
    const kvx_page page = 1;
    const kvx_page_table table = { &page, 1 };
    kvx_event event;

    open_groups(config);
    kvx_config_destroy(&config);
    cr_assert_eq(kvx_publish(kvx_group_node(owners, 3),
                         KVX_OFFER(.room = 99, .tokens = 1, .tables = &table, .table_count = 1)),
            KVX_OK);
    (void)subscribe(1);
    cr_expect_eq(publish(1), KVX_AGAIN);
    cr_expect_not(kvx_group_wait(readers, &event, 1), "a reader heard of it");
    for (uint32_t i = 0; i < 3; i++)
        cr_expect_neq(kvx_room_query(kvx_group_node(owners, i), 1, NULL), KVX_ROOM_PUBLISHED);
}

Test(node_group, who_leaves_a_group_ends_what_it_had_of_it)
{
    (void)subscribe(1);
    cr_assert_eq(kvx_group_disconnect(readers, peer), KVX_OK);
    cr_expect_eq(expect_event(readers, KVX_EVENT_FAILED).status, KVX_CANCELLED);
    cr_expect_eq(kvx_group_disconnect(readers, peer), KVX_NOT_FOUND);
    const kvx_event event = expect_event(owners, KVX_EVENT_PEER_LOST);
    cr_expect(event.is_accepted);
}

Test(node_group_opened, ranks_without_threads_are_driven_by_waiting)
{
    kvx_config *config = world_config("progress", "caller", NULL);
    char address[320];
    kvx_event event;
    kvx_event_kind seen = KVX_EVENT_NONE;

    world_log_keep();
    owners = open_group(owner_pools, 10, config, "127.0.0.1:0");
    readers = open_group(reader_pools, 0, config, NULL);
    kvx_config_destroy(&config);
    cr_assert_eq(kvx_node_address(kvx_group_node(owners, 0), address, sizeof(address)), KVX_OK);
    cr_assert_eq(kvx_group_connect(readers, address, &peer), KVX_OK);
    for (const uint64_t until = world_now_ms() + WORLD_WAIT_MS;
            seen != KVX_EVENT_PULLED && world_now_ms() < until;) {
        (void)kvx_group_wait(owners, &event, 1);
        if (!kvx_group_wait(readers, &event, 1))
            continue;
        seen = event.kind;
        if (seen == KVX_EVENT_PEER_UP) {
            cr_assert_eq(publish(1), KVX_OK);
            (void)subscribe(1);
        }
        if (seen == KVX_EVENT_READY)
            cr_assert_eq(pull(event.subscription), KVX_OK);
    }
    cr_expect_eq(seen, KVX_EVENT_PULLED);
    /* Each side closes alone: the other is not progressed meanwhile. */
}

Test(node_group, its_parameters_are_checked)
{
    kvx_group *group = NULL;
    kvx_subscription_id id;

    cr_expect_eq(kvx_group_open(KVX_GROUP_PARAMS(.layouts = NULL, .rank_count = 1), &group),
            KVX_INVALID);
    cr_expect_eq(
            kvx_group_open(
                    KVX_GROUP_PARAMS(.layouts = &owner_pools[0].layout, .rank_count = 65), &group),
            KVX_INVALID);
    cr_expect_eq(
            kvx_group_subscribe(readers, KVX_SUBSCRIPTION(.peer = { 77 }, .room = 1), NULL, &id),
            KVX_NOT_FOUND);
    cr_expect_eq(kvx_group_pull(readers, (kvx_subscription_id){ 77 }, KVX_PULL(.tables = NULL)),
            KVX_NOT_FOUND);
    cr_expect_eq(kvx_group_revoke(owners, 77), KVX_NOT_FOUND);
    cr_expect_eq(kvx_group_node(owners, RANKS), NULL);
    cr_expect_eq(kvx_group_close(NULL, 0), KVX_OK);
}
