/* SPDX-License-Identifier: Apache-2.0 */
/* Owner and reader as two processes over cma, and what a fork leaves alone. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test_node_world.h"

#define SEED       9
#define ROOM_PAGES 20

TestSuite(node_process, .timeout = 60);

/* --- an owner in a process of its own --- */

typedef struct remote_owner {
    pid_t pid;
    int channel; /* it writes its address; closing our end ends it */
    char address[320];
} remote_owner;

static void owner_pages(kvx_page *pages)
{
    world_pages(pages, ROOM_PAGES, 5, 3);
}

/* Publishes rooms 1 to 8 again and again, until it is told to end. */
static void owner_main(int channel, const char *listen)
{
    kvx_config *config = NULL;
    world_pool pool;
    kvx_node *node = NULL;
    kvx_page pages[ROOM_PAGES];
    kvx_event event;
    char text[320];

    if (kvx_config_create(&config) != KVX_OK || kvx_config_set(config, "transport", "cma") != KVX_OK)
        _exit(1);
    world_pool_init(&pool, SEED);
    owner_pages(pages);
    if (kvx_node_open(KVX_NODE_PARAMS(.config = config, .layout = &pool.layout, .listen = listen),
                &node) != KVX_OK)
        _exit(2);
    for (uint64_t room = 1; room <= 8; room++)
        if (world_publish(node, room, pages, ROOM_PAGES) != KVX_OK)
            _exit(3);
    if (kvx_node_address(node, text, sizeof(text)) != KVX_OK ||
            write(channel, text, sizeof(text)) != (ssize_t)sizeof(text))
        _exit(4);
    for (char end; recv(channel, &end, 1, MSG_DONTWAIT) != 0;) {
        if (kvx_node_wait(node, &event, 20) && event.kind == KVX_EVENT_RELEASED &&
                world_publish(node, event.room, pages, ROOM_PAGES) != KVX_OK)
            _exit(5);
    }
    _exit(kvx_node_close(&node, WORLD_WAIT_MS) == KVX_OK ? 0 : 6);
}

/* Before this process has threads. */
static remote_owner owner_start(const char *listen)
{
    remote_owner remote = { 0 };
    int ends[2];

    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    remote.pid = fork();
    cr_assert_geq(remote.pid, 0);
    if (remote.pid == 0) {
        (void)close(ends[0]);
        owner_main(ends[1], listen);
    }
    (void)close(ends[1]);
    remote.channel = ends[0];
    cr_assert_eq(recv(remote.channel, remote.address, sizeof(remote.address), MSG_WAITALL),
            (ssize_t)sizeof(remote.address), "the owner did not open");
    return remote;
}

