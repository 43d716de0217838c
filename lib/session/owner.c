/* SPDX-License-Identifier: Apache-2.0 */
/* Publications: offering a room, wanting it back, and freeing its pages when L1 allows. */
#include "session/core.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* --- making --- */

/* What READY takes: a run, and at most all the rest but aux. */
#define READY_RUN_BYTES   8
#define READY_FIXED_BYTES UINT64_C(256)

void kvx_publication_destroy(kvx_session *session, kvx_publication *publication)
{
    kvx_list_foreach (node, &publication->leases)
        kvx_lease_free(session, KVX_LIST_ENTRY(node, kvx_lease, node));
    kvx_slot_clear(&publication->slot);
    kvx_list_remove(&publication->node);
    kvx_due_fini(session, &publication->due);
    for (uint32_t i = 0; i < KVX_COMPONENT_MAX; i++)
        free(publication->tables[i].runs);
    free(publication->slots);
    free(publication->aux);
    free(publication);
}

static kvx_status offer_check_table(const kvx_session *session, const kvx_offer *offer, uint32_t i)
{
    const kvx_component *component = &session->pool->components[i];
    const kvx_page_table *table = &offer->tables[i];

    if (component->page_tokens == 0)
        return KVX_OK;
    const uint32_t want = kvx_pages_for_tokens(offer->tokens, component->page_tokens);
    if (table->page_count == want)
        return KVX_OK;
    kvx_log(KVX_LOG_ERROR,
            "publish room %" PRIu64 ": component %s has %" PRIu32 " pages, %" PRIu32
            " tokens need %" PRIu32,
            offer->room, component->name, table->page_count, offer->tokens, want);
    return KVX_INVALID;
}

static kvx_status offer_check(const kvx_session *session, const kvx_offer *offer)
{
    if (offer->is_partial) {
        kvx_log(KVX_LOG_ERROR,
                "publish room %" PRIu64 ": publishing in chunks (is_partial) is not built yet",
                offer->room);
        return KVX_UNSUPPORTED;
    }
    if (offer->tokens == 0 || offer->table_count != session->pool->component_count ||
            offer->aux_bytes > KVX_AUX_MAX) {
        kvx_log(KVX_LOG_ERROR,
                "publish room %" PRIu64 ": %" PRIu32 " tokens, %" PRIu32
                " tables (the layout has %" PRIu32 "), %" PRIu32 " aux bytes (at most %d)",
                offer->room, offer->tokens, offer->table_count, session->pool->component_count,
                offer->aux_bytes, KVX_AUX_MAX);
        return KVX_INVALID;
    }
    for (uint32_t i = 0; i < offer->table_count; i++)
        KVX_TRY(offer_check_table(session, offer, i));
    return KVX_OK;
}

static kvx_status publication_copy_table(
        kvx_publication *publication, const kvx_page_table *table, uint32_t i)
{
    if (table->page_count == 0)
        return KVX_OK;
    kvx_page_run *runs = malloc(table->page_count * sizeof(*runs));
    KVX_ENSURE(runs != NULL, KVX_NO_MEMORY);

    const uint32_t count = kvx_runs_from_pages(table->pages, table->page_count, runs);
    kvx_page_run *shrunk = realloc(runs, count * sizeof(*runs));
    publication->tables[i].runs = shrunk != NULL ? shrunk : runs;
    publication->tables[i].count = count;
    return KVX_OK;
}

static kvx_status publication_copy(kvx_publication *publication, const kvx_offer *offer)
{
    for (uint32_t i = 0; i < offer->table_count; i++)
        KVX_TRY(publication_copy_table(publication, &offer->tables[i], i));
    if (offer->aux_bytes == 0)
        return KVX_OK;
    publication->aux = malloc(offer->aux_bytes);
    KVX_ENSURE(publication->aux != NULL, KVX_NO_MEMORY);
    memcpy(publication->aux, offer->aux, offer->aux_bytes);
    publication->aux_bytes = offer->aux_bytes;
    return KVX_OK;
}

static uint64_t offer_bytes(const kvx_session *session, const kvx_offer *offer)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < offer->table_count; i++)
        bytes += offer->tables[i].page_count * kvx_pool_page_bytes(session->pool, i);
    return bytes;
}

