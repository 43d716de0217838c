/* SPDX-License-Identifier: Apache-2.0 */
/* Two groups of four ranks in one process, used by many threads: publishing, revoking, aborting,
 * subscribing early and late, pulling, cancelling, asking each rank. What is delivered is right on
 * every rank, every page comes back, and both groups close.
 * Usage: race_group TRANSPORT thread|caller */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "race/race_world.h"

#define RANKS         4
#define ROOMS         48
#define WANTS_MAX     16
#define EVENT_WAIT_MS 20

/* One page table for all ranks: the first pool's free pages are those of every rank. */
typedef struct end {
    race_pool pools[RANKS];
    kvx_layout layouts[RANKS];
    kvx_group *group;
    _Atomic int count; /* published and not released, subscribed and not ended */
    _Atomic uint64_t good, bad;
} end;

static end prefill;
static end decode;
static kvx_peer_id peer;
static _Atomic bool is_up;
static _Atomic bool is_stopping;
static _Atomic uint64_t last_sub;

static void pause_us(uint32_t us)
{
    const struct timespec pause = { .tv_nsec = us * 1000L };
    (void)nanosleep(&pause, NULL);
}

static race_pull *take(end *e, uint64_t room)
{
    race_pull *pull = calloc(1, sizeof(*pull));

    pull->room = room;
    pull->count = race_room_pages(room);
    if (race_pool_take(&e->pools[0], pull->pages, pull->count))
        return pull;
    free(pull);
    return NULL;
}

static void give(end *e, race_pull *pull)
{
    if (pull != NULL)
        race_pool_give(&e->pools[0], pull->pages, pull->count);
    free(pull);
}

/* Ranks hold different bytes. */
static uint64_t on_rank(uint64_t room, uint32_t rank)
{
    return room * RANKS + rank;
}

/* --- prefill --- */

static void *publisher_run(void *arg)
{
    uint64_t state = (uint64_t)(uintptr_t)arg;

    while (!race_is_over()) {
        race_pull *o = take(&prefill, 1 + race_random(&state, ROOMS));
        if (o == NULL) {
            pause_us(200);
            continue;
        }
        for (uint32_t i = 0; i < RANKS; i++)
            race_pool_fill(&prefill.pools[i], on_rank(o->room, i), o->pages, o->count);
        const kvx_page_table table = { o->pages, o->count };
        (void)atomic_fetch_add(&prefill.count, 1);
        const kvx_status st = kvx_group_publish(
                prefill.group, KVX_OFFER(.room = o->room, .tokens = o->count * RACE_PAGE_TOKENS,
                                       .tables = &table, .table_count = 1, .user = o));
        if (st != KVX_OK) {
            race_expect(st == KVX_AGAIN || st == KVX_BUSY, kvx_status_name(st));
            (void)atomic_fetch_sub(&prefill.count, 1);
            give(&prefill, o);
        }
        if (race_random(&state, 8) == 0)
            (void)(kvx_group_revoke(prefill.group, 1 + race_random(&state, ROOMS)) == KVX_OK);
        if (race_random(&state, 40) == 0)
            (void)(kvx_group_abort(prefill.group, 1 + race_random(&state, ROOMS)) == KVX_OK);
        pause_us(race_random(&state, 500));
    }
    return NULL;
}

static void *prefill_events(void *arg)
{
    kvx_event event;

    (void)arg;
    while (!atomic_load(&is_stopping)) {
        if (!kvx_group_wait(prefill.group, &event, EVENT_WAIT_MS) ||
                event.kind != KVX_EVENT_RELEASED)
            continue;
        race_pull *o = event.user;
        race_expect(o->room == event.room, "the cookie is the room's");
        (void)atomic_fetch_add(event.status == KVX_OK ? &prefill.good : &prefill.bad, 1);
        for (uint32_t i = 1; i < RANKS; i++) {
            for (uint32_t k = 0; k < o->count; k++)
                memset(prefill.pools[i].memory[0] + (size_t)o->pages[k] * RACE_PAGE_BYTES,
                        RACE_POISON, RACE_PAGE_BYTES);
        }
        give(&prefill, o);
        (void)atomic_fetch_sub(&prefill.count, 1);
    }
    return NULL;
}

/* --- decode --- */

static void subscribe_one(uint64_t *state)
{
    kvx_subscription wanted = { .struct_size = sizeof(wanted), .peer = peer };
    kvx_subscription_id id = { 0 };

    wanted.room = 1 + race_random(state, ROOMS);
    race_pull *pull = take(&decode, wanted.room);
    if (pull == NULL)
        return;
    const kvx_page_table table = { pull->pages, pull->count };
    const bool is_early = race_random(state, 3) == 0;
    wanted.user = pull;
    (void)atomic_fetch_add(&decode.count, 1);
    const kvx_status st = kvx_group_subscribe(decode.group, &wanted,
            is_early ? KVX_PULL(.tables = &table, .table_count = 1) : NULL, &id);
    if (st == KVX_OK) {
        atomic_store(&last_sub, id.value);
        return;
    }
    race_expect(st == KVX_BUSY || st == KVX_AGAIN, kvx_status_name(st));
    (void)atomic_fetch_sub(&decode.count, 1);
    give(&decode, pull);
}

static void *subscriber_run(void *arg)
{
    uint64_t state = (uint64_t)(uintptr_t)arg;

    while (!race_is_over()) {
        if (atomic_load(&is_up) && atomic_load(&decode.count) < WANTS_MAX)
            subscribe_one(&state);
        if (race_random(&state, 6) == 0) {
            const kvx_subscription_id id = { atomic_load(&last_sub) };
            const kvx_status st = kvx_group_cancel(decode.group, id);
            race_expect(st == KVX_OK || st == KVX_NOT_FOUND, kvx_status_name(st));
        }
        pause_us(race_random(&state, 400));
    }
    return NULL;
}

