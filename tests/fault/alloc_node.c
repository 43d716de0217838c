/* SPDX-License-Identifier: Apache-2.0 */
/* Each allocation of a node's whole life fails in turn: opening, connecting, publishing,
 * subscribing, pulling, releasing, closing, over loopback in one thread. A call says
 * KVX_NO_MEMORY and has done nothing, or an event says what failed; the next try works, the bytes
 * are right, and everything ends. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "kvx/kvx.h"

#include "support/alloc_fail.h"

#define PAGES        16
#define PAGE_BYTES   64
#define PAGE_TOKENS  4
#define ROOM_PAGES   5
#define TRIES_MAX    12
#define ROUNDS_MAX   4000
#define FAILURES_MAX 3000 /* more allocations than a life has */

static unsigned char memory[2][PAGES * PAGE_BYTES];
static kvx_config *config;
static char last_lines[8][200];
static unsigned line_count;

/* Kept for the message of a failing test; it must not allocate. */
static void keep_line(void *arg, kvx_log_level level, const char *line)
{
    (void)arg;
    (void)level;
    (void)snprintf(last_lines[line_count++ % 8], sizeof(last_lines[0]), "%s", line);
}

static void setup(void)
{
    static const char *const settings[][2] = { { "transport", "loopback" },
        { "progress", "caller" }, { "lease_ms", "200" }, { "ping_ms", "40" }, { "fence_ms", "30" },
        { "drain_ms", "5" }, { "close_ms", "10" }, { "margin_ms", "10" }, { "redial_ms", "1" },
        { "peer_timeout_ms", "2000" }, { "tombstones_max", "8" }, { "window_reads", "8" },
        { "peers_max", "4" } };

    kvx_log_set(keep_line, NULL, KVX_LOG_DEBUG);
    cr_assert_eq(kvx_config_create(&config), KVX_OK);
    for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++)
        cr_assert_eq(kvx_config_set(config, settings[i][0], settings[i][1]), KVX_OK, "%s: %s",
                settings[i][0], kvx_config_error(config));
}

static void teardown(void)
{
    kvx_config_destroy(&config);
    kvx_log_set(NULL, NULL, KVX_LOG_ERROR);
}

TestSuite(alloc_node, .init = setup, .fini = teardown, .timeout = 60);

/* --- two nodes --- */

typedef struct life {
    uint64_t n; /* for messages */
    kvx_node *owner;
    kvx_node *reader;
    char address[128];
    kvx_peer_id peer;
    bool is_up;
    bool is_released;
    kvx_subscription_id id;
    kvx_event_kind ended; /* PULLED or FAILED; NONE: not yet */
    bool is_ready;
    uint64_t failures; /* events that told of one */
} life;

static void show(const life *l, const char *what)
{
    (void)alloc_fail_disarm();
    for (unsigned i = line_count < 8 ? 0 : line_count - 8; i < line_count; i++)
        (void)fprintf(stderr, "log: %s\n", last_lines[i % 8]);
    cr_assert_fail("allocation %llu: %s", (unsigned long long)l->n, what);
}

static void must(const life *l, bool is_true, const char *what)
{
    if (!is_true)
        show(l, what);
}

static void take_event(life *l, bool is_owner, const kvx_event *event)
{
    switch (event->kind) {
    case KVX_EVENT_PEER_UP: l->is_up = l->is_up || !is_owner; break;
    case KVX_EVENT_PEER_LOST:
        l->is_up = l->is_up && is_owner;
        l->failures += event->status != KVX_OK;
        break;
    case KVX_EVENT_READY: l->is_ready = true; break;
    case KVX_EVENT_FAILED:
        l->failures++;
        l->ended = event->kind;
        must(l, !event->pages_held, "no close hangs");
        break;
    case KVX_EVENT_PULLED: l->ended = event->kind; break;
    case KVX_EVENT_RELEASED: l->is_released = true; break;
    case KVX_EVENT_NONE:
    case KVX_EVENT_PAGES_QUIET:
    case KVX_EVENT_PAGES_STUCK:
    case KVX_EVENT_ROOM:
    case KVX_EVENT_CREDIT: break;
    }
}

/* One round of both; true: there is more to do at once. */
static bool progress(life *l)
{
    kvx_node *const nodes[] = { l->owner, l->reader };
    bool has_more = false;
    kvx_event event;

    for (int i = 0; i < 2; i++) {
        if (nodes[i] == NULL)
            continue;
        has_more |= kvx_node_progress(nodes[i]) == KVX_AGAIN;
        while (kvx_node_poll(nodes[i], &event))
            take_event(l, i == 0, &event);
    }
    return has_more;
}

static void pause_ms(long ms)
{
    (void)nanosleep(&(struct timespec){ .tv_nsec = ms * 1000000 }, NULL);
}

