/* SPDX-License-Identifier: Apache-2.0 */
#include "rooms.h"

#include "pair/host.h"

#include <inttypes.h>
#include <stdlib.h>

/* Rooms looked at after the present one, and how often all of them are. */
#define WINDOW  256
#define SCAN_NS (20 * HOST_NS_PER_MS)
/* Bytes filled between two looks at events. */
#define SLICE_BYTES (32 << 20)

struct prefill_room {
    const trace_request *request;
    cache_table table; /* no pages: not begun */
    uint32_t filled;   /* pages that hold their content */
    bool is_live;      /* published */
    bool is_revoked;   /* since it was published */
    bool is_refused;   /* counted as failed */
};

static uint64_t page_bytes(const kv_store *store)
{
    return geometry_token_bytes(&store->geometry) * store->page_tokens * store->rank_count;
}

bool rooms_open(prefill_rooms *rooms, pair_setup *setup)
{
    *rooms = (prefill_rooms){ .setup = setup, .count = setup->trace.count };
    rooms->slice_pages = (uint32_t)(SLICE_BYTES / page_bytes(&setup->store)) + 1;
    rooms->rooms = calloc(rooms->count, sizeof(*rooms->rooms));
    if (rooms->rooms == NULL) {
        (void)fputs("kvx-prefill: out of memory\n", stderr);
        return false;
    }
    for (size_t i = 0; i < rooms->count; i++)
        rooms->rooms[i].request = &setup->trace.requests[i];
    return true;
}

void rooms_close(prefill_rooms *rooms)
{
    for (size_t i = 0; rooms->rooms != NULL && i < rooms->count; i++)
        free(rooms->rooms[i].table.pages);
    free(rooms->rooms);
    rooms->rooms = NULL;
}

/* Somebody subscribed to a room that is not there. */
static bool is_wanted(const prefill_rooms *rooms, const prefill_room *room)
{
    if (room->is_live || room == rooms->current)
        return false;
    kvx_node *node = kvx_group_node(rooms->setup->group, 0);
    return kvx_room_query(node, room->request->room, NULL) == KVX_ROOM_AWAITED;
}

static prefill_room *find_wanted(const prefill_rooms *rooms, size_t first, size_t count)
{
    for (size_t i = first; i < rooms->count && i - first < count; i++)
        if (is_wanted(rooms, &rooms->rooms[i]))
            return &rooms->rooms[i];
    return NULL;
}

/* A decode that died may have read a room on some ranks only. Where it is over, the next decode
 * waits for it anew; where it is not, the old one would be kept for it: take that back. */
static void settle_ranks(const prefill_rooms *rooms, prefill_room *room)
{
    if (!room->is_live || room->is_revoked)
        return;
    for (uint32_t i = 0; i < rooms->setup->store.rank_count; i++) {
        kvx_node *node = kvx_group_node(rooms->setup->group, i);
        if (kvx_room_query(node, room->request->room, NULL) != KVX_ROOM_AWAITED)
            continue;
        room->is_revoked = kvx_group_revoke(rooms->setup->group, room->request->room) == KVX_OK;
        return;
    }
}

/* The next room in trace order; now and then the first of all, for those that ask again. */
static prefill_room *next_wanted(prefill_rooms *rooms)
{
    const uint64_t now_ns = host_now_ns();
    if (now_ns - rooms->scanned_ns < SCAN_NS)
        return find_wanted(rooms, rooms->cursor, WINDOW);
    rooms->scanned_ns = now_ns;
    for (size_t i = 0; i < rooms->count; i++)
        settle_ranks(rooms, &rooms->rooms[i]);
    return find_wanted(rooms, 0, rooms->count);
}

static void give_pages(prefill_rooms *rooms, prefill_room *room)
{
    const uint64_t begun_ns = host_thread_cpu_ns();
    cache_give(rooms->setup->cache, &room->table);
    rooms->engine_cpu_ns += host_thread_cpu_ns() - begun_ns;
}

