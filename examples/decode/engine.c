/* SPDX-License-Identifier: Apache-2.0 */
#include "engine.h"

#include "pair/host.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A resident stays until so many others have come, in steps of its output length. */
#define TOKENS_A_STEP 50
#define STEPS_MAX     64
/* Tries for what fails for a reason that may pass. */
#define TRIES_MAX 12
/* A room that a decode before us was reading when it died is refused, or taken back, until its lease
 * is over: ask again now and then, for longer than leases last. */
#define REFUSED_PAUSE_NS (250 * HOST_NS_PER_MS)
#define REFUSED_NS       (20 * HOST_NS_PER_SECOND)

struct decode_room {
    const trace_request *request;
    kvx_subscription_id id;
    cache_table table; /* its pages, if it has any */
    verify_job job;
    uint64_t taken_ns;   /* when it took its pages */
    uint64_t given_ns;   /* when the library got them */
    uint64_t leave_at;   /* in arrivals, as a resident */
    uint64_t refused_ns; /* when it was refused first; 0: never */
    uint64_t again_ns;   /* not to be asked for again before */
    bool was_ready;      /* since it was asked for last */
    uint32_t tries;
    kvx_status last_status;        /* why it is to be asked for again */
    int cause;                     /* why we gave it up ourselves; 0: we did not */
    TAILQ_ENTRY(decode_room) link; /* in one list at most */
};

static uint32_t steps_of(const trace_request *request)
{
    const uint32_t steps = request->output_tokens / TOKENS_A_STEP + 1;
    return steps < STEPS_MAX ? steps : STEPS_MAX;
}

bool engine_open(decode_engine *engine, pair_setup *setup)
{
    *engine = (decode_engine){ .setup = setup, .room_count = setup->trace.count };
    TAILQ_INIT(&engine->again);
    TAILQ_INIT(&engine->ready);
    TAILQ_INIT(&engine->residents);
    engine->may_retry = setup->options.reconnect_s > 0;
    engine->rooms = calloc(engine->room_count, sizeof(*engine->rooms));
    if (engine->rooms == NULL || !report_init(&engine->report, engine->room_count))
        goto fail;
    for (size_t i = 0; i < engine->room_count; i++)
        engine->rooms[i].request = &setup->trace.requests[i];
    engine->report.is_verified = setup->options.verify;
    engine->report.reserve = setup->options.reserve_early ? "early" : "ready";
    if (setup->options.verify) {
        engine->verifier = verifier_start(&setup->store);
        if (engine->verifier == NULL)
            goto fail;
    }
    return true;

fail:
    (void)fputs("kvx-decode: out of memory or threads\n", stderr);
    return false;
}

void engine_close(decode_engine *engine)
{
    verifier_stop(&engine->verifier);
    for (size_t i = 0; engine->rooms != NULL && i < engine->room_count; i++)
        free(engine->rooms[i].table.pages);
    free(engine->rooms);
    engine->rooms = NULL;
    report_fini(&engine->report);
}

static void resident_leave(decode_engine *engine, decode_room *room)
{
    TAILQ_REMOVE(&engine->residents, room, link);
    cache_give(engine->setup->cache, &room->table);
}

/* Take pages; when there are none, the oldest residents make room. */
static kvx_status room_take_pages(decode_engine *engine, decode_room *room)
{
    kv_cache *const cache = engine->setup->cache;
    const bool may_share = engine->setup->options.use_prefix;
    kvx_status st;
    while ((st = cache_take(cache, room->request, may_share, &room->table)) == KVX_AGAIN) {
        decode_room *oldest = TAILQ_FIRST(&engine->residents);
        if (oldest == NULL)
            return KVX_AGAIN;
        resident_leave(engine, oldest);
    }
    room->taken_ns = host_now_ns();
    return st;
}

/* What the library is told about a room's pages; the prefix that is here already is left out. */
typedef struct room_target {
    kvx_page_table table;
    kvx_pull_params params;
} room_target;

static void room_aim(const decode_engine *engine, const decode_room *room, room_target *target)
{
    target->table = (kvx_page_table){
        .pages = room->table.pages + room->table.shared,
        .page_count = room->table.count - room->table.shared,
    };
    target->params = *KVX_PULL(.tables = &target->table, .table_count = 1,
            .first_token = room->table.shared * engine->setup->store.page_tokens,
            .deadline_ms = (uint32_t)engine->setup->options.deadline_ms);
}

