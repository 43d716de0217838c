/* SPDX-License-Identifier: Apache-2.0 */
/* Leases: what a reader was promised. Everything about a lease names its nonce and counts only
 * for that nonce's own lease on its own connection (L1, L5, L9, L12). */
#include "session/core.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"

static bool same_generation(kvx_generation a, kvx_generation b)
{
    return a.epoch == b.epoch && a.counter == b.counter;
}

/* --- ends --- */

void kvx_lease_free(kvx_session *session, kvx_lease *lease)
{
    if (lease->link != NULL)
        (void)kvx_map_remove(&lease->link->leases, lease->nonce);
    kvx_list_remove(&lease->on_link);
    kvx_list_remove(&lease->node);
    kvx_due_fini(session, &lease->due);
    free(lease);
}

static void send_failed(
        kvx_session *session, const kvx_link *link, uint64_t nonce, kvx_status status)
{
    kvx_message message = { .type = KVX_MESSAGE_FAILED };

    message.released.nonce = nonce;
    message.released.status = status;
    session->sink.send(session->sink.arg, link->id, &message);
}

/* Forget a lease that was not granted. */
static void waiting_free(kvx_session *session, kvx_lease *lease)
{
    kvx_room *room = lease->room;

    session->waiting_count--;
    kvx_uncount(&session->metrics->waiting_subscriptions, 1);
    kvx_lease_free(session, lease);
    kvx_room_settle(session, room);
}

void kvx_lease_fail(kvx_session *session, kvx_lease *lease, kvx_status status)
{
    send_failed(session, lease->link, lease->nonce, status);
    waiting_free(session, lease);
}

/* The promise ends; the lease stays while operations of ours run on it. The caller frees it if
 * there are none, and checks the publication. */
void kvx_lease_end(kvx_session *session, kvx_lease *lease)
{
    kvx_reader_slot *slot = &lease->publication->slots[lease->reader];

    lease->is_ended = true;
    if (slot->state == KVX_READER_HELD)
        slot->state = KVX_READER_DONE;
    kvx_uncount(&session->metrics->leases, 1);
}

static void lease_finish(kvx_session *session, kvx_lease *lease, uint64_t now)
{
    kvx_publication *publication = lease->publication;

    kvx_lease_end(session, lease);
    if (lease->operations == 0)
        kvx_lease_free(session, lease);
    kvx_publication_check(session, publication, now);
}

/* Its connection was lost: the promise stands until its end, without a name. All such promises
 * of a publication fold into its lost_until; only running operations keep a record. */
void kvx_lease_lost(kvx_session *session, kvx_lease *lease, uint64_t now)
{
    kvx_publication *publication = lease->publication;

    if (publication == NULL) {
        waiting_free(session, lease);
        return;
    }
    if (!lease->is_ended) {
        kvx_reader_slot *slot = &publication->slots[lease->reader];
        slot->state = KVX_READER_KEPT;
        slot->kept_until = lease->expiry;
        if (lease->expiry > publication->lost_until)
            publication->lost_until = lease->expiry;
        lease->is_ended = true;
        kvx_uncount(&session->metrics->leases, 1);
    }
    (void)kvx_map_remove(&lease->link->leases, lease->nonce);
    kvx_list_remove(&lease->on_link);
    lease->link = NULL;
    if (lease->operations == 0)
        kvx_lease_free(session, lease);
    kvx_publication_check(session, publication, now);
}

/* --- granting --- */

static kvx_status slots_fix(kvx_publication *publication, uint32_t readers)
{
    if (publication->readers != 0)
        return publication->readers == readers ? KVX_OK : KVX_REFUSED;
    publication->slots = calloc(readers, sizeof(*publication->slots));
    KVX_ENSURE(publication->slots != NULL, KVX_NO_MEMORY);
    publication->readers = readers;
    return KVX_OK;
}

static kvx_status slot_is_free(
        const kvx_publication *publication, const kvx_lease *lease, uint64_t now)
{
    const kvx_reader_slot *slot = &publication->slots[lease->reader];

    switch (slot->state) {
    case KVX_READER_OPEN: return now < publication->hold_end ? KVX_OK : KVX_GONE;
    case KVX_READER_HELD: return KVX_REFUSED;
    case KVX_READER_KEPT:
        return slot->epoch == lease->epoch || now >= slot->kept_until ? KVX_OK : KVX_REFUSED;
    case KVX_READER_DONE: return KVX_GONE;
    }
    return KVX_REFUSED;
}

