/* SPDX-License-Identifier: Apache-2.0 */
/* Each allocation of two groups' life fails in turn, over loopback in one thread. Either a call
 * refuses and no rank has begun, or an event says what failed on all ranks; the next try works. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "kvx/kvx.h"

#include "support/alloc_fail.h"
#include "support/seed.h"

#define RANKS        2
#define PAGES        8
#define PAGE_BYTES   32
#define PAGE_TOKENS  2
#define ROOM_PAGES   3
#define TRIES_MAX    12
#define ROUNDS_MAX   4000
#define FAILURES_MAX 3000
#define STEP         3

static unsigned char memory[2][RANKS][PAGES * PAGE_BYTES];
static kvx_config *config;

static void setup(void)
{
    static const char *const settings[][2] = { { "transport", "loopback" },
        { "progress", "caller" }, { "lease_ms", "200" }, { "ping_ms", "40" }, { "fence_ms", "30" },
        { "drain_ms", "5" }, { "close_ms", "10" }, { "margin_ms", "10" }, { "redial_ms", "1" },
        { "tombstones_max", "8" }, { "window_reads", "8" }, { "peers_max", "4" } };

    cr_assert_eq(kvx_config_create(&config), KVX_OK);
    for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++)
        cr_assert_eq(kvx_config_set(config, settings[i][0], settings[i][1]), KVX_OK);
}

static void teardown(void)
{
    kvx_config_destroy(&config);
}

TestSuite(alloc_group, .init = setup, .fini = teardown, .timeout = 60);

typedef struct life {
    uint64_t n;
    kvx_group *owner;
    kvx_group *reader;
    kvx_peer_id peer;
    bool is_up;
    int parked; /* published and not released */
    kvx_subscription_id id;
    bool is_ready;
    kvx_event_kind ended;
} life;

static void must(const life *l, bool is_true, const char *what)
{
    if (is_true)
        return;
    (void)alloc_fail_disarm();
    cr_assert_fail("allocation %llu: %s", (unsigned long long)l->n, what);
}

static void take_event(life *l, bool is_owner, const kvx_event *event)
{
    if (event->kind == KVX_EVENT_PEER_UP && !is_owner)
        l->is_up = true;
    if (event->kind == KVX_EVENT_PEER_LOST && !is_owner)
        l->is_up = false;
    if (event->kind == KVX_EVENT_RELEASED)
        l->parked--;
    if (event->kind == KVX_EVENT_READY)
        l->is_ready = true;
    if (event->kind == KVX_EVENT_PULLED || event->kind == KVX_EVENT_FAILED)
        l->ended = event->kind;
}

static void progress(life *l)
{
    kvx_group *const groups[] = { l->owner, l->reader };
    kvx_event event;

    for (int i = 0; i < 2; i++) {
        while (groups[i] != NULL && kvx_group_wait(groups[i], &event, 0))
            take_event(l, i == 0, &event);
    }
    (void)nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
}

static bool until(life *l, const bool *is_so)
{
    for (int i = 0; i < ROUNDS_MAX && !*is_so; i++)
        progress(l);
    return *is_so;
}

static void open_one(life *l, kvx_group **group, int side, const char *listen)
{
    const kvx_component component = { "kv", PAGE_TOKENS, PAGES, "token" };
    kvx_region regions[RANKS];
    kvx_layout layouts[RANKS];

    for (int i = 0; i < RANKS; i++) {
        regions[i] = (kvx_region){ .role = "k", .base = memory[side][i], .page_bytes = PAGE_BYTES };
        layouts[i] = (kvx_layout){ &component, 1, &regions[i], 1 };
    }
    for (int i = 0; i < TRIES_MAX && *group == NULL; i++) {
        const kvx_status st = kvx_group_open(KVX_GROUP_PARAMS(.config = config, .layouts = layouts,
                                                     .rank_count = RANKS, .listen = listen),
                group);
        must(l, st == KVX_OK || st == KVX_NO_MEMORY, kvx_status_name(st));
        must(l, (st == KVX_OK) == (*group != NULL), "an output is written on success only");
    }
    must(l, *group != NULL, "a group opens");
}

static void link_up(life *l)
{
    char address[128];
    kvx_status st = KVX_NO_MEMORY;

    must(l, kvx_node_address(kvx_group_node(l->owner, 0), address, sizeof(address)) == KVX_OK,
            "an address");
    for (int i = 0; i < TRIES_MAX && st != KVX_OK; i++) {
        st = kvx_group_connect(l->reader, address, &l->peer);
        must(l, st == KVX_OK || st == KVX_NO_MEMORY, kvx_status_name(st));
    }
    must(l, st == KVX_OK && until(l, &l->is_up), "a group comes up");
}

