/* SPDX-License-Identifier: Apache-2.0 */
/* Two nodes of one process over loopback: what an engine sees of publishing and pulling. */
#include <criterion/criterion.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "test_node_world.h"

static world_pool owner_pool;
static world_pool reader_pool;
static kvx_node *owner;
static kvx_node *reader;
static kvx_peer_id peer;

static void open_pair(const kvx_config *config, const char *listen)
{
    world_log_keep();
    world_pool_init(&owner_pool, 1);
    world_pool_init(&reader_pool, 0);
    owner = world_open(&owner_pool, config, listen);
    reader = world_open(&reader_pool, config, NULL);
    peer = world_connect(reader, world_address(owner));
}

static void setup(void)
{
    open_pair(NULL, "127.0.0.1:0");
}

static void teardown(void)
{
    world_close(&reader);
    world_close(&owner);
    world_pool_fini(&reader_pool);
    world_pool_fini(&owner_pool);
}

TestSuite(node, .init = setup, .fini = teardown, .timeout = 60);
TestSuite(node_opened, .fini = teardown, .timeout = 60);
TestSuite(node_alone, .timeout = 60);

/* Publish, subscribe, pull, check every byte, see it released. */
static void pull_once(uint64_t room, uint32_t count)
{
    kvx_page from[WORLD_PAGES];
    kvx_page to[WORLD_PAGES];

    world_pages(from, count, (uint32_t)room, 3);
    world_pages(to, count, WORLD_PAGES - 1, WORLD_PAGES - 1);
    cr_assert_eq(world_publish(owner, room, from, count), KVX_OK);
    const kvx_subscription_id id = world_subscribe(reader, peer, room);
    const kvx_event ready = world_expect_room(reader, KVX_EVENT_READY, room);
    cr_expect_eq(ready.subscription.value, id.value);
    cr_expect_eq(ready.ready.tokens, count * WORLD_PAGE_TOKENS);
    cr_expect_eq(ready.ready.components[0].page_count, count);
    cr_expect_eq(ready.ready.aux_bytes, 11);
    cr_expect_eq(memcmp(ready.ready.aux, "first token", 11), 0);
    cr_assert_eq(world_pull(reader, id, to, count), KVX_OK);
    const kvx_event pulled = world_expect_room(reader, KVX_EVENT_PULLED, room);
    cr_expect_eq(pulled.status, KVX_OK);
    cr_expect_eq(pulled.stats.bytes, (uint64_t)count * WORLD_REGIONS * WORLD_PAGE_BYTES);
    cr_expect_eq(pulled.stats.pages, count * WORLD_REGIONS);
    cr_expect(world_pages_equal(&reader_pool, to, &owner_pool, from, count));
    const kvx_event released = world_expect_room(owner, KVX_EVENT_RELEASED, room);
    cr_expect_eq(released.status, KVX_OK);
}

Test(node, a_pulled_room_is_equal_to_what_was_published)
{
    pull_once(1, 1);
    pull_once(2, 20);
    pull_once(3, WORLD_PAGES);
}

Test(node_opened, an_ipv6_address_works_alike)
{
    open_pair(NULL, "[::1]:0");
    cr_expect_eq(strncmp(world_address(owner), "[::1]:", 6), 0);
    pull_once(1, 20);
}

Test(node_opened, a_unix_socket_works_alike_and_is_removed_at_the_end)
{
    char path[64];
    char listen[80];

    (void)snprintf(path, sizeof(path), "/tmp/kvx-test-%d.sock", (int)getpid());
    (void)snprintf(listen, sizeof(listen), "unix:%s", path);
    open_pair(NULL, listen);
    cr_expect_str_eq(world_address(owner), listen);
    pull_once(1, 20);
    cr_expect_eq(access(path, F_OK), 0);
    world_close(&owner);
    cr_expect_neq(access(path, F_OK), 0);
}

Test(node_opened, a_host_name_works_alike)
{
    struct addrinfo *found = NULL;

    if (getaddrinfo("localhost", NULL, NULL, &found) != 0)
        cr_skip_test("this host does not know the name localhost");
    freeaddrinfo(found);
    open_pair(NULL, "localhost:0");
    pull_once(1, 20);
}