static kvx_status grant_check(const kvx_session *session, kvx_publication *publication,
        const kvx_lease *lease, uint64_t now)
{
    if (publication->is_revoked)
        return publication->is_aborted ? KVX_GONE : KVX_REVOKED;
    if (now - publication->born >= session->settings.publication_age_ns)
        return KVX_EXPIRED;
    KVX_TRY(slots_fix(publication, lease->readers));
    return slot_is_free(publication, lease, now);
}

static void send_ready(
        kvx_session *session, const kvx_lease *lease, const kvx_publication *publication)
{
    kvx_message message = { .type = KVX_MESSAGE_READY };

    message.ready.nonce = lease->nonce;
    message.ready.room = publication->room_id;
    message.ready.generation = publication->generation;
    message.ready.tokens = publication->tokens;
    message.ready.lease_ms = (uint32_t)(session->settings.lease_ns / KVX_NS_PER_MS);
    message.ready.echo = lease->link->echo;
    message.ready.component_count = publication->component_count;
    for (uint32_t i = 0; i < publication->component_count; i++) {
        message.ready.tables[i].runs = publication->tables[i].runs;
        message.ready.tables[i].run_count = publication->tables[i].count;
    }
    message.ready.aux = (kvx_blob){ publication->aux, publication->aux_bytes };
    session->sink.send(session->sink.arg, lease->link->id, &message);
}

void kvx_lease_grant(
        kvx_session *session, kvx_lease *lease, kvx_publication *publication, uint64_t now)
{
    const kvx_status status = grant_check(session, publication, lease, now);

    if (status != KVX_OK) {
        kvx_lease_fail(session, lease, status);
        return;
    }
    kvx_reader_slot *slot = &publication->slots[lease->reader];
    slot->state = KVX_READER_HELD;
    slot->epoch = lease->epoch;

    session->waiting_count--;
    kvx_uncount(&session->metrics->waiting_subscriptions, 1);
    kvx_due_set(session, &lease->due, KVX_NEVER);
    kvx_list_remove(&lease->node);
    kvx_list_append(&publication->leases, &lease->node);
    lease->room = NULL;
    lease->publication = publication;
    lease->expiry = now + session->settings.lease_ns;
    kvx_count(&session->metrics->leases_granted, 1);
    kvx_count(&session->metrics->leases, 1);
    send_ready(session, lease, publication);
}

/* --- SUBSCRIBE --- */

/* Whether this link has a place in the queue, or a lease, for the room. */
static bool has_room_already(const kvx_room *room, const kvx_link *link)
{
    kvx_list_foreach (node, &room->waiting) {
        if (KVX_LIST_ENTRY(node, kvx_lease, node)->link == link)
            return true;
    }
    if (room->newest == NULL)
        return false;
    kvx_list_foreach (node, &room->newest->leases) {
        const kvx_lease *lease = KVX_LIST_ENTRY(node, kvx_lease, node);
        if (lease->link == link && !lease->is_ended)
            return true;
    }
    return false;
}

static kvx_status subscribe_check(
        kvx_session *session, const kvx_link *link, const kvx_message *message, uint64_t now)
{
    const uint64_t room_id = message->subscribe.room;
    const kvx_room *room = kvx_room_find(session, room_id);
    kvx_status remembered = KVX_OK;

    if (message->subscribe.readers == 0 || message->subscribe.readers > KVX_READERS_MAX ||
            message->subscribe.reader >= message->subscribe.readers)
        return KVX_INVALID;
    if ((room != NULL && has_room_already(room, link)) ||
            kvx_map_find(&link->leases, message->subscribe.nonce) != NULL)
        return KVX_REFUSED;
    if (room != NULL && room->readers != 0 && room->readers != message->subscribe.readers)
        return KVX_REFUSED;
    if (room != NULL && room->newest != NULL)
        return KVX_OK;
    if (kvx_recall(&session->tombstones, room_id, now, &remembered))
        return remembered == KVX_OK ? KVX_GONE : remembered;
    if (session->is_draining)
        return KVX_GONE; /* it will not be published any more */
    return session->waiting_count < session->settings.waiting_max ? KVX_OK : KVX_NO_SPACE;
}

