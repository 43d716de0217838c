/* SPDX-License-Identifier: Apache-2.0 */
/* What a program or its surroundings do to nodes that is not nice: forks, floods, several threads
 * in one call, files that vanish, ranks that disagree. */
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test_node_world.h"

static world_pool owner_pool;
static world_pool reader_pool;
static kvx_node *owner;
static kvx_node *reader;
static char owner_address[320];

static void setup(void)
{
    world_log_keep();
    world_pool_init(&owner_pool, 1);
    world_pool_init(&reader_pool, 0);
    owner = world_open(&owner_pool, NULL, "127.0.0.1:0");
    reader = world_open(&reader_pool, NULL, NULL);
    (void)snprintf(owner_address, sizeof(owner_address), "%s", world_address(owner));
}

static void teardown(void)
{
    world_close(&reader);
    world_close(&owner);
    world_pool_fini(&reader_pool);
    world_pool_fini(&owner_pool);
}

TestSuite(node_hostile, .init = setup, .fini = teardown, .timeout = 60);

static void pull_room(kvx_peer_id peer, uint64_t room)
{
    kvx_page from[4];
    kvx_page to[4];

    world_pages(from, 4, 8, 1);
    world_pages(to, 4, 20, 2);
    cr_assert_eq(world_publish(owner, room, from, 4), KVX_OK);
    const kvx_subscription_id id = world_subscribe(reader, peer, room);
    (void)world_expect_room(reader, KVX_EVENT_READY, room);
    cr_assert_eq(world_pull(reader, id, to, 4), KVX_OK);
    (void)world_expect_room(reader, KVX_EVENT_PULLED, room);
    cr_expect(world_pages_equal(&reader_pool, to, &owner_pool, from, 4));
}

/* --- fork --- */

/* A child that refuses to end until it is told. */
static pid_t fork_idle(void)
{
    const pid_t child = fork();

    cr_assert_geq(child, 0);
    while (child == 0)
        (void)pause();
    return child;
}

static void end_child(pid_t child)
{
    (void)kill(child, SIGKILL);
    (void)waitpid(child, NULL, 0);
}

Test(node_hostile, a_forked_child_keeps_neither_the_port_nor_the_connections_open)
{
    const kvx_peer_id peer = world_connect(reader, owner_address);
    const pid_t child = fork_idle();

    pull_room(peer, 1);
    world_close(&owner);
    (void)world_expect(reader, KVX_EVENT_PEER_LOST);
    owner = world_open(&owner_pool, NULL, owner_address);
    (void)world_expect(reader, KVX_EVENT_PEER_UP);
    pull_room(peer, 2);
    end_child(child);
}

/* --- several threads in one call --- */

typedef struct waiter {
    pthread_t thread;
    kvx_status status;
} waiter;

static void *drain(void *arg)
{
    waiter *self = arg;

    self->status = kvx_node_drain(owner, 10 * WORLD_WAIT_MS);
    return NULL;
}

Test(node_hostile, two_threads_that_drain_both_see_the_end)
{
    waiter waiters[2];
    kvx_page pages[4];
    const kvx_peer_id peer = world_connect(reader, owner_address);

    world_pages(pages, 4, 8, 1);
    cr_assert_eq(world_publish(owner, 1, pages, 4), KVX_OK);
    const kvx_subscription_id id = world_subscribe(reader, peer, 1);
    (void)world_expect_room(reader, KVX_EVENT_READY, 1);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(pthread_create(&waiters[i].thread, NULL, drain, &waiters[i]), 0);
    cr_assert_eq(world_pull(reader, id, pages, 4), KVX_OK);
    for (int i = 0; i < 2; i++) {
        (void)pthread_join(waiters[i].thread, NULL);
        cr_expect_eq(waiters[i].status, KVX_OK);
    }
}

static void *reregister(void *arg)
{
    waiter *self = arg;

    self->status = kvx_node_reregister(owner, &owner_pool.layout, 0);
    return NULL;
}