Test(node, a_subscription_may_come_before_the_room)
{
    kvx_page from[4];
    kvx_page to[4];

    world_pages(from, 4, 8, 1);
    world_pages(to, 4, 20, 2);
    const kvx_subscription_id id = world_subscribe(reader, peer, 7);
    cr_expect_eq(kvx_room_query(reader, 7, NULL), KVX_ROOM_WAITING);
    cr_assert_eq(world_publish(owner, 7, from, 4), KVX_OK);
    (void)world_expect_room(reader, KVX_EVENT_READY, 7);
    cr_assert_eq(world_pull(reader, id, to, 4), KVX_OK);
    (void)world_expect_room(reader, KVX_EVENT_PULLED, 7);
    cr_expect(world_pages_equal(&reader_pool, to, &owner_pool, from, 4));
}

Test(node, pages_that_are_given_early_are_pulled_without_a_word)
{
    kvx_page from[4];
    kvx_page to[4];
    const kvx_page_table table = { to, 4 };
    kvx_subscription_id id;
    kvx_event event;

    world_pages(from, 4, 8, 1);
    world_pages(to, 4, 20, 2);
    cr_assert_eq(kvx_subscribe_early(reader, KVX_SUBSCRIPTION(.peer = peer, .room = 7),
                         KVX_PULL(.tables = &table, .table_count = 1), &id),
            KVX_OK);
    cr_assert_eq(world_publish(owner, 7, from, 4), KVX_OK);
    cr_assert(kvx_node_wait(reader, &event, WORLD_WAIT_MS));
    cr_expect_eq(event.kind, KVX_EVENT_PULLED);
    cr_expect(world_pages_equal(&reader_pool, to, &owner_pool, from, 4));
}

Test(node, a_room_can_be_released_without_reading_it)
{
    kvx_page from[4];

    world_pages(from, 4, 8, 1);
    cr_assert_eq(world_publish(owner, 7, from, 4), KVX_OK);
    const kvx_subscription_id id = world_subscribe(reader, peer, 7);
    (void)world_expect_room(reader, KVX_EVENT_READY, 7);
    cr_assert_eq(kvx_release(reader, id), KVX_OK);
    const kvx_event event = world_expect_room(reader, KVX_EVENT_PULLED, 7);
    cr_expect_eq(event.stats.bytes, 0);
    cr_expect_eq(world_expect_room(owner, KVX_EVENT_RELEASED, 7).status, KVX_OK);
}

Test(node, a_released_room_is_gone)
{
    pull_once(9, 2);
    (void)world_subscribe(reader, peer, 9);
    const kvx_event event = world_expect_room(reader, KVX_EVENT_FAILED, 9);
    cr_expect_eq(event.status, KVX_GONE);
    cr_expect_eq(event.scope, KVX_SCOPE_REQUEST);
    kvx_status status = KVX_AGAIN;
    cr_expect_eq(kvx_room_query(owner, 9, &status), KVX_ROOM_FREED);
    cr_expect_eq(status, KVX_OK);
}

Test(node, an_aborted_room_fails_who_waits_for_it)
{
    (void)world_subscribe(reader, peer, 9);
    cr_assert_eq(kvx_abort(owner, 9), KVX_OK);
    cr_expect_eq(world_expect_room(reader, KVX_EVENT_FAILED, 9).status, KVX_GONE);
}

Test(node, a_revoked_room_comes_back_and_its_reader_hears_of_it)
{
    kvx_page from[4];

    world_pages(from, 4, 8, 1);
    cr_assert_eq(world_publish(owner, 7, from, 4), KVX_OK);
    (void)world_subscribe(reader, peer, 7);
    (void)world_expect_room(reader, KVX_EVENT_READY, 7);
    cr_assert_eq(kvx_revoke(owner, 7), KVX_OK);
    cr_expect_eq(world_expect_room(reader, KVX_EVENT_FAILED, 7).status, KVX_REVOKED);
    cr_expect_eq(world_expect_room(owner, KVX_EVENT_RELEASED, 7).status, KVX_REVOKED);
    cr_expect_eq(kvx_revoke(owner, 7), KVX_NOT_FOUND);
}