static int owner_end(const remote_owner *remote)
{
    int status = 0;

    (void)close(remote->channel);
    cr_assert_eq(waitpid(remote->pid, &status, 0), remote->pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void pull_room(kvx_node *node, kvx_peer_id peer, const world_pool *pool, uint64_t room)
{
    kvx_page from[ROOM_PAGES];
    kvx_page to[ROOM_PAGES];

    owner_pages(from);
    world_pages(to, ROOM_PAGES, 60, 61);
    const kvx_subscription_id id = world_subscribe(node, peer, room);
    (void)world_expect_room(node, KVX_EVENT_READY, room);
    cr_assert_eq(world_pull(node, id, to, ROOM_PAGES), KVX_OK);
    (void)world_expect_room(node, KVX_EVENT_PULLED, room);
    cr_expect(world_pages_have(pool, to, SEED, from, ROOM_PAGES));
}

static kvx_node *open_reader(world_pool *pool)
{
    kvx_config *config = world_config("transport", "cma", NULL);

    world_pool_init(pool, 0);
    kvx_node *node = world_open(pool, config, NULL);
    kvx_config_destroy(&config);
    return node;
}

Test(node_process, another_process_s_pages_are_pulled)
{
    const remote_owner remote = owner_start("127.0.0.1:0");
    world_pool pool;
    kvx_node *node = open_reader(&pool);
    const kvx_peer_id peer = world_connect(node, remote.address);
    kvx_ep_info info;

    cr_expect_str_eq(kvx_node_transport(node, peer, &info), "cma");
    for (uint64_t room = 1; room <= 8; room++)
        pull_room(node, peer, &pool, room);
    world_close(&node);
    world_pool_fini(&pool);
    cr_expect_eq(owner_end(&remote), 0);
}

Test(node_process, a_killed_owner_is_lost_within_a_second_and_its_rooms_fail)
{
    const remote_owner remote = owner_start("127.0.0.1:0");
    world_pool pool;
    kvx_node *node = open_reader(&pool);
    const kvx_peer_id peer = world_connect(node, remote.address);

    (void)world_subscribe(node, peer, 1);
    (void)world_expect_room(node, KVX_EVENT_READY, 1);
    (void)world_subscribe(node, peer, 99);
    const uint64_t before = world_now_ms();
    cr_assert_eq(kill(remote.pid, SIGKILL), 0);
    cr_expect_eq(world_expect_room(node, KVX_EVENT_FAILED, 1).status, KVX_PEER_LOST);
    cr_expect_lt(world_now_ms() - before, 1000);
    world_close(&node);
    world_pool_fini(&pool);
    (void)owner_end(&remote);
}

Test(node_process, a_restarted_owner_on_the_same_path_is_found_again)
{
    char listen[80];
    world_pool pool;
    kvx_node *node = NULL;
    kvx_peer_id peer = { 0 };

    (void)snprintf(listen, sizeof(listen), "unix:/tmp/kvx-restart-%d.sock", (int)getpid());
    remote_owner remote = owner_start(listen);
    node = open_reader(&pool);
    peer = world_connect(node, remote.address);
    pull_room(node, peer, &pool, 1);
    cr_assert_eq(kill(remote.pid, SIGKILL), 0); /* leaves its socket file behind */
    (void)owner_end(&remote);
    (void)world_expect(node, KVX_EVENT_PEER_LOST);
    remote = owner_start(listen); /* forks beside the reader's thread; the child opens its own */
    (void)world_expect(node, KVX_EVENT_PEER_UP);
    pull_room(node, peer, &pool, 2);
    world_close(&node);
    world_pool_fini(&pool);
    cr_expect_eq(owner_end(&remote), 0);
    cr_expect_neq(access(listen + 5, F_OK), 0);
}

/* --- after fork --- */

#ifndef __SANITIZE_ADDRESS__
/* A child may open a node of its own. */
static void open_own(const world_pool *pool)
{
    kvx_node *own = NULL;
    kvx_config *config = world_config(NULL);

    if (kvx_node_open(KVX_NODE_PARAMS(.config = config, .layout = &pool->layout), &own) != KVX_OK)
        _exit(2);
    kvx_config_destroy(&config);
    exit(kvx_node_close(&own, WORLD_WAIT_MS) == KVX_OK ? 0 : 3);
}
#endif

static void child_main(kvx_node *node, const world_pool *pool)
{
    const kvx_page page = 1;
    kvx_subscription_id id;
    kvx_peer_id peer;
    kvx_event event;
    kvx_metrics_snapshot snapshot = { .struct_size = sizeof(snapshot) };
    char text[320];

    const bool is_refused =
            world_publish(node, 5, &page, 1) == KVX_FORKED &&
            kvx_reserve(node, 5, 1) == KVX_FORKED && kvx_revoke(node, 5) == KVX_FORKED &&
            kvx_abort(node, 5) == KVX_FORKED &&
            kvx_connect(node, "127.0.0.1:1", 0, &peer) == KVX_FORKED &&
            kvx_disconnect(node, (kvx_peer_id){ 1 }) == KVX_FORKED &&
            kvx_subscribe(node, KVX_SUBSCRIPTION(.room = 5), &id) == KVX_FORKED &&
            kvx_cancel(node, (kvx_subscription_id){ 1 }) == KVX_FORKED &&
            kvx_release(node, (kvx_subscription_id){ 1 }) == KVX_FORKED &&
            kvx_node_drain(node, 1) == KVX_FORKED && kvx_node_arm(node) == KVX_FORKED &&
            kvx_node_progress(node) == KVX_FORKED &&
            kvx_node_metrics(node, &snapshot) == KVX_FORKED &&
            kvx_node_address(node, text, sizeof(text)) == KVX_FORKED &&
            kvx_node_reregister(node, &pool->layout, 1) == KVX_FORKED &&
            kvx_node_event_fd(node) == -1 && !kvx_node_poll(node, &event) &&
            !kvx_node_wait(node, &event, 1) && kvx_node_close(&node, 1) == KVX_FORKED;
    if (!is_refused)
        _exit(1);
#ifdef __SANITIZE_ADDRESS__
    (void)pool; /* a thread of the parent may have held its allocator's locks, which no child frees */
    _exit(0);
#else
    open_own(pool);
#endif
}

Test(node_process, a_forked_child_is_refused_and_leaves_the_parent_s_node_alone)
{
    char listen[80];
    world_pool pool;
    world_pool other;
    kvx_page page = 1;
    int status = 0;

    (void)snprintf(listen, sizeof(listen), "unix:/tmp/kvx-fork-%d.sock", (int)getpid());
    world_pool_init(&pool, 1);
    kvx_node *node = world_open(&pool, NULL, listen);
    (void)fflush(NULL);
    const pid_t child = fork();
    if (child == 0)
        child_main(node, &pool);
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_expect(WIFEXITED(status));
    cr_expect_eq(WEXITSTATUS(status), 0);

    cr_expect_eq(access(listen + 5, F_OK), 0);
    world_pool_init(&other, 0);
    kvx_node *reader = world_open(&other, NULL, NULL);
    const kvx_peer_id peer = world_connect(reader, listen);
    cr_assert_eq(world_publish(node, 1, &page, 1), KVX_OK);
    (void)world_subscribe(reader, peer, 1);
    (void)world_expect_room(reader, KVX_EVENT_READY, 1);
    world_close(&reader);
    world_close(&node);
    world_pool_fini(&other);
    world_pool_fini(&pool);
}