/* Go on until it is so; false: it never was. */
static bool until(life *l, const bool *is_so)
{
    for (int i = 0; i < ROUNDS_MAX && !*is_so; i++) {
        if (!progress(l) && !*is_so)
            pause_ms(1);
    }
    return *is_so;
}

/* --- steps: each is tried until it works --- */

static void open_one(life *l, kvx_node **node, unsigned char *pool, const char *listen)
{
    const kvx_component component = { "kv", PAGE_TOKENS, PAGES, "token" };
    const kvx_region region = { .role = "k", .base = pool, .page_bytes = PAGE_BYTES };
    const kvx_layout layout = { &component, 1, &region, 1 };
    const kvx_node_params *params =
            KVX_NODE_PARAMS(.config = config, .layout = &layout, .listen = listen);

    for (int i = 0; i < TRIES_MAX && *node == NULL; i++) {
        const kvx_status st = kvx_node_open(params, node);
        must(l, st == KVX_OK || st == KVX_NO_MEMORY, kvx_status_name(st));
        must(l, (st == KVX_OK) == (*node != NULL), "an output is written on success only");
    }
    must(l, *node != NULL, "a node opens");
}

static void link_up(life *l)
{
    kvx_status st = KVX_NO_MEMORY;

    for (int i = 0; i < TRIES_MAX && st != KVX_OK; i++) {
        st = kvx_connect(l->reader, l->address, 0, &l->peer);
        must(l, st == KVX_OK || st == KVX_NO_MEMORY, kvx_status_name(st));
    }
    must(l, st == KVX_OK && until(l, &l->is_up), "a peer comes up");
}

static void publish(life *l, uint64_t room)
{
    static const kvx_page pages[ROOM_PAGES] = { 7, 8, 3, 12, 1 };
    static const kvx_page_table table = { pages, ROOM_PAGES };
    kvx_status st = KVX_NO_MEMORY;

    for (int i = 0; i < ROOM_PAGES; i++)
        memset(memory[0] + pages[i] * PAGE_BYTES, (int)(room * 16 + (uint64_t)i), PAGE_BYTES);
    for (int i = 0; i < TRIES_MAX && st != KVX_OK; i++) {
        st = kvx_publish(l->owner,
                KVX_OFFER(.room = room, .tokens = ROOM_PAGES * PAGE_TOKENS, .tables = &table,
                        .table_count = 1, .aux = "aux", .aux_bytes = 4));
        must(l, st == KVX_OK || st == KVX_NO_MEMORY, kvx_status_name(st));
        must(l, st == KVX_OK || kvx_room_query(l->owner, room, NULL) != KVX_ROOM_PUBLISHED,
                "a refused room is not published");
    }
    must(l, st == KVX_OK, "a room is published");
}

static bool is_right(uint64_t room, const kvx_page *pages)
{
    for (int i = 0; i < ROOM_PAGES; i++) {
        for (int k = 0; k < PAGE_BYTES; k++) {
            if (memory[1][pages[i] * PAGE_BYTES + k] != (unsigned char)(room * 16 + (uint64_t)i))
                return false;
        }
    }
    return true;
}

static const kvx_page target[ROOM_PAGES] = { 2, 9, 10, 0, 15 };
static const kvx_page_table target_table = { target, ROOM_PAGES };

/* True: it is subscribed. */
static bool subscribe(life *l, uint64_t room, bool is_early)
{
    const kvx_subscription *wanted = KVX_SUBSCRIPTION(.peer = l->peer, .room = room);

    if (!until(l, &l->is_up))
        show(l, "a lost peer comes up again");
    const kvx_status st =
            is_early ? kvx_subscribe_early(l->reader, wanted,
                               KVX_PULL(.tables = &target_table, .table_count = 1), &l->id)
                     : kvx_subscribe(l->reader, wanted, &l->id);
    must(l, st == KVX_OK || st == KVX_NO_MEMORY || st == KVX_AGAIN, kvx_status_name(st));
    return st == KVX_OK;
}

/* From READY on: give pages, again and again if they cannot be taken. */
static void pull_when_ready(life *l)
{
    kvx_status st = KVX_NO_MEMORY;

    l->is_ready = false;
    for (int i = 0; i < TRIES_MAX && st == KVX_NO_MEMORY; i++)
        st = kvx_pull(l->reader, l->id, KVX_PULL(.tables = &target_table, .table_count = 1));
    must(l, st == KVX_OK || st == KVX_NOT_FOUND, kvx_status_name(st));
}

/* One try at a room; true: it was pulled. */
static bool pull_once(life *l, uint64_t room, bool is_early)
{
    l->ended = KVX_EVENT_NONE;
    l->is_ready = false;
    memset(memory[1], 0, sizeof(memory[1]));
    if (!subscribe(l, room, is_early))
        return false;
    for (int i = 0; i < ROUNDS_MAX && l->ended == KVX_EVENT_NONE; i++) {
        const bool has_more = progress(l);
        if (l->is_ready)
            pull_when_ready(l);
        else if (!has_more)
            pause_ms(1);
    }
    must(l, l->ended != KVX_EVENT_NONE, "a subscription ends");
    must(l, l->ended != KVX_EVENT_PULLED || is_right(room, target), "the bytes are right");
    return l->ended == KVX_EVENT_PULLED;
}

