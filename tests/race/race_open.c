/* SPDX-License-Identifier: Apache-2.0 */
/* Many nodes open, connect, pull, change their pool, drain and close at once, in threads of their
 * own, all at one owner and one listener, while others ask them.
 * Usage: race_open TRANSPORT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "race/race_world.h"

#define THREADS 6
#define WAIT_MS 5000

static kvx_config *config;
static race_pool owner_pool;
static kvx_node *owner;
static char owner_address[128];
static _Atomic uint64_t pulled, opened, rooms;
static _Atomic bool is_stopping;

/* --- the owner --- */

static void *owner_run(void *arg)
{
    kvx_event event;

    (void)arg;
    while (!atomic_load(&is_stopping)) {
        if (!kvx_node_wait(owner, &event, 20) || event.kind != KVX_EVENT_RELEASED)
            continue;
        race_pull *offer = event.user;
        race_pool_give(&owner_pool, offer->pages, offer->count);
        free(offer);
    }
    return NULL;
}

/* Publish a room of its own for one reader; false: there is no room now. */
static bool publish(uint64_t room)
{
    race_pull *offer = calloc(1, sizeof(*offer));

    offer->count = race_room_pages(room);
    if (race_pool_take(&owner_pool, offer->pages, offer->count)) {
        race_pool_fill(&owner_pool, room, offer->pages, offer->count);
        const kvx_page_table table = { offer->pages, offer->count };
        if (kvx_publish(owner, KVX_OFFER(.room = room, .tokens = offer->count * RACE_PAGE_TOKENS,
                                       .tables = &table, .table_count = 1, .user = offer)) == KVX_OK)
            return true;
        race_pool_give(&owner_pool, offer->pages, offer->count);
    }
    free(offer);
    return false;
}

/* --- guests --- */

static bool wait_for(kvx_node *node, kvx_event_kind kind, kvx_event *event)
{
    while (kvx_node_wait(node, event, WAIT_MS)) {
        if (event->kind == kind)
            return true;
        if (event->kind == KVX_EVENT_FAILED)
            return false;
    }
    return false;
}

static void pull_one(kvx_node *node, race_pool *pool, kvx_peer_id peer)
{
    const uint64_t room = 1 + atomic_fetch_add(&rooms, 1);
    race_pull pull = { .room = room, .count = race_room_pages(room) };
    kvx_subscription_id id;
    kvx_event event;

    race_expect(race_pool_take(pool, pull.pages, pull.count), "there are pages");
    const kvx_page_table table = { pull.pages, pull.count };
    const bool is_published = publish(room);
    race_expect_status(kvx_subscribe_early(node, KVX_SUBSCRIPTION(.peer = peer, .room = room),
                               KVX_PULL(.tables = &table, .table_count = 1), &id),
            KVX_OK, "a guest subscribes");
    if (wait_for(node, KVX_EVENT_PULLED, &event)) {
        race_expect(race_pool_holds(pool, room, pull.pages, pull.count, 0), "the bytes are right");
        (void)atomic_fetch_add(&pulled, 1);
    } else {
        race_expect(!is_published || event.status == KVX_EXPIRED || event.status == KVX_GONE,
                "a published room is pulled");
    }
    race_pool_give(pool, pull.pages, pull.count);
}

static void *ask_run(void *arg)
{
    kvx_node *node = arg;
    char text[64];

    for (int i = 0; i < 30; i++) {
        kvx_metrics_snapshot snapshot = { .struct_size = sizeof(snapshot) };
        const char *name = kvx_node_transport(node, (kvx_peer_id){ 0 }, NULL);
        race_expect(name == NULL || name[0] != '\0', "a transport has a name");
        race_expect_status(kvx_node_metrics(node, &snapshot), KVX_OK, "metrics are copied");
        (void)kvx_node_metrics_text(node, text, sizeof(text));
        (void)kvx_room_query(node, 1, NULL);
        (void)(kvx_revoke(node, 1) == KVX_OK);
        (void)(kvx_reserve(node, 77, 10) == KVX_OK);
        (void)(kvx_reserve(node, 77, 0) == KVX_OK);
    }
    return NULL;
}