/* A request that cannot be served fails alone: who waits for it is told. */
static void room_refuse(prefill_rooms *rooms, prefill_room *room, const char *why)
{
    const kvx_status st = kvx_group_abort(rooms->setup->group, room->request->room);
    if (room->is_refused)
        return;
    room->is_refused = true;
    rooms->failed++;
    rooms->tokens_done += room->request->tokens;
    (void)fprintf(stderr, "kvx-prefill: room %" PRIu64 " of %u tokens failed: %s%s\n",
            room->request->room, room->request->tokens, why,
            st == KVX_OK ? "" : ", and its readers were not told");
}

/* Begin a room. False: there is none, or no pages for it. */
static bool room_begin(prefill_rooms *rooms)
{
    prefill_room *room = next_wanted(rooms);
    if (room == NULL)
        return false;
    const kvx_status st = cache_take(rooms->setup->cache, room->request, true, &room->table);
    if (st == KVX_AGAIN)
        return false;
    rooms->cursor = (size_t)(room - rooms->rooms) + 1;
    if (st != KVX_OK) {
        room_refuse(rooms, room,
                st == KVX_NO_SPACE ? "larger than the pool, see --pool-tokens"
                                   : kvx_status_text(st));
        return true;
    }
    room->filled = room->table.shared;
    rooms->bytes_shared += room->table.shared * page_bytes(&rooms->setup->store);
    rooms->current = room;
    return true;
}

static void room_fill(prefill_rooms *rooms, prefill_room *room)
{
    const uint64_t begun_ns = host_thread_cpu_ns();
    const uint32_t left = room->table.count - room->filled;
    const store_range range = {
        .request = room->request,
        .table = &room->table,
        .first = room->filled,
        .count = left < rooms->slice_pages ? left : rooms->slice_pages,
    };
    store_fill(&rooms->setup->store, &range);
    room->filled += range.count;
    if (room->filled == room->table.count)
        cache_seal(rooms->setup->cache, room->request, &room->table);
    rooms->engine_cpu_ns += host_thread_cpu_ns() - begun_ns;
}

/* Publish the current room. False: the library has no room for it now. */
static bool room_publish(prefill_rooms *rooms, prefill_room *room)
{
    const kvx_page_table table = { .pages = room->table.pages, .page_count = room->table.count };
    const uint64_t print = trace_fingerprint(room->request);
    const kvx_status st = kvx_group_publish(rooms->setup->group,
            KVX_OFFER(.room = room->request->room, .tokens = room->request->tokens, .tables = &table,
                    .table_count = 1, .aux = &print, .aux_bytes = sizeof(print), .user = room));
    if (st == KVX_AGAIN)
        return false;
    rooms->current = NULL;
    if (st != KVX_OK) {
        give_pages(rooms, room);
        room_refuse(rooms, room, kvx_status_text(st));
        return true;
    }
    room->is_live = true;
    room->is_revoked = false;
    rooms->live++;
    rooms->published++;
    return true;
}

bool rooms_step(prefill_rooms *rooms)
{
    prefill_room *const room = rooms->current;
    if (room == NULL)
        return room_begin(rooms);
    if (room->filled == room->table.count)
        return room_publish(rooms, room);
    room_fill(rooms, room);
    return true;
}

void rooms_released(prefill_rooms *rooms, const kvx_event *event)
{
    prefill_room *const room = event->user;
    room->is_live = false;
    rooms->live--;
    give_pages(rooms, room);
    if (event->status == KVX_REVOKED)
        rooms->taken_back++;
    else if (event->status != KVX_OK)
        rooms->lapsed++;
    if (event->status != KVX_OK)
        return;
    rooms->released++;
    rooms->tokens_done += room->request->tokens;
    rooms->bytes_released += (uint64_t)room->request->tokens *
                             geometry_token_bytes(&rooms->setup->store.geometry) *
                             rooms->setup->store.rank_count;
}

void rooms_end(prefill_rooms *rooms)
{
    if (rooms->current != NULL)
        give_pages(rooms, rooms->current);
    rooms->current = NULL;
    for (size_t i = 0; i < rooms->count; i++) {
        const prefill_room *const room = &rooms->rooms[i];
        /* One that ended meanwhile has its event on the way. */
        if (room->is_live && kvx_group_revoke(rooms->setup->group, room->request->room) != KVX_OK)
            continue;
    }
}
