/* SPDX-License-Identifier: Apache-2.0 */
/* Two nodes in one process, each owner and reader at once, used by many threads: publishing,
 * revoking, aborting, subscribing early and late, pulling with and without a prefix, cancelling,
 * asking. What is delivered is right, every page comes back, and both nodes close.
 * Usage: race_node TRANSPORT thread|caller */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "race/race_world.h"

#define ROOMS         48
#define WANTS_MAX     16
#define EVENT_WAIT_MS 20
#define SIDES         2

typedef struct side {
    race_pool pool;
    kvx_node *node;
    kvx_peer_id peer;
    _Atomic bool is_up;
    _Atomic int count; /* published and not released, subscribed and not ended */
    _Atomic uint64_t last_sub;
    _Atomic uint64_t pulled, failed, released;
} side;

static side sides[SIDES];
static _Atomic bool is_stopping;

static void pause_us(uint32_t us)
{
    const struct timespec pause = { .tv_nsec = us * 1000L };
    (void)nanosleep(&pause, NULL);
}

static race_pull *take(side *s, uint64_t room, uint32_t first)
{
    race_pull *pull = calloc(1, sizeof(*pull));

    pull->room = room;
    pull->first = first;
    pull->count = race_room_pages(room) - first;
    if (race_pool_take(&s->pool, pull->pages, pull->count))
        return pull;
    free(pull);
    return NULL;
}

static void give(side *s, race_pull *pull)
{
    race_pool_give(&s->pool, pull->pages, pull->count);
    free(pull);
}

/* --- as an owner --- */

static void publish_one(side *s, uint64_t *state)
{
    race_pull *o = take(s, 1 + race_random(state, ROOMS), 0);

    if (o == NULL)
        return;
    race_pool_fill(&s->pool, o->room, o->pages, o->count);
    const kvx_page_table table = { o->pages, o->count };
    (void)atomic_fetch_add(&s->count, 1);
    const kvx_status st = kvx_publish(s->node,
            KVX_OFFER(.room = o->room, .tokens = o->count * RACE_PAGE_TOKENS, .tables = &table,
                    .table_count = 1, .aux = &o->room, .aux_bytes = sizeof(o->room), .user = o));
    if (st == KVX_OK)
        return;
    race_expect(st == KVX_AGAIN || st == KVX_BUSY, kvx_status_name(st));
    (void)atomic_fetch_sub(&s->count, 1);
    give(s, o);
}

static void *publisher_run(void *arg)
{
    side *s = arg;
    uint64_t state = (uint64_t)(uintptr_t)&state;

    while (!race_is_over()) {
        publish_one(s, &state);
        if (race_random(&state, 8) == 0)
            (void)(kvx_revoke(s->node, 1 + race_random(&state, ROOMS)) == KVX_OK);
        if (race_random(&state, 40) == 0)
            (void)(kvx_abort(s->node, 1 + race_random(&state, ROOMS)) == KVX_OK);
        if (race_random(&state, 20) == 0) {
            const uint64_t room = 1000 + race_random(&state, 4);
            (void)(kvx_reserve(s->node, room, race_random(&state, 2) * 4096) == KVX_OK);
        }
        pause_us(race_random(&state, 500));
    }
    for (uint64_t room = 1000; room < 1004; room++)
        (void)(kvx_reserve(s->node, room, 0) == KVX_OK);
    return NULL;
}

/* --- as a reader --- */