static void room_fail(decode_engine *engine, decode_room *room, int code, const char *text)
{
    report_add_failure(&engine->report, code);
    engine->tokens_done += room->request->tokens;
    (void)fprintf(stderr, "kvx-decode: room %" PRIu64 " failed: %s\n", room->request->room, text);
}

/* Ask for a room. False: not now. */
static bool room_subscribe(decode_engine *engine, decode_room *room)
{
    const bool is_early = engine->setup->options.reserve_early;
    room_target target;
    if (is_early) {
        const kvx_status st = room_take_pages(engine, room);
        if (st == KVX_AGAIN)
            return false;
        if (st != KVX_OK) {
            room_fail(engine, room, st == KVX_NO_SPACE ? REPORT_CAUSE_TOO_LARGE : (int)st,
                    st == KVX_NO_SPACE ? "larger than our pool" : kvx_status_text(st));
            return true;
        }
        room_aim(engine, room, &target);
    }
    room->cause = 0;
    room->was_ready = false;
    room->given_ns = host_now_ns();
    const kvx_status st = kvx_group_subscribe(engine->setup->group,
            KVX_SUBSCRIPTION(.peer = engine->peer, .room = room->request->room, .user = room),
            is_early ? &target.params : NULL, &room->id);
    if (st == KVX_OK) {
        engine->waiting++;
        return true;
    }
    cache_give(engine->setup->cache, &room->table);
    if (st == KVX_AGAIN || st == KVX_BUSY || st == KVX_NO_SPACE)
        return false;
    room_fail(engine, room, (int)st, kvx_status_text(st));
    return true;
}

/* The first room to ask for again whose pause is over. */
static decode_room *next_again(const decode_engine *engine)
{
    decode_room *room = TAILQ_FIRST(&engine->again);
    const uint64_t now_ns = room == NULL ? 0 : host_now_ns();
    while (room != NULL && room->again_ns > now_ns)
        room = TAILQ_NEXT(room, link);
    return room;
}

static void subscribe_more(decode_engine *engine)
{
    const uint32_t most = (uint32_t)engine->setup->options.concurrency;
    while (engine->is_up && !engine->is_ending && engine->waiting + engine->verifying < most) {
        decode_room *room = next_again(engine);
        if (room != NULL) {
            TAILQ_REMOVE(&engine->again, room, link);
            if (room_subscribe(engine, room))
                continue;
            TAILQ_INSERT_HEAD(&engine->again, room, link);
            return;
        }
        if (engine->next == engine->room_count ||
                !room_subscribe(engine, &engine->rooms[engine->next]))
            return;
        engine->next++;
    }
}

/* End a subscription of our own accord; its event says when it is over. */
static void room_drop(decode_engine *engine, decode_room *room, int cause)
{
    room->cause = cause;
    if (kvx_group_cancel(engine->setup->group, room->id) != KVX_OK)
        return; /* it ended by itself: its event is on the way */
}

/* Pull a ready room. False: not now. */
static bool room_pull(decode_engine *engine, decode_room *room)
{
    const kvx_status taken = room_take_pages(engine, room);
    if (taken == KVX_AGAIN)
        return false;
    TAILQ_REMOVE(&engine->ready, room, link);
    if (taken != KVX_OK) {
        room_drop(engine, room, taken == KVX_NO_SPACE ? REPORT_CAUSE_TOO_LARGE : (int)taken);
        return true;
    }

    room_target target;
    room_aim(engine, room, &target);
    room->given_ns = host_now_ns();
    const kvx_status st = kvx_group_pull(engine->setup->group, room->id, &target.params);
    if (st == KVX_OK)
        return true;
    cache_give(engine->setup->cache, &room->table);
    if (st == KVX_AGAIN) {
        TAILQ_INSERT_HEAD(&engine->ready, room, link);
        return false;
    }
    if (st != KVX_NOT_FOUND) /* where it ended by itself, its event is on the way */
        room_drop(engine, room, (int)st);
    return true;
}

static bool list_has(const struct decode_rooms *rooms, const decode_room *wanted)
{
    const decode_room *room;
    TAILQ_FOREACH(room, rooms, link)
    if (room == wanted)
        return true;
    return false;
}