Test(node, a_cancelled_subscription_ends_and_lets_the_owner_go_on)
{
    kvx_page from[4];

    world_pages(from, 4, 8, 1);
    cr_assert_eq(world_publish(owner, 7, from, 4), KVX_OK);
    const kvx_subscription_id id = world_subscribe(reader, peer, 7);
    (void)world_expect_room(reader, KVX_EVENT_READY, 7);
    cr_assert_eq(kvx_cancel(reader, id), KVX_OK);
    cr_expect_eq(world_expect_room(reader, KVX_EVENT_FAILED, 7).status, KVX_CANCELLED);
    (void)world_expect_room(owner, KVX_EVENT_RELEASED, 7);
    cr_expect_eq(kvx_cancel(reader, id), KVX_NOT_FOUND);
}

Test(node, a_prefix_that_is_here_already_is_skipped)
{
    kvx_page from[4];
    kvx_page to[3];
    const kvx_page_table table = { to, 3 };

    world_pages(from, 4, 8, 1);
    world_pages(to, 3, 20, 2);
    cr_assert_eq(world_publish(owner, 7, from, 4), KVX_OK);
    const kvx_subscription_id id = world_subscribe(reader, peer, 7);
    (void)world_expect_room(reader, KVX_EVENT_READY, 7);
    cr_expect_eq(
            kvx_pull(reader, id, KVX_PULL(.tables = &table, .table_count = 1, .first_token = 1)),
            KVX_INVALID);
    cr_assert_eq(
            kvx_pull(reader, id,
                    KVX_PULL(.tables = &table, .table_count = 1, .first_token = WORLD_PAGE_TOKENS)),
            KVX_OK);
    (void)world_expect_room(reader, KVX_EVENT_PULLED, 7);
    cr_expect(world_pages_equal(&reader_pool, to, &owner_pool, from + 1, 3));
}

Test(node, a_page_named_twice_fails_the_pull_by_its_number)
{
    kvx_page from[3];
    const kvx_page to[3] = { 20, 21, 20 };

    world_pages(from, 3, 8, 1);
    cr_assert_eq(world_publish(owner, 7, from, 3), KVX_OK);
    const kvx_subscription_id id = world_subscribe(reader, peer, 7);
    (void)world_expect_room(reader, KVX_EVENT_READY, 7);
    cr_assert_eq(world_pull(reader, id, to, 3), KVX_OK);
    const kvx_event event = world_expect_room(reader, KVX_EVENT_FAILED, 7);
    cr_expect_eq(event.status, KVX_BUSY);
    cr_expect(event.has_page);
    cr_expect_eq(event.page, 20);
    pull_once(8, 4);
}

Test(node, what_cannot_be_is_refused_at_once)
{
    kvx_page pages[WORLD_PAGES];
    const kvx_page_table table = { pages, 4 };
    const kvx_page_table nothing = { NULL, 4 };
    kvx_subscription_id id;
    kvx_peer_id other;

    world_pages(pages, 4, 0, 1);
    cr_expect_eq(kvx_publish(owner, KVX_OFFER(.room = 1, .tokens = 64, .tables = &table,
                                            .table_count = 1, .is_partial = true)),
            KVX_UNSUPPORTED);
    cr_expect(world_log_has("not built yet"));
    cr_expect_eq(kvx_publish(owner,
                         KVX_OFFER(.room = 1, .tokens = 65, .tables = &table, .table_count = 1)),
            KVX_INVALID);
    cr_expect_eq(kvx_publish(owner,
                         KVX_OFFER(.room = 1, .tokens = 64, .tables = &nothing, .table_count = 1)),
            KVX_INVALID);
    cr_expect_eq(kvx_publish(owner, &(kvx_offer){ .room = 1 }), KVX_INVALID);
    cr_expect(world_log_has("struct_size"));
    cr_expect_eq(kvx_publish(owner, &(kvx_offer){ .struct_size = 4096 }), KVX_INVALID);
    cr_expect_eq(
            kvx_subscribe(reader, KVX_SUBSCRIPTION(.peer = { 99 }, .room = 1), &id), KVX_NOT_FOUND);
    cr_expect_eq(kvx_connect(reader, "nowhere", 0, &other), KVX_INVALID);
    cr_expect_eq(kvx_connect(reader, "127.0.0.1:0", 0, &other), KVX_INVALID);
    cr_expect_eq(kvx_disconnect(reader, (kvx_peer_id){ 99 }), KVX_NOT_FOUND);
    cr_expect_eq(kvx_node_progress(reader), KVX_INVALID);
    cr_expect_eq(kvx_cancel(reader, (kvx_subscription_id){ 12345 }), KVX_NOT_FOUND);
}