static void subscribe_one(side *s, uint64_t *state)
{
    kvx_subscription wanted = { .struct_size = sizeof(wanted), .peer = s->peer };
    kvx_subscription_id id = { 0 };

    wanted.room = 1 + race_random(state, ROOMS);
    race_pull *pull = take(s, wanted.room, race_random(state, race_room_pages(wanted.room)));
    if (pull == NULL)
        return;
    const kvx_page_table table = { pull->pages, pull->count };
    const kvx_pull_params *early = KVX_PULL(.tables = &table, .table_count = 1,
            .first_token = pull->first * RACE_PAGE_TOKENS);
    wanted.user = pull;
    (void)atomic_fetch_add(&s->count, 1);
    const kvx_status st = race_random(state, 3) == 0
                                  ? kvx_subscribe_early(s->node, &wanted, early, &id)
                                  : kvx_subscribe(s->node, &wanted, &id);
    if (st == KVX_OK) {
        atomic_store(&s->last_sub, id.value);
        return;
    }
    race_expect(st == KVX_BUSY || st == KVX_AGAIN, kvx_status_name(st));
    (void)atomic_fetch_sub(&s->count, 1);
    give(s, pull);
}

static void *subscriber_run(void *arg)
{
    side *s = arg;
    uint64_t state = (uint64_t)(uintptr_t)&state;

    while (!race_is_over()) {
        if (atomic_load(&s->is_up) && atomic_load(&s->count) < WANTS_MAX)
            subscribe_one(s, &state);
        if (race_random(&state, 6) == 0) {
            const kvx_subscription_id id = { atomic_load(&s->last_sub) };
            const kvx_status st = kvx_cancel(s->node, id);
            race_expect(st == KVX_OK || st == KVX_NOT_FOUND, kvx_status_name(st));
        }
        pause_us(race_random(&state, 400));
    }
    return NULL;
}

/* --- events --- */

static void handle_ready(side *s, const kvx_event *event)
{
    race_pull *pull = event->user;
    const kvx_page_table table = { pull->pages, pull->count };

    race_expect(event->ready.components[0].page_count == pull->first + pull->count,
            "READY tells the pages");
    race_expect(event->ready.aux_bytes == sizeof(pull->room) &&
                        memcmp(event->ready.aux, &pull->room, sizeof(pull->room)) == 0,
            "aux has the size that was given");
    const kvx_status st = kvx_pull(s->node, event->subscription,
            KVX_PULL(.tables = &table, .table_count = 1,
                    .first_token = pull->first * RACE_PAGE_TOKENS));
    race_expect(st == KVX_OK || st == KVX_NOT_FOUND || st == KVX_AGAIN || st == KVX_BUSY,
            kvx_status_name(st));
    if (st == KVX_AGAIN)
        (void)(kvx_cancel(s->node, event->subscription) == KVX_OK);
}

static void handle_ended(side *s, const kvx_event *event)
{
    race_pull *pull = event->user;

    race_expect(pull->room == event->room, "the cookie is the room's");
    race_expect(!event->pages_held, "no close hangs");
    if (event->kind == KVX_EVENT_PULLED)
        race_expect(race_pool_holds(&s->pool, pull->room, pull->pages, pull->count, pull->first),
                "what was pulled is right");
    (void)atomic_fetch_add(event->kind == KVX_EVENT_PULLED ? &s->pulled : &s->failed, 1);
    give(s, pull);
    (void)atomic_fetch_sub(&s->count, 1);
}

static void handle(side *s, const kvx_event *event)
{
    if (event->kind == KVX_EVENT_PEER_UP && !event->is_accepted)
        atomic_store(&s->is_up, true);
    else if (event->kind == KVX_EVENT_PEER_LOST)
        race_expect(false, event->text);
    else if (event->kind == KVX_EVENT_READY)
        handle_ready(s, event);
    else if (event->kind == KVX_EVENT_PULLED || event->kind == KVX_EVENT_FAILED)
        handle_ended(s, event);
    else if (event->kind == KVX_EVENT_RELEASED) {
        race_expect(((race_pull *)event->user)->room == event->room, "the cookie is the room's");
        (void)atomic_fetch_add(&s->released, 1);
        give(s, event->user);
        (void)atomic_fetch_sub(&s->count, 1);
    }
}