static void on_ready(decode_engine *engine, decode_room *room, const kvx_ready *ready)
{
    const uint64_t print = trace_fingerprint(room->request);
    if (ready->tokens == room->request->tokens && ready->aux_bytes == sizeof(print) &&
            memcmp(ready->aux, &print, sizeof(print)) == 0) {
        room->was_ready = true;
        TAILQ_INSERT_TAIL(&engine->ready, room, link);
        return;
    }
    (void)fprintf(stderr,
            "kvx-decode: room %" PRIu64 ": prefill computed another request of %u "
            "tokens, ours has %u: give both sides the same --trace\n",
            room->request->room, ready->tokens, room->request->tokens);
    room_drop(engine, room, KVX_MISMATCH);
}

/* Pages that were taken before the wire began, and for how long. */
static void count_idle(decode_engine *engine, const decode_room *room, const kvx_pull_stats *stats)
{
    uint64_t idle_ns = room->given_ns - room->taken_ns + stats->plan_ns;
    if (engine->setup->options.reserve_early)
        idle_ns += stats->wait_ns + stats->allocate_ns;
    engine->report.idle_page_seconds +=
            (double)idle_ns / 1e9 * (room->table.count - room->table.shared);
}

/* A request that is here and right begins to live. */
static void room_arrive(decode_engine *engine, decode_room *room)
{
    cache_seal(engine->setup->cache, room->request, &room->table);
    engine->report.requests++;
    engine->tokens_done += room->request->tokens;
    engine->arrivals++;
    room->leave_at = engine->arrivals + steps_of(room->request);
    TAILQ_INSERT_TAIL(&engine->residents, room, link);
}

static void on_pulled(decode_engine *engine, decode_room *room, const kvx_pull_stats *stats)
{
    const kv_store *const store = &engine->setup->store;
    engine->waiting--;
    report_add_pull(&engine->report, stats);
    count_idle(engine, room, stats);
    engine->report.skipped_bytes += (uint64_t)room->table.shared * store->page_tokens *
                                    geometry_token_bytes(&store->geometry) * store->rank_count;
    if (engine->verifier == NULL) {
        room_arrive(engine, room);
        return;
    }
    room->job = (verify_job){ .request = room->request, .table = &room->table };
    engine->verifying++;
    verifier_give(engine->verifier, &room->job);
}

static bool may_pass(kvx_status status)
{
    return kvx_status_scope(status) == KVX_SCOPE_PEER || status == KVX_GONE ||
           status == KVX_READ_FAILED || status == KVX_EXPIRED;
}

static bool refusal_may_pass(decode_room *room)
{
    const uint64_t now_ns = host_now_ns();
    if (room->refused_ns == 0)
        room->refused_ns = now_ns;
    room->again_ns = now_ns + REFUSED_PAUSE_NS;
    return now_ns - room->refused_ns < REFUSED_NS;
}

/* A lost prefill may come back, if we wait for it. Only failures that are neither its loss nor a
 * lease that ran out, of a room that was there, use up tries. */
static bool failure_may_pass(const decode_engine *engine, decode_room *room, kvx_status status)
{
    if (status == KVX_REFUSED || status == KVX_REVOKED)
        return refusal_may_pass(room);
    if (!engine->may_retry || !may_pass(status))
        return false;
    if (kvx_status_scope(status) == KVX_SCOPE_PEER || (status == KVX_EXPIRED && room->was_ready))
        return true;
    return ++room->tries < TRIES_MAX;
}

static bool room_retry(decode_engine *engine, decode_room *room, kvx_status status)
{
    if (engine->is_ending || room->cause != 0 || !failure_may_pass(engine, room, status))
        return false;
    engine->report.retried++;
    room->last_status = status;
    TAILQ_INSERT_TAIL(&engine->again, room, link);
    return true;
}