static void decode_ready(const kvx_event *event)
{
    race_pull *pull = event->user;
    const kvx_page_table table = { pull->pages, pull->count };

    race_expect(event->ready.tokens == pull->count * RACE_PAGE_TOKENS, "READY tells the tokens");
    const kvx_status st = kvx_group_pull(
            decode.group, event->subscription, KVX_PULL(.tables = &table, .table_count = 1));
    race_expect(st == KVX_OK || st == KVX_NOT_FOUND || st == KVX_AGAIN || st == KVX_BUSY,
            kvx_status_name(st));
    if (st == KVX_AGAIN)
        (void)(kvx_group_cancel(decode.group, event->subscription) == KVX_OK);
}

static void decode_ended(const kvx_event *event)
{
    race_pull *pull = event->user;

    race_expect(pull->room == event->room, "the cookie is the subscription's");
    (void)atomic_fetch_add(event->kind == KVX_EVENT_PULLED ? &decode.good : &decode.bad, 1);
    for (uint32_t i = 0; i < RANKS && event->kind == KVX_EVENT_PULLED; i++)
        race_expect(race_pool_holds(
                            &decode.pools[i], on_rank(pull->room, i), pull->pages, pull->count, 0),
                "what was pulled is right on every rank");
    give(&decode, pull);
    (void)atomic_fetch_sub(&decode.count, 1);
}

static void *decode_events(void *arg)
{
    kvx_event event;

    (void)arg;
    while (!atomic_load(&is_stopping)) {
        if (!kvx_group_wait(decode.group, &event, EVENT_WAIT_MS))
            continue;
        if (event.kind == KVX_EVENT_PEER_UP)
            atomic_store(&is_up, true);
        else if (event.kind == KVX_EVENT_PEER_LOST)
            race_expect(false, event.text);
        else if (event.kind == KVX_EVENT_READY)
            decode_ready(&event);
        else if (event.kind == KVX_EVENT_PULLED || event.kind == KVX_EVENT_FAILED)
            decode_ended(&event);
    }
    return NULL;
}

/* --- the whole --- */

static void *asker_run(void *arg)
{
    uint64_t state = 7;
    char text[20000];

    (void)arg;
    while (!race_is_over()) {
        end *e = race_random(&state, 2) == 0 ? &prefill : &decode;
        kvx_node *node = kvx_group_node(e->group, race_random(&state, RANKS));
        kvx_metrics_snapshot snapshot = { .struct_size = sizeof(snapshot) };
        race_expect_status(kvx_node_metrics(node, &snapshot), KVX_OK, "metrics are copied");
        race_expect(kvx_node_metrics_text(node, text, sizeof(text)) < sizeof(text),
                "metrics fit the buffer");
        (void)kvx_room_query(node, 1 + race_random(&state, ROOMS), NULL);
        pause_us(300);
    }
    return NULL;
}

static void end_open(end *e, kvx_config *config, const char *listen)
{
    for (uint32_t i = 0; i < RANKS; i++) {
        race_pool_init(&e->pools[i]);
        e->layouts[i] = e->pools[i].layout;
    }
    race_expect_status(
            kvx_group_open(KVX_GROUP_PARAMS(.config = config, .layouts = e->layouts,
                                   .compat = "race", .rank_count = RANKS, .listen = listen),
                    &e->group),
            KVX_OK, "a group opens");
}

static void end_close(end *e, const char *name)
{
    race_expect_status(kvx_group_close(&e->group, 20000), KVX_OK, "a group closes");
    (void)printf("%s: %llu good, %llu bad\n", name, (unsigned long long)e->good,
            (unsigned long long)e->bad);
    race_expect(e->good > 0, "something was pulled");
    for (uint32_t i = 0; i < RANKS; i++)
        race_pool_fini(&e->pools[i]);
}

static void run(void)
{
    pthread_t events[2];
    pthread_t workers[7];
    uint32_t count = 0;

    race_start(&events[0], prefill_events, NULL);
    race_start(&events[1], decode_events, NULL);
    for (uintptr_t i = 1; i <= 2; i++) {
        race_start(&workers[count++], publisher_run, (void *)i);
        race_start(&workers[count++], subscriber_run, (void *)(i + 2));
    }
    race_start(&workers[count++], asker_run, NULL);
    race_start(&workers[count++], race_swap_log, NULL);
    race_join(workers, count);
    for (int i = 0; i < 20000 && (atomic_load(&prefill.count) | atomic_load(&decode.count)) != 0;
            i++)
        pause_us(1000);
    race_expect(atomic_load(&prefill.count) == 0, "every publication ended by itself");
    race_expect(atomic_load(&decode.count) == 0, "every subscription ended by itself");
    atomic_store(&is_stopping, true);
    race_join(events, 2);
}

int main(int argc, char **argv)
{
    const char *transport = argc > 1 ? argv[1] : "loopback";
    char address[128];

    if (kvx_transport_find(transport) == NULL)
        return 77; /* skipped: not built */
    kvx_config *config = race_config(transport, argc > 2 ? argv[2] : "thread");
    race_begin();
    end_open(&prefill, config, "127.0.0.1:0");
    end_open(&decode, config, NULL);
    race_expect_status(kvx_node_address(kvx_group_node(prefill.group, 0), address, sizeof(address)),
            KVX_OK, "a group has an address");
    race_expect_status(kvx_group_connect(decode.group, address, &peer), KVX_OK, "a group connects");
    run();
    end_close(&decode, "decode");
    end_close(&prefill, "prefill");
    kvx_config_destroy(&config);
    return race_failures() == 0 ? 0 : 1;
}
