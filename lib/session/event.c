/* SPDX-License-Identifier: Apache-2.0 */
/* What the engine polls. Every object holds its one pending event, so the queue is bounded by
 * the objects and no event is lost; objects whose terminal event was polled are freed here. */
#include "session/core.h"

#include <stdio.h>
#include <string.h>

void kvx_slot_set(kvx_session *session, kvx_slot *slot, kvx_event_kind event)
{
    slot->event = event;
    if (!kvx_list_is_linked(&slot->node))
        kvx_list_append(&session->events, &slot->node);
}

void kvx_slot_clear(kvx_slot *slot)
{
    kvx_list_remove(&slot->node);
    slot->event = KVX_EVENT_NONE;
}

static void event_set_text(kvx_event *event, const char *text)
{
    (void)snprintf(event->text, sizeof(event->text), "%s", text);
}

static void event_of_peer(kvx_session *session, kvx_peer *peer, kvx_event *event)
{
    event->peer.value = peer->id;
    event->status = peer->status;
    event->is_accepted = peer->is_accepted;
    event_set_text(event, peer->text);
    if (peer->is_accepted && peer->link == NULL)
        kvx_peer_free(session, peer);
}

static void event_of_publication(
        kvx_session *session, kvx_publication *publication, kvx_event *event)
{
    event->status = publication->status;
    event->room = publication->room_id;
    event->user = publication->user;
    if (publication->is_freed)
        kvx_publication_destroy(session, publication);
}

static void event_ready(const kvx_sub *sub, kvx_ready *ready)
{
    ready->generation = sub->generation;
    ready->tokens = sub->tokens;
    ready->component_count = sub->job.component_count;
    for (uint32_t i = 0; i < sub->job.component_count; i++) {
        ready->components[i].runs = sub->source[i].runs;
        ready->components[i].run_count = sub->source[i].count;
        ready->components[i].page_count = sub->source[i].pages;
    }
    ready->aux = sub->aux;
    ready->aux_bytes = sub->aux_bytes;
}

static void event_of_sub(kvx_session *session, kvx_sub *sub, kvx_event *event)
{
    event->peer.value = sub->peer;
    event->room = sub->room;
    event->subscription.value = sub->job.nonce;
    event->user = sub->user;
    event->status = event->kind == KVX_EVENT_READY ? KVX_OK : sub->cause;
    event->stats = sub->stats;
    if (event->kind == KVX_EVENT_READY)
        event_ready(sub, &event->ready);
    if (event->kind == KVX_EVENT_FAILED) {
        event->pages_held = sub->state == KVX_SUB_HELD;
        event->has_page = sub->has_page;
        event->page = sub->page;
        event_set_text(event, sub->why != NULL ? sub->why : kvx_status_text(sub->cause));
    }
    if (sub->state == KVX_SUB_ENDED)
        kvx_sub_free(session, sub);
}

/* A status may come from the other side, where it reached further than it does here. */
static kvx_scope event_scope(kvx_owner_kind kind, kvx_status status)
{
    if (status == KVX_OK)
        return KVX_SCOPE_NONE;
    if (kind == KVX_OWNER_PEER)
        return KVX_SCOPE_PEER;
    return kvx_status_scope(status) == KVX_SCOPE_PEER ? KVX_SCOPE_PEER : KVX_SCOPE_REQUEST;
}

bool kvx_session_has_event(const kvx_session *session)
{
    return !kvx_list_is_empty(&session->events);
}

bool kvx_session_poll(kvx_session *session, kvx_event *event_out)
{
    if (kvx_list_is_empty(&session->events))
        return false;

    kvx_slot *slot = KVX_LIST_ENTRY(session->events.next, kvx_slot, node);
    memset(event_out, 0, sizeof(*event_out));
    event_out->kind = slot->event;
    const kvx_owner_kind slot_kind = slot->kind;
    kvx_slot_clear(slot);

    switch (slot_kind) {
    case KVX_OWNER_PEER:
        event_of_peer(session, KVX_CONTAINER_OF(slot, kvx_peer, slot), event_out);
        break;
    case KVX_OWNER_PUBLICATION:
        event_of_publication(session, KVX_CONTAINER_OF(slot, kvx_publication, slot), event_out);
        break;
    case KVX_OWNER_SUBSCRIPTION:
        event_of_sub(session, KVX_CONTAINER_OF(slot, kvx_sub, slot), event_out);
        break;
    case KVX_OWNER_LINK:
    case KVX_OWNER_LEASE:
    case KVX_OWNER_SESSION: break;
    }
    event_out->scope = event_scope(slot_kind, event_out->status);
    return true;
}