/* A reader must be able to hear of it. */
static kvx_status ready_check(const kvx_publication *publication)
{
    uint64_t bytes = READY_FIXED_BYTES + publication->aux_bytes;

    for (uint32_t i = 0; i < publication->component_count; i++)
        bytes += (uint64_t)publication->tables[i].count * READY_RUN_BYTES;
    if (bytes <= KVX_WIRE_FRAME_MAX)
        return KVX_OK;
    kvx_log(KVX_LOG_ERROR,
            "publish room %" PRIu64 ": its page tables take %" PRIu64
            " bytes, a message holds %" PRIu32 ": use larger pages, or more adjacent ones",
            publication->room_id, bytes, KVX_WIRE_FRAME_MAX);
    return KVX_INVALID;
}

static kvx_publication *publication_create(
        kvx_session *session, const kvx_offer *offer, uint64_t now)
{
    kvx_publication *publication = calloc(1, sizeof(*publication));
    if (publication == NULL)
        return NULL;

    kvx_list_init(&publication->leases);
    kvx_list_init(&publication->node);
    publication->slot.kind = KVX_OWNER_PUBLICATION;
    if (kvx_due_init(session, &publication->due, KVX_OWNER_PUBLICATION) != KVX_OK) {
        free(publication);
        return NULL;
    }
    publication->room_id = offer->room;
    publication->tokens = offer->tokens;
    publication->component_count = offer->table_count;
    publication->user = offer->user;
    publication->bytes = offer_bytes(session, offer);
    publication->born = now;
    publication->hold_end = now + session->settings.hold_ns;
    if (publication_copy(publication, offer) != KVX_OK) {
        kvx_publication_destroy(session, publication);
        return NULL;
    }
    return publication;
}

/* --- the busy book --- */

static void book_unpublish(
        kvx_session *session, const kvx_publication *publication, uint32_t table_count)
{
    for (uint32_t i = 0; i < table_count; i++)
        kvx_book_unpublish(
                &session->books[i], publication->tables[i].runs, publication->tables[i].count);
}

static kvx_status book_publish(kvx_session *session, const kvx_publication *publication)
{
    for (uint32_t i = 0; i < publication->component_count; i++) {
        kvx_page bad = 0;
        const kvx_status status = kvx_book_publish(&session->books[i], publication->tables[i].runs,
                publication->tables[i].count, &bad);
        if (status != KVX_OK) {
            kvx_log(KVX_LOG_ERROR, "publish room %" PRIu64 ": page %" PRIu32 " of %s %s",
                    publication->room_id, bad, session->pool->components[i].name,
                    status == KVX_BUSY ? "is the target of a pull" : "is not in the pool");
            book_unpublish(session, publication, i);
            return status;
        }
    }
    return KVX_OK;
}

/* --- admission --- */

void kvx_owner_reopened(kvx_session *session)
{
    if (kvx_admit_reopened(&session->parked))
        kvx_slot_set(session, &session->room_slot, KVX_EVENT_ROOM);
}

/* --- publishing --- */

bool kvx_publication_is_live(const kvx_publication *publication, uint64_t now)
{
    if (publication->is_freed || publication->is_revoked)
        return false;
    if (publication->readers == 0)
        return now < publication->hold_end;
    for (uint32_t i = 0; i < publication->readers; i++) {
        const kvx_reader_state state = publication->slots[i].state;
        if (state == KVX_READER_HELD || state == KVX_READER_KEPT ||
                (state == KVX_READER_OPEN && now < publication->hold_end))
            return true;
    }
    return false;
}

/* The older publication of a room stays held by its leases, but takes no more readers. */
static void room_take_newest(kvx_session *session, kvx_room *room, kvx_publication *publication)
{
    if (room->newest != NULL)
        room->newest->room = NULL;
    kvx_room_unreserve(session, room);
    room->newest = publication;
    publication->room = room;
}

static void publication_begin(
        kvx_session *session, kvx_room *room, kvx_publication *publication, uint64_t now)
{
    publication->generation = (kvx_generation){ session->hello->epoch, ++session->generation_count };
    room_take_newest(session, room, publication);
    kvx_list_append(&session->publications, &publication->node);
    session->live_count++;
    kvx_forget(&session->tombstones, room->id);
    kvx_count(&session->metrics->published, 1);
    kvx_count(&session->metrics->parked_rooms, 1);
    kvx_count(&session->metrics->parked_bytes, publication->bytes);
    kvx_log(KVX_LOG_DEBUG, "room %" PRIu64 ": published, %" PRIu32 " tokens", room->id,
            publication->tokens);

    while (!kvx_list_is_empty(&room->waiting)) {
        kvx_lease *lease = KVX_LIST_ENTRY(room->waiting.next, kvx_lease, node);
        kvx_lease_grant(session, lease, publication, now);
    }
    kvx_publication_check(session, publication, now);
}