static kvx_lease *lease_create(
        kvx_session *session, kvx_link *link, kvx_room *room, const kvx_message *message)
{
    kvx_lease *lease = calloc(1, sizeof(*lease));
    if (lease == NULL)
        return NULL;

    lease->link = link;
    lease->epoch = link->remote_epoch;
    lease->nonce = message->subscribe.nonce;
    lease->reader = message->subscribe.reader;
    lease->readers = message->subscribe.readers;
    lease->room = room;
    if (kvx_due_init(session, &lease->due, KVX_OWNER_LEASE) != KVX_OK)
        goto fail;
    if (kvx_map_insert(&link->leases, lease->nonce, lease) != KVX_OK)
        goto fail_due;
    kvx_list_append(&link->lease_list, &lease->on_link);
    kvx_list_append(&room->waiting, &lease->node);
    return lease;

fail_due:
    kvx_due_fini(session, &lease->due);
fail:
    free(lease);
    return NULL;
}

void kvx_lease_subscribe(
        kvx_session *session, kvx_link *link, const kvx_message *message, uint64_t now)
{
    const uint64_t nonce = message->subscribe.nonce;
    const kvx_status status = subscribe_check(session, link, message, now);
    kvx_lease *lease = NULL;

    if (status != KVX_OK) {
        send_failed(session, link, nonce, status);
        return;
    }
    kvx_room *room = kvx_room_get(session, message->subscribe.room);
    if (room != NULL)
        lease = lease_create(session, link, room, message);
    if (lease == NULL) {
        send_failed(session, link, nonce, KVX_NO_MEMORY);
        if (room != NULL)
            kvx_room_settle(session, room);
        return;
    }
    room->readers = lease->readers;
    session->waiting_count++;
    kvx_count(&session->metrics->waiting_subscriptions, 1);
    if (room->newest != NULL) {
        kvx_publication *publication = room->newest;
        kvx_lease_grant(session, lease, publication, now);
        kvx_publication_check(session, publication, now);
        return;
    }
    kvx_due_set(session, &lease->due, now + message->subscribe.patience_ms * KVX_NS_PER_MS);
}

/* --- RENEW --- */

static kvx_status renew(
        kvx_session *session, kvx_link *link, const kvx_renew_item *item, uint64_t now)
{
    kvx_lease *lease = kvx_map_find(&link->leases, item->nonce);

    if (lease == NULL || lease->publication == NULL) {
        kvx_count(&session->metrics->foreign_messages, 1);
        return KVX_GONE;
    }
    const kvx_publication *publication = lease->publication;
    if (!same_generation(publication->generation, item->generation))
        return KVX_GONE;
    if (publication->is_revoked)
        return KVX_REVOKED;
    if (lease->is_ended || now >= lease->expiry ||
            now - publication->born >= session->settings.publication_age_ns)
        return KVX_EXPIRED;
    lease->expiry = now + session->settings.lease_ns;
    return KVX_OK;
}

void kvx_lease_renew(kvx_session *session, kvx_link *link, const kvx_message *message, uint64_t now)
{
    kvx_message answer = { .type = KVX_MESSAGE_LEASE };

    link->echo = message->renew.sequence;
    answer.lease.sequence = message->renew.sequence;
    answer.lease.items = session->lease_items;
    answer.lease.count = message->renew.count;
    for (uint32_t i = 0; i < message->renew.count; i++) {
        const kvx_renew_item item = kvx_wire_renew_at(message->renew.view, i);
        session->lease_items[i] =
                (kvx_lease_item){ .nonce = item.nonce, .status = renew(session, link, &item, now) };
    }
    session->sink.send(session->sink.arg, link->id, &answer);
}

/* --- RELEASE, ABORT, DRAINED --- */

/* What is about no lease of this link is late, or about another's, which is counted. */
static void count_if_foreign(kvx_session *session, uint64_t nonce)
{
    size_t position = 0;

    for (kvx_link *link; (link = kvx_map_next(&session->links, &position)) != NULL;) {
        if (kvx_map_find(&link->leases, nonce) == NULL)
            continue;
        kvx_count(&session->metrics->foreign_messages, 1);
        return;
    }
}

/* The lease that a message is about: its nonce's own, on this link, of that generation. */
static kvx_lease *lease_about(const kvx_link *link, const kvx_message *message)
{
    kvx_lease *lease = kvx_map_find(&link->leases, message->about.nonce);

    if (lease != NULL && lease->publication != NULL && !lease->is_ended &&
            same_generation(lease->publication->generation, message->about.generation))
        return lease;
    return NULL;
}