Test(node_hostile, two_threads_that_change_the_pool_do_so_one_after_the_other_or_not_at_all)
{
    waiter waiters[2];
    const kvx_peer_id peer = world_connect(reader, owner_address);

    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 2; i++)
            cr_assert_eq(pthread_create(&waiters[i].thread, NULL, reregister, &waiters[i]), 0);
        for (int i = 0; i < 2; i++)
            (void)pthread_join(waiters[i].thread, NULL);
        for (int i = 0; i < 2; i++)
            cr_expect(waiters[i].status == KVX_OK || waiters[i].status == KVX_BUSY);
        cr_expect(waiters[0].status == KVX_OK || waiters[1].status == KVX_OK);
        (void)world_expect(reader, KVX_EVENT_PEER_UP);
    }
    pull_room(peer, 1);
}

/* --- sockets --- */

/* Connections that say nothing; -1 where no more could be made. */
static void dial_silently(int *sockets, int count)
{
    struct sockaddr_in address = { .sin_family = AF_INET };

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons((uint16_t)atoi(strrchr(owner_address, ':') + 1));
    for (int i = 0; i < count; i++) {
        sockets[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (sockets[i] >= 0)
            (void)connect(sockets[i], (struct sockaddr *)&address, sizeof(address));
    }
}

static void close_all(const int *sockets, int count)
{
    for (int i = 0; i < count; i++) {
        if (sockets[i] >= 0)
            (void)close(sockets[i]);
    }
}

Test(node_hostile, a_process_out_of_descriptors_takes_connections_again_once_it_has_some)
{
    int sockets[128];
    kvx_peer_id peer;
    struct rlimit limit;

    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = 120;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    dial_silently(sockets, 128);
    cr_assert_eq(kvx_connect(reader, owner_address, 0, &peer), KVX_OK);
    (void)world_expect(reader, KVX_EVENT_PEER_LOST);
    close_all(sockets, 128);
    (void)world_expect(reader, KVX_EVENT_PEER_UP);
    pull_room(peer, 1);
}

/* --- addresses --- */

Test(node_hostile, each_spelling_of_the_wildcard_is_warned_about)
{
    kvx_node *node = world_open(&reader_pool, NULL, "0:0");

    cr_expect(world_log_has("every interface"));
    world_close(&node);
}

Test(node_hostile, an_address_that_is_too_long_to_listen_on_is_refused_with_a_word)
{
    char listen_on[512] = "";
    kvx_node *node = NULL;

    memset(listen_on, 'a', sizeof(listen_on) - 1);
    cr_expect_eq(kvx_node_open(KVX_NODE_PARAMS(.layout = &reader_pool.layout, .listen = listen_on),
                         &node),
            KVX_INVALID);
    cr_expect(world_log_has("an address has at most"));
}

Test(node_hostile, another_rank_may_name_the_address_that_port_0_became)
{
    kvx_config *config = world_config(NULL);
    kvx_node *node = NULL;

    cr_assert_eq(kvx_node_open(KVX_NODE_PARAMS(.config = config, .layout = &reader_pool.layout,
                                       .listen = owner_address, .rank = 1, .ranks = 2),
                         &node),
            KVX_OK);
    cr_expect_str_eq(world_address(node), owner_address);
    world_close(&node);
    kvx_config_destroy(&config);
}

Test(node_hostile, a_socket_file_that_is_another_process_s_by_now_is_left_alone)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    char listen_on[128];

    (void)snprintf(
            address.sun_path, sizeof(address.sun_path), "/tmp/kvx-other-%d.sock", (int)getpid());
    (void)snprintf(listen_on, sizeof(listen_on), "unix:%s", address.sun_path);
    kvx_node *node = world_open(&reader_pool, NULL, listen_on);
    cr_assert_eq(unlink(address.sun_path), 0);
    const int other = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(bind(other, (struct sockaddr *)&address, sizeof(address)), 0);
    world_close(&node);
    cr_expect_eq(access(address.sun_path, F_OK), 0);
    (void)close(other);
    (void)unlink(address.sun_path);
}

/* --- a node and itself --- */