kvx_status kvx_session_publish(kvx_session *session, const kvx_offer *offer, uint64_t now)
{
    KVX_ENSURE(!session->is_draining, KVX_CLOSED);
    KVX_TRY(offer_check(session, offer));
    kvx_room *room = kvx_room_find(session, offer->room);
    KVX_ENSURE(room == NULL || room->newest == NULL || !kvx_publication_is_live(room->newest, now),
            KVX_BUSY);
    kvx_publication *publication = publication_create(session, offer, now);
    KVX_ENSURE(publication != NULL, KVX_NO_MEMORY);

    kvx_status status = ready_check(publication);
    if (status == KVX_OK)
        status = book_publish(session, publication);
    if (status != KVX_OK)
        goto fail;
    status = KVX_NO_MEMORY;
    room = kvx_room_get(session, offer->room);
    if (room == NULL)
        goto fail_book;
    status = kvx_room_park(session, room, publication->bytes);
    if (status != KVX_OK)
        goto fail_room;
    publication_begin(session, room, publication, now);
    return KVX_OK;

fail_room:
    kvx_room_settle(session, room);
fail_book:
    book_unpublish(session, publication, publication->component_count);
fail:
    kvx_publication_destroy(session, publication);
    return status;
}

/* --- wanting it back --- */

void kvx_publication_revoke(kvx_session *session, kvx_publication *publication, uint64_t now)
{
    kvx_message message = { .type = KVX_MESSAGE_REVOKE };

    if (publication->is_revoked)
        return;
    publication->is_revoked = true;
    message.about.room = publication->room_id;
    message.about.generation = publication->generation;
    kvx_list_foreach (node, &publication->leases) {
        const kvx_lease *lease = KVX_LIST_ENTRY(node, kvx_lease, node);
        if (lease->is_ended || lease->link == NULL)
            continue;
        message.about.nonce = lease->nonce;
        session->sink.send(session->sink.arg, lease->link->id, &message);
    }
    kvx_publication_check(session, publication, now);
}

kvx_status kvx_session_revoke(kvx_session *session, uint64_t id, uint64_t now)
{
    const kvx_room *room = kvx_room_find(session, id);

    KVX_ENSURE(room != NULL && room->newest != NULL, KVX_NOT_FOUND);
    kvx_publication_revoke(session, room->newest, now);
    return KVX_OK;
}

kvx_status kvx_session_abort(kvx_session *session, uint64_t id, uint64_t now)
{
    KVX_ENSURE(!session->is_closing, KVX_CLOSED);
    kvx_room *room = kvx_room_find(session, id);

    if (room != NULL && room->newest != NULL) {
        room->newest->is_aborted = true;
        return kvx_session_revoke(session, id, now);
    }
    kvx_remember(&session->tombstones, id, KVX_GONE, now + session->settings.tombstone_ns);
    if (room == NULL)
        return KVX_OK;
    if (room->is_reserved) {
        kvx_admit_give(&session->parked, room->reserved_bytes);
        kvx_room_unreserve(session, room);
        kvx_owner_reopened(session);
    }
    while (room != NULL && !kvx_list_is_empty(&room->waiting)) {
        kvx_lease_fail(session, KVX_LIST_ENTRY(room->waiting.next, kvx_lease, node), KVX_GONE);
        room = kvx_room_find(session, id); /* goes with the last that needs it */
    }
    if (room != NULL)
        kvx_room_settle(session, room);
    return KVX_OK;
}

/* --- freeing (L1) --- */

/* Whether some reader never came, or never finished. */
static bool has_lapsed(const kvx_publication *publication)
{
    bool lapsed = publication->readers == 0 || publication->has_lapsed;

    for (uint32_t i = 0; i < publication->readers; i++)
        lapsed = lapsed || publication->slots[i].state != KVX_READER_DONE;
    return lapsed;
}