static kvx_status release_check(
        const kvx_session *session, const kvx_lease *lease, uint64_t room, uint64_t now)
{
    kvx_status remembered = KVX_OK;

    if (lease != NULL)
        return now < lease->expiry ? KVX_OK : KVX_EXPIRED;
    if (kvx_recall(&session->tombstones, room, now, &remembered) && remembered != KVX_OK)
        return remembered;
    return KVX_GONE;
}

void kvx_lease_release(
        kvx_session *session, kvx_link *link, const kvx_message *message, uint64_t now)
{
    kvx_message answer = { .type = KVX_MESSAGE_RELEASED };
    kvx_lease *lease = lease_about(link, message);

    if (lease == NULL)
        kvx_count(&session->metrics->foreign_messages, 1);
    answer.released.nonce = message->about.nonce;
    answer.released.status = release_check(session, lease, message->about.room, now);
    session->sink.send(session->sink.arg, link->id, &answer);
    /* Also when it came too late: the reader is quiet, so the promise may end. */
    if (lease != NULL) {
        if (answer.released.status != KVX_OK)
            lease->publication->has_lapsed = true;
        lease_finish(session, lease, now);
    }
}

void kvx_lease_abort(kvx_session *session, kvx_link *link, const kvx_message *message, uint64_t now)
{
    kvx_lease *lease = kvx_map_find(&link->leases, message->about.nonce);

    if (lease == NULL)
        count_if_foreign(session, message->about.nonce);
    if (lease == NULL || lease->is_ended) /* it ended already: nothing to do, nothing wrong */
        return;
    if (lease->publication == NULL)
        waiting_free(session, lease);
    else
        lease_finish(session, lease, now);
}

void kvx_lease_drained(
        kvx_session *session, kvx_link *link, const kvx_message *message, uint64_t now)
{
    kvx_lease *lease = lease_about(link, message);

    if (kvx_map_find(&link->leases, message->about.nonce) == NULL)
        count_if_foreign(session, message->about.nonce);
    /* A reader always answers, also when its lease ended before the REVOKE came. */
    if (lease != NULL && lease->publication->is_revoked)
        lease_finish(session, lease, now);
}

/* --- our own operations (L12) --- */

static kvx_lease *lease_of_epoch(const kvx_session *session, uint64_t epoch, uint64_t nonce)
{
    size_t position = 0;

    for (kvx_link *link; (link = kvx_map_next(&session->links, &position)) != NULL;) {
        if (link->peer->is_accepted && link->remote_epoch == epoch)
            return kvx_map_find(&link->leases, nonce);
    }
    return NULL;
}

kvx_status kvx_session_serve_begin(
        kvx_session *session, uint64_t remote_epoch, uint64_t nonce, uint64_t now)
{
    kvx_lease *lease = lease_of_epoch(session, remote_epoch, nonce);

    if (lease == NULL || lease->publication == NULL || lease->is_ended ||
            lease->publication->is_revoked || now >= lease->expiry) {
        kvx_count(&session->metrics->foreign_messages, 1);
        return KVX_REFUSED;
    }
    lease->operations++;
    return KVX_OK;
}

/* The lease's link may be lost meanwhile, so it is looked for in the publications. */
static kvx_lease *lease_with_operations(kvx_session *session, uint64_t epoch, uint64_t nonce)
{
    kvx_list_foreach (node, &session->publications) {
        kvx_publication *publication = KVX_LIST_ENTRY(node, kvx_publication, node);
        kvx_list_foreach (inner, &publication->leases) {
            kvx_lease *lease = KVX_LIST_ENTRY(inner, kvx_lease, node);
            if (lease->epoch == epoch && lease->nonce == nonce && lease->operations > 0)
                return lease;
        }
    }
    return NULL;
}

void kvx_session_serve_end(kvx_session *session, uint64_t remote_epoch, uint64_t nonce, uint64_t now)
{
    kvx_lease *lease = lease_with_operations(session, remote_epoch, nonce);
    if (lease == NULL)
        return;

    kvx_publication *publication = lease->publication;
    lease->operations--;
    if (lease->operations == 0 && lease->is_ended)
        kvx_lease_free(session, lease);
    kvx_publication_check(session, publication, now);
}