Test(node, who_leaves_a_peer_ends_what_it_had_of_it)
{
    (void)world_subscribe(reader, peer, 5);
    cr_assert_eq(kvx_disconnect(reader, peer), KVX_OK);
    cr_expect_eq(world_expect_room(reader, KVX_EVENT_FAILED, 5).status, KVX_CANCELLED);
    const kvx_event event = world_expect(owner, KVX_EVENT_PEER_LOST);
    cr_expect(event.is_accepted);
    cr_expect_eq(event.status, KVX_OK);
    peer = world_connect(reader, world_address(owner));
    pull_once(6, 4);
}

Test(node, an_owner_that_comes_back_on_its_port_is_found_again)
{
    char address[320];

    (void)snprintf(address, sizeof(address), "%s", world_address(owner));
    for (int i = 0; i < 5; i++) {
        (void)world_subscribe(reader, peer, 5);
        world_close(&owner);
        (void)world_expect_room(reader, KVX_EVENT_FAILED, 5);
        owner = world_open(&owner_pool, NULL, address);
        (void)world_expect(reader, KVX_EVENT_PEER_UP);
        pull_once(6, 4);
    }
}

Test(node_opened, what_is_parked_has_a_limit_and_room_is_announced)
{
    kvx_config *config = world_config("parked_rooms_max", "1", NULL);
    kvx_page pages[2];

    open_pair(config, "127.0.0.1:0");
    kvx_config_destroy(&config);
    world_pages(pages, 2, 0, 1);
    cr_assert_eq(world_publish(owner, 1, pages, 2), KVX_OK);
    cr_expect_eq(world_publish(owner, 2, pages, 2), KVX_AGAIN);
    cr_expect_eq(kvx_reserve(owner, 2, 4096), KVX_AGAIN);
    cr_assert_eq(kvx_revoke(owner, 1), KVX_OK);
    (void)world_expect(owner, KVX_EVENT_ROOM);
    cr_expect_eq(world_publish(owner, 2, pages, 2), KVX_OK);
}

Test(node, a_drained_node_refuses_and_is_done_when_the_last_room_is)
{
    kvx_page pages[2];
    kvx_page to[2];

    world_pages(pages, 2, 0, 1);
    world_pages(to, 2, 30, 1);
    cr_assert_eq(world_publish(owner, 1, pages, 2), KVX_OK);
    cr_expect_eq(kvx_node_drain(owner, 20), KVX_AGAIN);
    cr_expect_eq(world_publish(owner, 2, pages, 2), KVX_CLOSED);
    const kvx_subscription_id id = world_subscribe(reader, peer, 1);
    (void)world_expect_room(reader, KVX_EVENT_READY, 1);
    cr_assert_eq(world_pull(reader, id, to, 2), KVX_OK);
    cr_expect_eq(kvx_node_drain(owner, WORLD_WAIT_MS), KVX_OK);
}

Test(node, a_closing_owner_takes_its_pages_back)
{
    kvx_page pages[2];

    world_pages(pages, 2, 0, 1);
    cr_assert_eq(world_publish(owner, 1, pages, 2), KVX_OK);
    (void)world_subscribe(reader, peer, 1);
    (void)world_expect_room(reader, KVX_EVENT_READY, 1);
    world_close(&owner);
    cr_expect_eq(world_expect_room(reader, KVX_EVENT_FAILED, 1).status, KVX_REVOKED);
}