static void publication_free(kvx_session *session, kvx_publication *publication, uint64_t now)
{
    kvx_metrics *metrics = session->metrics;

    publication->is_freed = true;
    publication->has_lapsed = has_lapsed(publication);
    publication->status = publication->is_revoked   ? KVX_REVOKED
                          : publication->has_lapsed ? KVX_EXPIRED
                                                    : KVX_OK;
    kvx_due_set(session, &publication->due, KVX_NEVER);
    book_unpublish(session, publication, publication->component_count);
    kvx_admit_give(&session->parked, publication->bytes);
    session->live_count--;
    if (publication->room != NULL) {
        kvx_room *room = publication->room;
        publication->room = NULL;
        room->newest = NULL;
        kvx_remember(&session->tombstones, room->id,
                publication->is_aborted ? KVX_GONE : publication->status,
                now + session->settings.tombstone_ns);
        kvx_room_settle(session, room);
    }
    kvx_count(publication->is_revoked   ? &metrics->taken_back
              : publication->has_lapsed ? &metrics->lapsed
                                        : &metrics->released,
            1);
    kvx_uncount(&metrics->parked_rooms, 1);
    kvx_uncount(&metrics->parked_bytes, publication->bytes);
    kvx_log(KVX_LOG_DEBUG, "room %" PRIu64 ": pages free (%s)", publication->room_id,
            kvx_status_name(publication->status));
    kvx_slot_set(session, &publication->slot, KVX_EVENT_RELEASED);
    kvx_owner_reopened(session);
}

/* Expire leases past expiry + fence. Returns when the next one will be, KVX_NEVER: no lease and
 * no operation of ours is left; 0: only our own operations are left. */
static uint64_t leases_settle(kvx_session *session, kvx_publication *publication, uint64_t now)
{
    const uint64_t fence_ns = session->settings.fence_ns;
    uint64_t next = KVX_NEVER;
    bool has_operations = false;

    kvx_list_foreach (node, &publication->leases) {
        kvx_lease *lease = KVX_LIST_ENTRY(node, kvx_lease, node);
        const bool is_past = now >= lease->expiry + fence_ns;
        if (!lease->is_ended && is_past) {
            publication->has_lapsed = true;
            kvx_count(&session->metrics->leases_expired, 1);
            kvx_lease_end(session, lease);
            if (lease->operations == 0) {
                kvx_lease_free(session, lease);
                continue;
            }
        }
        if (!lease->is_ended || !is_past)
            next = kvx_earlier(next, lease->expiry + fence_ns);
        has_operations = has_operations || lease->operations > 0;
        if (lease->operations > 0 && is_past && !lease->is_closing) {
            lease->is_closing = true;
            publication->stuck_at = now + session->settings.close_ns;
            session->sink.close_sends(session->sink.arg, lease->epoch, lease->nonce);
        }
    }
    return next != KVX_NEVER || !has_operations ? next : 0;
}

/* When the open slots close; KVX_NEVER: none is open. */
static uint64_t slots_settle(const kvx_publication *publication, uint64_t now)
{
    bool is_waiting = publication->readers == 0;

    for (uint32_t i = 0; i < publication->readers; i++)
        is_waiting = is_waiting || publication->slots[i].state == KVX_READER_OPEN;
    if (!is_waiting)
        return KVX_NEVER;
    return now < publication->hold_end ? publication->hold_end : KVX_NEVER;
}

static void tell_stuck(kvx_session *session, kvx_publication *publication)
{
    publication->stuck_at = KVX_NEVER;
    kvx_log(KVX_LOG_WARN,
            "room %" PRIu64 ": a served read of ours does not end; its pages stay held",
            publication->room_id);
    kvx_slot_set(session, &publication->slot, KVX_EVENT_PAGES_STUCK);
}

void kvx_publication_check(kvx_session *session, kvx_publication *publication, uint64_t now)
{
    if (publication->is_freed)
        return;

    uint64_t next = leases_settle(session, publication, now);
    if (publication->lost_until != 0) {
        const uint64_t quiet_at = publication->lost_until + session->settings.fence_ns;
        if (now < quiet_at)
            next = kvx_earlier(next, quiet_at);
    }
    if (!publication->is_revoked)
        next = kvx_earlier(next, slots_settle(publication, now));
    if (next == KVX_NEVER) {
        publication_free(session, publication, now);
        return;
    }
    if (publication->stuck_at != 0 && now >= publication->stuck_at)
        tell_stuck(session, publication);
    if (next == 0) /* only our own operations are left: their end calls here again */
        next = publication->stuck_at != 0 ? publication->stuck_at : KVX_NEVER;
    kvx_due_set(session, &publication->due, next);
}