static void publish(life *l, uint64_t room)
{
    static const kvx_page pages[ROOM_PAGES] = { 5, 2, 3 };
    static const kvx_page_table table = { pages, ROOM_PAGES };
    kvx_status st = KVX_NO_MEMORY;

    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < ROOM_PAGES; i++)
            memset(memory[0][r] + pages[i] * PAGE_BYTES, (int)room * 8 + r * 4 + i, PAGE_BYTES);
    for (int i = 0; i < TRIES_MAX && st != KVX_OK; i++) {
        st = kvx_group_publish(l->owner, KVX_OFFER(.room = room, .tables = &table, .table_count = 1,
                                                 .tokens = ROOM_PAGES * PAGE_TOKENS));
        must(l, st == KVX_OK || st == KVX_NO_MEMORY, kvx_status_name(st));
    }
    must(l, st == KVX_OK, "a room is published");
    l->parked++;
}

static const kvx_page target[ROOM_PAGES] = { 7, 0, 1 };
static const kvx_page_table target_table = { target, ROOM_PAGES };

static bool is_right(uint64_t room)
{
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < ROOM_PAGES; i++)
            for (int k = 0; k < PAGE_BYTES; k++)
                if (memory[1][r][target[i] * PAGE_BYTES + k] != (int)room * 8 + r * 4 + i)
                    return false;
    return true;
}

static bool pull_once(life *l, uint64_t room, bool is_early)
{
    const kvx_pull_params *pull = KVX_PULL(.tables = &target_table, .table_count = 1);
    kvx_status st;

    l->ended = KVX_EVENT_NONE;
    l->is_ready = false;
    memset(memory[1], 0, sizeof(memory[1]));
    must(l, until(l, &l->is_up), "a lost group comes up again");
    st = kvx_group_subscribe(l->reader, KVX_SUBSCRIPTION(.peer = l->peer, .room = room),
            is_early ? pull : NULL, &l->id);
    must(l, st == KVX_OK || st == KVX_NO_MEMORY || st == KVX_AGAIN || st == KVX_BUSY,
            kvx_status_name(st));
    for (int i = 0; i < ROUNDS_MAX && st == KVX_OK && l->ended == KVX_EVENT_NONE; i++) {
        progress(l);
        if (!l->is_ready)
            continue;
        l->is_ready = false;
        kvx_status pulling = KVX_NO_MEMORY;
        for (int k = 0; k < TRIES_MAX && pulling == KVX_NO_MEMORY; k++)
            pulling = kvx_group_pull(l->reader, l->id, pull);
        must(l, pulling == KVX_OK || pulling == KVX_NOT_FOUND, kvx_status_name(pulling));
    }
    progress(l);
    must(l, st != KVX_OK || l->ended != KVX_EVENT_NONE, "a subscription ends");
    must(l, l->ended != KVX_EVENT_PULLED || is_right(room), "the bytes are right");
    return l->ended == KVX_EVENT_PULLED;
}

/* Ranks may have ended apart when their owner's word was lost: it is published anew then. */
static void transfer(life *l, uint64_t room, bool is_early)
{
    for (int i = 0; i < TRIES_MAX; i++) {
        if (l->parked == 0)
            publish(l, room);
        if (pull_once(l, room, is_early))
            break;
        if (l->parked > 0)
            (void)(kvx_group_revoke(l->owner, room) == KVX_OK);
        for (int k = 0; k < ROUNDS_MAX && l->parked > 0; k++)
            progress(l);
    }
    must(l, l->ended == KVX_EVENT_PULLED, "a room is pulled");
    for (int k = 0; k < ROUNDS_MAX && l->parked > 0; k++)
        progress(l);
    must(l, l->parked == 0, "the owner gets its pages back");
}

static void close_one(life *l, kvx_group **group)
{
    for (int i = 0; i < ROUNDS_MAX && *group != NULL; i++) {
        const kvx_status st = kvx_group_close(group, 1);
        must(l, st == KVX_OK || st == KVX_AGAIN, kvx_status_name(st));
        kvx_group *other = group == &l->owner ? l->reader : l->owner;
        kvx_event event;
        while (other != NULL && kvx_group_wait(other, &event, 0))
            continue;
    }
    must(l, *group == NULL, "a group closes");
}

Test(alloc_group, whichever_allocation_fails_once_the_next_try_works)
{
    uint64_t n = 1 + test_seed() % STEP; /* a run takes every third, for time */

    for (; n < FAILURES_MAX; n += STEP) {
        life l = { .n = n };
        (void)alloc_fail_arm(n);
        open_one(&l, &l.owner, 0, "127.0.0.1:0");
        open_one(&l, &l.reader, 1, NULL);
        link_up(&l);
        transfer(&l, 3, false);
        transfer(&l, 4, true);
        close_one(&l, &l.reader);
        close_one(&l, &l.owner);
        if (!alloc_fail_disarm())
            break;
    }
    cr_assert_lt(n, (uint64_t)FAILURES_MAX);
    (void)fprintf(stderr, "about %llu allocations in a life\n", (unsigned long long)n);
    cr_expect_gt(n, (uint64_t)100);
}
