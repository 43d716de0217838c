/* SPDX-License-Identifier: Apache-2.0 */
/* Rooms by id: what is alive of them, and what is remembered after their end. */
#include "session/core.h"

#include <stdlib.h>

kvx_room *kvx_room_find(const kvx_session *session, uint64_t id)
{
    return kvx_map_find(&session->rooms, id);
}

kvx_room *kvx_room_get(kvx_session *session, uint64_t id)
{
    kvx_room *room = kvx_room_find(session, id);
    if (room != NULL)
        return room;

    room = calloc(1, sizeof(*room));
    if (room == NULL)
        return NULL;
    room->id = id;
    kvx_list_init(&room->waiting);
    if (kvx_map_insert(&session->rooms, id, room) != KVX_OK) {
        free(room);
        return NULL;
    }
    return room;
}

void kvx_room_settle(kvx_session *session, kvx_room *room)
{
    if (room->newest == NULL && kvx_list_is_empty(&room->waiting))
        room->readers = 0;
    if (room->newest != NULL || !kvx_list_is_empty(&room->waiting) || room->is_reserved)
        return;
    (void)kvx_map_remove(&session->rooms, room->id);
    free(room);
}

/* --- reservations --- */

/* A reservation becomes the publication; one that is too small asks for the whole anew. */
kvx_status kvx_room_park(kvx_session *session, const kvx_room *room, uint64_t bytes)
{
    if (room == NULL || !room->is_reserved)
        return kvx_admit_take(&session->parked, bytes);
    if (bytes <= room->reserved_bytes) {
        kvx_admit_resize(&session->parked, room->reserved_bytes, bytes);
        if (bytes < room->reserved_bytes)
            kvx_owner_reopened(session);
        return KVX_OK;
    }
    kvx_admit anew = session->parked;
    kvx_admit_give(&anew, room->reserved_bytes);
    const kvx_status status = kvx_admit_take(&anew, bytes);
    if (status == KVX_OK)
        session->parked = anew;
    else if (status == KVX_AGAIN)
        session->parked.was_refused = true;
    return status;
}

void kvx_room_unreserve(kvx_session *session, kvx_room *room)
{
    if (!room->is_reserved)
        return;
    kvx_uncount(&session->metrics->reserved_bytes, room->reserved_bytes);
    room->is_reserved = false;
    room->reserved_bytes = 0;
}

kvx_status kvx_session_reserve(kvx_session *session, uint64_t id, uint64_t bytes, uint64_t now)
{
    (void)now;
    KVX_ENSURE(!session->is_draining || bytes == 0, KVX_CLOSED);
    kvx_room *room = kvx_room_find(session, id);

    if (bytes == 0) {
        KVX_ENSURE(room != NULL && room->is_reserved, KVX_NOT_FOUND);
        kvx_admit_give(&session->parked, room->reserved_bytes);
        kvx_room_unreserve(session, room);
        kvx_room_settle(session, room);
        kvx_owner_reopened(session);
        return KVX_OK;
    }
    KVX_ENSURE(room == NULL || (!room->is_reserved && room->newest == NULL), KVX_BUSY);
    KVX_TRY(kvx_admit_take(&session->parked, bytes));
    room = kvx_room_get(session, id);
    if (room == NULL) {
        kvx_admit_give(&session->parked, bytes);
        return KVX_NO_MEMORY;
    }
    room->is_reserved = true;
    room->reserved_bytes = bytes;
    kvx_count(&session->metrics->reserved_bytes, bytes);
    return KVX_OK;
}

/* --- the memory of ended rooms --- */

kvx_status kvx_remember_init(kvx_memory_of_rooms *memory, uint32_t capacity)
{
    memory->ring = calloc(capacity, sizeof(*memory->ring));
    KVX_ENSURE(memory->ring != NULL, KVX_NO_MEMORY);
    memory->capacity = capacity;
    return KVX_OK;
}

void kvx_remember_fini(kvx_memory_of_rooms *memory)
{
    kvx_map_fini(&memory->index);
    free(memory->ring);
    *memory = (kvx_memory_of_rooms){ 0 };
}

void kvx_forget(kvx_memory_of_rooms *memory, uint64_t room)
{
    struct kvx_remembered *row = kvx_map_remove(&memory->index, room);

    if (row != NULL)
        row->is_used = false;
}

/* Without memory for the index the room is forgotten at once: who asks for it later waits for
 * its patience to end instead of hearing at once. */
void kvx_remember(kvx_memory_of_rooms *memory, uint64_t room, kvx_status status, uint64_t until)
{
    struct kvx_remembered *row = &memory->ring[memory->next];

    kvx_forget(memory, room);
    if (row->is_used)
        kvx_forget(memory, row->room);
    if (kvx_map_insert(&memory->index, room, row) != KVX_OK)
        return;
    *row = (struct kvx_remembered){ .room = room, .until = until, .status = status, .is_used = true };
    memory->next = (memory->next + 1) % memory->capacity;
}

bool kvx_recall(
        const kvx_memory_of_rooms *memory, uint64_t room, uint64_t now, kvx_status *status_out)
{
    const struct kvx_remembered *row = kvx_map_find(&memory->index, room);

    if (row == NULL || now >= row->until)
        return false;
    *status_out = row->status;
    return true;
}

/* --- the engine's question --- */

static kvx_room_state owner_state(const kvx_room *room)
{
    if (room->newest != NULL)
        return room->newest->is_revoked ? KVX_ROOM_REVOKING : KVX_ROOM_PUBLISHED;
    return kvx_list_is_empty(&room->waiting) ? KVX_ROOM_RESERVED : KVX_ROOM_AWAITED;
}

static kvx_room_state sub_state(const kvx_sub *sub, kvx_status *status)
{
    switch (sub->state) {
    case KVX_SUB_WAITING: return KVX_ROOM_WAITING;
    case KVX_SUB_READY: return KVX_ROOM_READY;
    case KVX_SUB_PULLING:
    case KVX_SUB_BYTES_IN:
    case KVX_SUB_CONFIRM:
    case KVX_SUB_VALID: return KVX_ROOM_PULLING;
    case KVX_SUB_DRAINING:
    case KVX_SUB_HELD: *status = sub->cause; return KVX_ROOM_DRAINING;
    case KVX_SUB_ENDED: *status = sub->cause; return KVX_ROOM_ENDED;
    }
    return KVX_ROOM_UNKNOWN;
}

static const kvx_sub *sub_of_room(const kvx_session *session, uint64_t room)
{
    size_t position = 0;

    for (kvx_link *link; (link = kvx_map_next(&session->links, &position)) != NULL;) {
        const kvx_sub *sub = kvx_map_find(&link->subscriptions, room);
        if (sub != NULL)
            return sub;
    }
    return NULL;
}

kvx_room_state kvx_session_room(const kvx_session *session, uint64_t id, kvx_status *status_out)
{
    kvx_status status = KVX_OK;
    kvx_room_state state = KVX_ROOM_UNKNOWN;
    const kvx_room *room = kvx_room_find(session, id);
    const kvx_sub *sub = room == NULL ? sub_of_room(session, id) : NULL;

    if (room != NULL)
        state = owner_state(room);
    else if (sub != NULL)
        state = sub_state(sub, &status);
    else if (kvx_recall(&session->tombstones, id, 0, &status))
        state = KVX_ROOM_FREED;
    else if (kvx_recall(&session->ended, id, 0, &status))
        state = KVX_ROOM_ENDED;
    if (status_out != NULL)
        *status_out = status;
    return state;
}