static void guest(uint64_t *state)
{
    race_pool pools[2];
    kvx_node *node = NULL;
    kvx_peer_id peer;
    kvx_event event;
    pthread_t asker;

    race_pool_init(&pools[0]);
    race_pool_init(&pools[1]);
    race_expect_status(
            kvx_node_open(
                    KVX_NODE_PARAMS(.config = config, .layout = &pools[0].layout, .compat = "race",
                            .listen = race_random(state, 2) == 0 ? "127.0.0.1:0" : NULL),
                    &node),
            KVX_OK, "a guest opens");
    (void)atomic_fetch_add(&opened, 1);
    race_expect_status(kvx_connect(node, owner_address, 0, &peer), KVX_OK, "a guest connects");
    race_start(&asker, ask_run, node);
    if (race_random(state, 4) != 0) {
        race_expect(wait_for(node, KVX_EVENT_PEER_UP, &event), "the owner is there");
        pull_one(node, &pools[0], peer);
    }
    if (race_random(state, 2) == 0) {
        race_expect_status(kvx_node_reregister(node, &pools[1].layout, WAIT_MS), KVX_OK,
                "a guest changes its pool");
        race_expect(wait_for(node, KVX_EVENT_PEER_UP, &event), "the owner is there again");
        pull_one(node, &pools[1], peer);
    }
    race_join(&asker, 1);
    if (race_random(state, 4) == 0)
        race_expect_status(kvx_node_drain(node, WAIT_MS), KVX_OK, "a guest drains");
    if (race_random(state, 4) == 0)
        race_expect_status(kvx_disconnect(node, peer), KVX_OK, "a guest leaves");
    race_expect_status(kvx_node_close(&node, WAIT_MS), KVX_OK, "a guest closes");
    race_pool_fini(&pools[0]);
    race_pool_fini(&pools[1]);
}

static void *guest_run(void *arg)
{
    uint64_t state = (uint64_t)(uintptr_t)arg;

    while (!race_is_over())
        guest(&state);
    return NULL;
}

int main(int argc, char **argv)
{
    const char *transport = argc > 1 ? argv[1] : "loopback";
    pthread_t threads[THREADS + 2];
    pthread_t events;
    uint32_t count = 0;

    if (kvx_transport_find(transport) == NULL)
        return 77; /* skipped: not built */
    config = race_config(transport, "thread");
    race_pool_init(&owner_pool);
    race_begin();
    race_expect_status(kvx_node_open(KVX_NODE_PARAMS(.config = config, .compat = "race",
                                             .layout = &owner_pool.layout, .listen = "127.0.0.1:0"),
                               &owner),
            KVX_OK, "the owner opens");
    race_expect_status(kvx_node_address(owner, owner_address, sizeof(owner_address)), KVX_OK,
            "the owner has an address");
    race_start(&events, owner_run, NULL);
    for (uintptr_t i = 1; i <= THREADS; i++)
        race_start(&threads[count++], guest_run, (void *)i);
    race_start(&threads[count++], race_swap_log, NULL);
    race_start(&threads[count++], race_use_config, &count);
    race_join(threads, count);
    race_expect_status(kvx_node_drain(owner, WAIT_MS), KVX_OK, "the owner drains");
    for (int i = 0; i < 200 && owner_pool.free_count < RACE_PAGES; i++)
        (void)nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
    atomic_store(&is_stopping, true);
    race_join(&events, 1);
    race_expect_status(kvx_node_close(&owner, WAIT_MS), KVX_OK, "the owner closes");
    (void)printf("%llu nodes, %llu pulls\n", (unsigned long long)opened, (unsigned long long)pulled);
    race_expect(pulled > 0, "something was pulled");
    race_pool_fini(&owner_pool);
    kvx_config_destroy(&config);
    return race_failures() == 0 ? 0 : 1;
}