static void on_failed(decode_engine *engine, decode_room *room, const kvx_event *event)
{
    engine->waiting--;
    if (list_has(&engine->ready, room))
        TAILQ_REMOVE(&engine->ready, room, link);
    if (room->table.count > 0)
        count_idle(engine, room, &event->stats);
    if (event->pages_held)
        engine->held++;
    else
        cache_give(engine->setup->cache, &room->table);
    if (engine->is_left && event->status == KVX_CANCELLED)
        return; /* it counts as never run */
    if (!event->pages_held && room_retry(engine, room, event->status))
        return;
    const int code = room->cause == 0 ? (int)event->status : room->cause;
    const char *text = event->text[0] == '\0' ? kvx_status_text(event->status) : event->text;
    room_fail(engine, room, code, code == REPORT_CAUSE_TOO_LARGE ? "larger than our pool" : text);
}

static void on_quiet(decode_engine *engine, decode_room *room)
{
    engine->held--;
    cache_give(engine->setup->cache, &room->table);
}

void engine_event(decode_engine *engine, const kvx_event *event)
{
    switch (event->kind) {
    case KVX_EVENT_READY: on_ready(engine, event->user, &event->ready); return;
    case KVX_EVENT_PULLED: on_pulled(engine, event->user, &event->stats); return;
    case KVX_EVENT_FAILED: on_failed(engine, event->user, event); return;
    case KVX_EVENT_PAGES_QUIET: on_quiet(engine, event->user); return;
    case KVX_EVENT_NONE:
    case KVX_EVENT_PEER_UP:
    case KVX_EVENT_PEER_LOST:
    case KVX_EVENT_RELEASED:
    case KVX_EVENT_PAGES_STUCK:
    case KVX_EVENT_ROOM:
    case KVX_EVENT_CREDIT: return;
    }
}

static void on_verified(decode_engine *engine, verify_job *job)
{
    decode_room *const room = (decode_room *)((char *)job - offsetof(decode_room, job));
    const store_mismatch *const found = &job->found;
    const kv_geometry *const geometry = &engine->setup->store.geometry;

    engine->verifying--;
    if (found->count == 0) {
        room_arrive(engine, room);
        return;
    }
    char text[160];
    (void)snprintf(text, sizeof(text),
            "%" PRIu64 " pieces are wrong, the first is rank %u layer %u "
            "%s token %u in page %u",
            found->count, found->rank, found->region / geometry->role_count,
            geometry->roles[found->region % geometry->role_count].name, found->token, found->page);
    engine->report.mismatches += found->count;
    cache_give(engine->setup->cache, &room->table);
    room_fail(engine, room, KVX_MISMATCH, text);
}

static void leave_in_time(decode_engine *engine)
{
    decode_room *next;
    for (decode_room *room = TAILQ_FIRST(&engine->residents); room != NULL; room = next) {
        next = TAILQ_NEXT(room, link);
        if (room->leave_at <= engine->arrivals)
            resident_leave(engine, room);
    }
}

void engine_step(decode_engine *engine)
{
    verify_job *job;
    while (engine->verifier != NULL && (job = verifier_take(engine->verifier)) != NULL)
        on_verified(engine, job);
    leave_in_time(engine);
    decode_room *room;
    while ((room = TAILQ_FIRST(&engine->ready)) != NULL && room_pull(engine, room))
        continue;
    subscribe_more(engine);
}

void engine_leave(decode_engine *engine)
{
    engine->is_ending = true;
    engine->is_left = true;
    for (size_t i = 0; i < engine->next; i++)
        if (kvx_group_cancel(engine->setup->group, engine->rooms[i].id) != KVX_OK)
            continue; /* it ended, or its event is on the way */
}

bool engine_is_done(const decode_engine *engine)
{
    const bool is_all_begun = engine->next == engine->room_count && TAILQ_EMPTY(&engine->again);
    return engine->waiting == 0 && engine->verifying == 0 && (is_all_begun || engine->is_ending);
}

uint32_t engine_empty(decode_engine *engine)
{
    decode_room *room;
    while ((room = TAILQ_FIRST(&engine->again)) != NULL) {
        TAILQ_REMOVE(&engine->again, room, link);
        room_fail(engine, room, (int)room->last_status, kvx_status_text(room->last_status));
    }
    while ((room = TAILQ_FIRST(&engine->residents)) != NULL)
        resident_leave(engine, room);
    const kv_store *const store = &engine->setup->store;
    if (engine->held > 0 || engine->waiting > 0 || engine->verifying > 0)
        return 0; /* they have theirs for a reason */
    return store->page_count - cache_free_count(engine->setup->cache);
}