Test(node, a_pool_can_be_changed_and_is_found_again)
{
    world_pool other;
    kvx_page pages[2];

    world_pages(pages, 2, 0, 1);
    pull_once(1, 4);
    cr_assert_eq(world_publish(owner, 2, pages, 2), KVX_OK);
    world_pool_init(&other, 77);
    cr_assert_eq(kvx_node_reregister(owner, &other.layout, WORLD_WAIT_MS), KVX_OK);
    world_pool_fini(&owner_pool);
    owner_pool = other;
    owner_pool.layout.components = &owner_pool.component;
    owner_pool.layout.regions = owner_pool.regions;
    cr_expect_eq(world_expect_room(owner, KVX_EVENT_RELEASED, 2).status, KVX_REVOKED);
    (void)world_expect(reader, KVX_EVENT_PEER_UP);
    pull_once(3, 8);
}

Test(node, counters_and_the_transport_can_be_asked_for)
{
    char text[65536];
    kvx_metrics_snapshot snapshot = { .struct_size = sizeof(snapshot) };
    kvx_ep_info info;

    pull_once(1, 4);
    cr_assert_eq(kvx_node_metrics(reader, &snapshot), KVX_OK);
    cr_expect_eq(snapshot.pulled, 1);
    cr_expect_eq(snapshot.pages_read, 4 * WORLD_REGIONS);
    cr_expect_eq(snapshot.subscriptions, 0);
    cr_assert_lt(kvx_node_metrics_text(owner, text, sizeof(text)), sizeof(text));
    cr_expect_neq(strstr(text, "rank=\"0\""), NULL);
    cr_expect_str_eq(kvx_node_transport(reader, peer, &info), "loopback");
    cr_expect_eq(info.read_mode, KVX_READ_ONE_SIDED);
    cr_expect_str_eq(kvx_node_transport(owner, (kvx_peer_id){ 0 }, NULL), "loopback");
    cr_expect_eq(kvx_node_transport(reader, (kvx_peer_id){ 99 }, NULL), NULL);
    cr_expect_eq(kvx_node_address(reader, text, sizeof(text)), KVX_NOT_FOUND);
    cr_expect_eq(kvx_node_address(owner, text, 3), KVX_NO_SPACE);
}

Test(node, its_descriptor_is_readable_exactly_while_there_are_events)
{
    struct pollfd waited = { .fd = kvx_node_event_fd(reader), .events = POLLIN };
    kvx_event event;

    while (kvx_node_poll(reader, &event))
        continue;
    cr_expect_eq(poll(&waited, 1, 0), 0);
    cr_expect_eq(kvx_node_arm(reader), KVX_OK);
    cr_assert_eq(kvx_abort(owner, 3), KVX_OK);
    (void)world_subscribe(reader, peer, 3);
    cr_expect_eq(poll(&waited, 1, WORLD_WAIT_MS), 1);
    cr_expect_eq(kvx_node_arm(reader), KVX_AGAIN);
    cr_assert(kvx_node_poll(reader, &event));
    cr_expect_eq(event.kind, KVX_EVENT_FAILED);
    cr_expect_eq(poll(&waited, 1, 0), 0);
}

/* --- progress = caller --- */

/* Drive both nodes until one of them has an event of this kind. */
static kvx_event drive_until(kvx_node *node, kvx_event_kind kind)
{
    struct pollfd waited[2] = {
        { .fd = kvx_node_event_fd(owner), .events = POLLIN },
        { .fd = kvx_node_event_fd(reader), .events = POLLIN },
    };
    const uint64_t until = world_now_ms() + WORLD_WAIT_MS;
    kvx_event event;

    while (world_now_ms() < until) {
        bool is_busy = kvx_node_progress(owner) == KVX_AGAIN;
        is_busy = kvx_node_progress(reader) == KVX_AGAIN || is_busy;
        while (kvx_node_poll(node, &event)) {
            if (event.kind == kind)
                return event;
        }
        kvx_node *idle = node == owner ? reader : owner;
        while (kvx_node_poll(idle, &event))
            continue;
        if (!is_busy && kvx_node_arm(owner) == KVX_OK && kvx_node_arm(reader) == KVX_OK)
            cr_assert_geq(poll(waited, 2, WORLD_WAIT_MS), 1, "nothing woke us for %d", kind);
    }
    cr_assert_fail("event %d did not come", (int)kind);
    return event;
}