/* A room whose owner's word was lost is gone; it is published anew, as a router would. */
static void transfer(life *l, uint64_t room, bool is_early)
{
    for (int i = 0; i < TRIES_MAX; i++) {
        if (kvx_room_query(l->owner, room, NULL) != KVX_ROOM_PUBLISHED) {
            l->is_released = false;
            publish(l, room);
        }
        if (pull_once(l, room, is_early)) {
            must(l, until(l, &l->is_released), "the owner gets its pages back");
            return;
        }
    }
    show(l, "a room is pulled");
}

static void close_one(life *l, kvx_node **node)
{
    kvx_event event;

    for (int i = 0; i < ROUNDS_MAX && *node != NULL; i++) {
        const kvx_status st = kvx_node_close(node, 1);
        must(l, st == KVX_OK || st == KVX_AGAIN, kvx_status_name(st));
        kvx_node *other = node == &l->owner ? l->reader : l->owner;
        if (other != NULL && kvx_node_progress(other) == KVX_OK)
            while (kvx_node_poll(other, &event))
                take_event(l, node != &l->owner, &event);
    }
    must(l, *node == NULL, "a node closes");
}

static void life_open(life *l)
{
    open_one(l, &l->owner, memory[0], "127.0.0.1:0");
    open_one(l, &l->reader, memory[1], NULL);
    must(l, kvx_node_address(l->owner, l->address, sizeof(l->address)) == KVX_OK, "an address");
}

static void life_run(life *l)
{
    life_open(l);
    link_up(l);
    transfer(l, 5, false);
    transfer(l, 6, true);
    close_one(l, &l->reader);
    close_one(l, &l->owner);
}

Test(alloc_node, whichever_allocation_fails_once_the_next_try_works)
{
    uint64_t told = 0;
    uint64_t n = 1;

    for (; n < FAILURES_MAX; n++) {
        life l = { .n = n };
        (void)alloc_fail_arm(n);
        life_run(&l);
        if (!alloc_fail_disarm())
            break;
        told += l.failures > 0;
    }
    cr_assert_lt(n, (uint64_t)FAILURES_MAX);
    (void)fprintf(stderr, "%llu allocations in a life, %llu were told of by an event\n",
            (unsigned long long)n - 1, (unsigned long long)told);
    cr_expect_gt(n, (uint64_t)100);
    cr_expect_gt(told, (uint64_t)5);
}

/* For a while there is none at all, at any point of a life; then there is again. */
Test(alloc_node, memory_that_runs_out_for_a_while_ends_nothing_for_good)
{
    uint64_t n = 1;

    for (bool has_failed = true; has_failed && n < FAILURES_MAX; n += 3) {
        life l = { .n = n };
        life_open(&l);
        link_up(&l);
        publish(&l, 5);
        (void)alloc_fail_arm_from(n);
        (void)subscribe(&l, 5, n % 2 == 0);
        for (int i = 0; i < 30; i++) {
            (void)progress(&l);
            if (l.is_ready)
                (void)(kvx_pull(l.reader, l.id,
                               KVX_PULL(.tables = &target_table, .table_count = 1)) == KVX_OK);
            l.is_ready = false;
        }
        has_failed = alloc_fail_disarm();
        (void)(kvx_cancel(l.reader, l.id) == KVX_OK);
        for (int i = 0; i < 30 && l.ended == KVX_EVENT_NONE; i++)
            (void)progress(&l);
        transfer(&l, 9, false);
        close_one(&l, &l.reader);
        close_one(&l, &l.owner);
    }
    cr_assert_lt(n, (uint64_t)FAILURES_MAX);
}

Test(alloc_node, closing_needs_no_memory)
{
    life l = { 0 };

    life_open(&l);
    link_up(&l);
    publish(&l, 5);
    cr_assert(subscribe(&l, 5, false));
    cr_assert(until(&l, &l.is_ready));
    (void)alloc_fail_arm_from(1);
    close_one(&l, &l.reader);
    close_one(&l, &l.owner);
    (void)alloc_fail_disarm();
}

Test(alloc_node, a_config_that_cannot_be_stored_is_no_memory)
{
    for (uint64_t n = 1; alloc_fail_arm(n); n++) {
        kvx_config *made = NULL;
        kvx_status st = kvx_config_create(&made);
        if (st == KVX_OK)
            st = kvx_config_set(made, "lease_ms", "5000");
        if (!alloc_fail_disarm()) {
            cr_expect_eq(st, KVX_OK);
            kvx_config_destroy(&made);
            break;
        }
        cr_expect_eq(st, KVX_NO_MEMORY);
        kvx_config_destroy(&made);
    }
}