Test(node_hostile, a_node_may_pull_from_itself)
{
    kvx_page from[4];
    kvx_page to[4];
    kvx_peer_id peer;
    kvx_event event;

    cr_assert_eq(kvx_connect(owner, owner_address, 0, &peer), KVX_OK);
    do {
        event = world_expect(owner, KVX_EVENT_PEER_UP);
    } while (event.is_accepted);
    world_pages(from, 4, 0, 1);
    world_pages(to, 4, 40, 1);
    cr_assert_eq(world_publish(owner, 1, from, 4), KVX_OK);
    const kvx_subscription_id id = world_subscribe(owner, peer, 1);
    (void)world_expect_room(owner, KVX_EVENT_READY, 1);
    cr_assert_eq(world_pull(owner, id, to, 4), KVX_OK);
    (void)world_expect_room(owner, KVX_EVENT_PULLED, 1);
    cr_expect(world_pages_equal(&owner_pool, to, &owner_pool, from, 4));
}

/* --- ranks that disagree --- */

static void publish_tokens(kvx_node *node, uint32_t page_count)
{
    kvx_page pages[4];

    world_pages(pages, page_count, 0, 1);
    cr_assert_eq(world_publish(node, 1, pages, page_count), KVX_OK);
}

static kvx_node *open_rank(const world_pool *pool, uint32_t rank)
{
    kvx_config *config = world_config(NULL);
    kvx_node *node = NULL;

    cr_assert_eq(kvx_node_open(KVX_NODE_PARAMS(.config = config, .layout = &pool->layout,
                                       .listen = owner_address, .rank = rank, .ranks = 2),
                         &node),
            KVX_OK);
    kvx_config_destroy(&config);
    return node;
}

/* A group of two ranks that waits for room 1 of the owners. */
static kvx_group *open_subscriber(const world_pool *pools)
{
    const kvx_layout layouts[2] = { pools[0].layout, pools[1].layout };
    kvx_config *config = world_config(NULL);
    kvx_group *group = NULL;
    kvx_event event = { 0 };
    kvx_subscription_id id;
    kvx_peer_id peer;

    cr_assert_eq(
            kvx_group_open(KVX_GROUP_PARAMS(.config = config, .layouts = layouts, .rank_count = 2),
                    &group),
            KVX_OK);
    kvx_config_destroy(&config);
    cr_assert_eq(kvx_group_connect(group, owner_address, &peer), KVX_OK);
    while (event.kind != KVX_EVENT_PEER_UP)
        cr_assert(kvx_group_wait(group, &event, WORLD_WAIT_MS));
    cr_assert_eq(kvx_group_subscribe(group, KVX_SUBSCRIPTION(.peer = peer, .room = 1), NULL, &id),
            KVX_OK);
    return group;
}

/* The rank that speaks for the group comes last, which must not hide what the other said. */
Test(node_hostile, ranks_with_different_tokens_are_a_mismatch_in_whatever_order_they_come)
{
    world_pool pools[3];
    kvx_event event;

    world_close(&owner);
    for (int i = 0; i < 3; i++)
        world_pool_init(&pools[i], (uint8_t)i);
    owner = open_rank(&owner_pool, 0);
    kvx_node *second = open_rank(&pools[2], 1);
    kvx_group *group = open_subscriber(pools);

    publish_tokens(second, 3);
    while (kvx_room_query(kvx_group_node(group, 1), 1, NULL) != KVX_ROOM_READY)
        cr_assert_not(kvx_group_wait(group, &event, 1));
    cr_assert_not(kvx_group_wait(group, &event, 1)); /* it has seen the second rank's READY */
    publish_tokens(owner, 4);
    cr_assert(kvx_group_wait(group, &event, WORLD_WAIT_MS));
    cr_expect_eq(event.kind, KVX_EVENT_FAILED);
    cr_expect_eq(event.status, KVX_MISMATCH);
    cr_expect_eq(kvx_group_close(&group, WORLD_WAIT_MS), KVX_OK);
    world_close(&second);
    for (int i = 0; i < 3; i++)
        world_pool_fini(&pools[i]);
}