static void open_driven(void)
{
    kvx_config *config = world_config("progress", "caller", NULL);

    world_log_keep();
    world_pool_init(&owner_pool, 1);
    world_pool_init(&reader_pool, 0);
    owner = world_open(&owner_pool, config, "127.0.0.1:0");
    reader = world_open(&reader_pool, config, NULL);
    kvx_config_destroy(&config);
    cr_assert_eq(kvx_connect(reader, world_address(owner), 0, &peer), KVX_OK);
    (void)drive_until(reader, KVX_EVENT_PEER_UP);
}

static void close_driven(void)
{
    world_close(&reader);
    world_close(&owner);
    world_pool_fini(&reader_pool);
    world_pool_fini(&owner_pool);
}

TestSuite(node_driven, .init = open_driven, .fini = close_driven, .timeout = 60);

Test(node_driven, a_caller_that_waits_on_the_descriptor_misses_nothing)
{
    kvx_page from[4];
    kvx_page to[4];

    world_pages(from, 4, 8, 1);
    world_pages(to, 4, 20, 2);
    for (uint64_t room = 1; room <= 50; room++) {
        cr_assert_eq(world_publish(owner, room, from, 4), KVX_OK);
        const kvx_subscription_id id = world_subscribe(reader, peer, room);
        (void)drive_until(reader, KVX_EVENT_READY);
        cr_assert_eq(world_pull(reader, id, to, 4), KVX_OK);
        (void)drive_until(reader, KVX_EVENT_PULLED);
        cr_expect(world_pages_equal(&reader_pool, to, &owner_pool, from, 4));
    }
}

Test(node_driven, timers_wake_the_caller_too)
{
    kvx_subscription_id id;

    cr_assert_eq(kvx_subscribe(reader,
                         KVX_SUBSCRIPTION(.peer = peer, .room = 1, .patience_ms = 300), &id),
            KVX_OK);
    const kvx_event event = drive_until(reader, KVX_EVENT_FAILED);
    cr_expect_eq(event.status, KVX_EXPIRED);
}

Test(node_driven, closing_is_bounded_while_a_reader_does_not_answer)
{
    kvx_page from[4];

    world_pages(from, 4, 8, 1);
    cr_assert_eq(world_publish(owner, 1, from, 4), KVX_OK);
    (void)world_subscribe(reader, peer, 1);
    (void)drive_until(reader, KVX_EVENT_READY);
    cr_expect_eq(kvx_node_close(&owner, 50), KVX_AGAIN);
    cr_expect_neq(owner, NULL);
    cr_expect_eq(world_publish(owner, 2, from, 4), KVX_CLOSED);
    (void)drive_until(reader, KVX_EVENT_FAILED);
    cr_expect_eq(kvx_node_close(&owner, WORLD_WAIT_MS), KVX_OK);
    cr_expect_eq(owner, NULL);
}

/* --- opening --- */

Test(node_alone, nodes_of_one_process_share_a_listener)
{
    kvx_config *config = world_config(NULL);
    kvx_node *nodes[2] = { NULL, NULL };
    kvx_node *twice = NULL;
    char first[320];

    world_log_keep();
    world_pool_init(&owner_pool, 1);
    world_pool_init(&reader_pool, 0);
    for (uint32_t i = 0; i < 2; i++)
        cr_assert_eq(kvx_node_open(KVX_NODE_PARAMS(.config = config, .layout = &owner_pool.layout,
                                           .rank = i, .ranks = 2, .listen = "127.0.0.1:0"),
                             &nodes[i]),
                KVX_OK);
    (void)snprintf(first, sizeof(first), "%s", world_address(nodes[0]));
    cr_expect_str_eq(first, world_address(nodes[1]));
    cr_expect_eq(kvx_node_open(KVX_NODE_PARAMS(.config = config, .layout = &owner_pool.layout,
                                       .rank = 1, .ranks = 2, .listen = first),
                         &twice),
            KVX_IO);
    cr_expect(world_log_has("in use"));

    cr_assert_eq(kvx_node_open(KVX_NODE_PARAMS(.config = config, .layout = &reader_pool.layout,
                                       .rank = 1, .ranks = 2),
                         &reader),
            KVX_OK);
    cr_assert_eq(kvx_connect(reader, first, 1, &peer), KVX_OK);
    (void)world_expect(reader, KVX_EVENT_PEER_UP);
    owner = nodes[1];
    pull_once(1, 4);
    kvx_config_destroy(&config);
    world_close(&nodes[0]);
    teardown();
}