static void *events_run(void *arg)
{
    side *s = arg;
    kvx_event event;

    while (!atomic_load(&is_stopping)) {
        if (kvx_node_wait(s->node, &event, EVENT_WAIT_MS))
            handle(s, &event);
    }
    return NULL;
}

static void *asker_run(void *arg)
{
    uint64_t state = 7;
    char text[20000];

    (void)arg;
    while (!race_is_over()) {
        side *s = &sides[race_random(&state, SIDES)];
        kvx_metrics_snapshot snapshot = { .struct_size = sizeof(snapshot) };
        kvx_ep_info info;
        race_expect_status(kvx_node_metrics(s->node, &snapshot), KVX_OK, "metrics are copied");
        race_expect(kvx_node_metrics_text(s->node, text, sizeof(text)) < sizeof(text),
                "metrics fit the buffer");
        (void)kvx_room_query(s->node, 1 + race_random(&state, ROOMS), NULL);
        (void)kvx_node_transport(s->node, s->peer, &info);
        pause_us(300);
    }
    return NULL;
}

/* --- the whole --- */

static void open_side(side *s, kvx_config *config, uint32_t which)
{
    race_pool_init(&s->pool);
    (void)which;
    race_expect_status(kvx_node_open(KVX_NODE_PARAMS(.config = config, .layout = &s->pool.layout,
                                             .compat = "race", .listen = "127.0.0.1:0"),
                               &s->node),
            KVX_OK, "a node opens");
}

static void connect_side(side *s, side *other)
{
    char address[128];

    race_expect_status(kvx_node_address(other->node, address, sizeof(address)), KVX_OK,
            "a node has an address");
    race_expect_status(kvx_connect(s->node, address, 0, &s->peer), KVX_OK, "a node connects");
}

static void run(void)
{
    pthread_t events[SIDES];
    pthread_t workers[3 * SIDES + 2];
    uint32_t count = 0;

    for (uint32_t i = 0; i < SIDES; i++) {
        race_start(&events[i], events_run, &sides[i]);
        race_start(&workers[count++], publisher_run, &sides[i]);
        race_start(&workers[count++], subscriber_run, &sides[i]);
        race_start(&workers[count++], subscriber_run, &sides[i]);
    }
    race_start(&workers[count++], asker_run, NULL);
    race_start(&workers[count++], race_swap_log, NULL);
    race_join(workers, count);
    for (int i = 0; i < 20000 && (atomic_load(&sides[0].count) | atomic_load(&sides[1].count)) != 0;
            i++)
        pause_us(1000);
    race_expect(atomic_load(&sides[0].count) == 0 && atomic_load(&sides[1].count) == 0,
            "everything ended by itself");
    atomic_store(&is_stopping, true);
    race_join(events, SIDES);
}

int main(int argc, char **argv)
{
    const char *transport = argc > 1 ? argv[1] : "loopback";

    if (kvx_transport_find(transport) == NULL)
        return 77; /* skipped: not built */
    kvx_config *config = race_config(transport, argc > 2 ? argv[2] : "thread");
    race_begin();
    for (uint32_t i = 0; i < SIDES; i++)
        open_side(&sides[i], config, i);
    for (uint32_t i = 0; i < SIDES; i++)
        connect_side(&sides[i], &sides[SIDES - 1 - i]);
    run();
    for (int i = 0; i < SIDES; i++) {
        side *s = &sides[i];
        race_expect_status(kvx_node_close(&s->node, 20000), KVX_OK, "a node closes");
        (void)printf("side %d: %llu pulled, %llu failed, %llu released\n", i,
                (unsigned long long)s->pulled, (unsigned long long)s->failed,
                (unsigned long long)s->released);
        race_expect(s->pulled > 0, "something was pulled");
    }
    for (uint32_t i = 0; i < SIDES; i++)
        race_pool_fini(&sides[i].pool);
    kvx_config_destroy(&config);
    return race_failures() == 0 ? 0 : 1;
}