Test(node_alone, what_is_wrong_with_its_parameters_is_said)
{
    kvx_config *config = world_config(NULL);
    kvx_node *node = NULL;
    world_pool pool;
    static const struct {
        const char *listen;
        kvx_status status;
        const char *says;
    } rows[] = {
        { "7000", KVX_INVALID, "host:port" },
        { ":7000", KVX_INVALID, "names no host" },
        { "203.0.113.1:0", KVX_IO, "no interface of this machine" },
        { "no-such-host.invalid:0", KVX_IO, "no-such-host.invalid" },
        { "unix:/no-such-folder/kvx.sock", KVX_IO, "does not exist" },
    };

    world_log_keep();
    world_pool_init(&pool, 1);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        cr_expect_eq(kvx_node_open(KVX_NODE_PARAMS(.config = config, .layout = &pool.layout,
                                           .listen = rows[i].listen),
                             &node),
                rows[i].status, "%s", rows[i].listen);
        cr_expect(world_log_has(rows[i].says), "%s", rows[i].listen);
    }
    cr_expect_eq(kvx_node_open(KVX_NODE_PARAMS(.config = config, .layout = &pool.layout, .rank = 8,
                                       .ranks = 8),
                         &node),
            KVX_INVALID);
    cr_expect_eq(kvx_node_open(KVX_NODE_PARAMS(.config = config), &node), KVX_INVALID);
    cr_expect_eq(kvx_config_set(config, "transport", "carrier-pigeon"), KVX_INVALID);
    cr_expect(world_log_has("carrier-pigeon"));
    cr_expect_eq(node, NULL);
    kvx_config_destroy(&config);
    world_pool_fini(&pool);
}

Test(node_alone, a_pool_of_too_many_regions_for_a_hello_is_refused_by_name)
{
    static kvx_region regions[KVX_REGION_MAX];
    static uint8_t memory[KVX_REGION_MAX][64];
    const kvx_component component = { "kv", 16, 1, "token" };
    const kvx_layout layout = { &component, 1, regions, KVX_REGION_MAX };
    kvx_config *config = world_config(NULL);
    kvx_node *node = NULL;

    world_log_keep();
    for (uint32_t i = 0; i < KVX_REGION_MAX; i++)
        regions[i] = (kvx_region){
            .role = "mla", .layer = i, .base = memory[i], .page_bytes = sizeof(memory[i])
        };
    cr_expect_eq(kvx_node_open(KVX_NODE_PARAMS(.config = config, .layout = &layout), &node),
            KVX_INVALID);
    cr_expect(world_log_has("4096 regions"));
    kvx_config_destroy(&config);
}

Test(node_alone, waiting_for_nothing_ends_with_nothing)
{
    world_pool pool;
    kvx_event event = { .kind = KVX_EVENT_PULLED };

    world_pool_init(&pool, 1);
    kvx_node *node = world_open(&pool, NULL, NULL);
    cr_expect_not(kvx_node_wait(node, &event, 1));
    cr_expect_eq(event.kind, KVX_EVENT_NONE);
    cr_expect_not(kvx_node_poll(node, &event));
    cr_expect_eq(kvx_room_query(node, 1, NULL), KVX_ROOM_UNKNOWN);
    world_close(&node);
    world_pool_fini(&pool);
}

Test(node_alone, a_wildcard_is_bound_only_when_it_is_named_and_then_warned_of)
{
    world_pool pool;

    world_log_keep();
    world_pool_init(&pool, 1);
    kvx_node *node = world_open(&pool, NULL, "0.0.0.0:0");
    cr_expect(world_log_has("every interface"));
    world_close(&node);
    world_pool_fini(&pool);
}

Test(node_alone, nothing_is_a_node_that_can_be_closed)
{
    kvx_node *node = NULL;

    cr_expect_eq(kvx_node_close(NULL, 0), KVX_OK);
    cr_expect_eq(kvx_node_close(&node, 0), KVX_OK);
}
