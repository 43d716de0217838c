/* SPDX-License-Identifier: Apache-2.0 */
/* Remote nodes: dialled ones, which are kept and dialled again until the engine leaves them, and
 * accepted ones, which live as long as their connection. */
#include "session/core.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#define REDIAL_PAUSE_MAX_NS KVX_NS_PER_SECOND

kvx_peer *kvx_peer_create(kvx_session *session, bool is_accepted)
{
    kvx_peer *peer = calloc(1, sizeof(*peer));
    if (peer == NULL)
        return NULL;

    peer->id = session->peer_count + 1;
    peer->is_accepted = is_accepted;
    peer->slot.kind = KVX_OWNER_PEER;
    if (kvx_due_init(session, &peer->redial, KVX_OWNER_PEER) != KVX_OK)
        goto fail;
    if (kvx_map_insert(&session->peers, peer->id, peer) != KVX_OK)
        goto fail_due;
    session->peer_count++;
    return peer;

fail_due:
    kvx_due_fini(session, &peer->redial);
fail:
    free(peer);
    return NULL;
}

void kvx_peer_free(kvx_session *session, kvx_peer *peer)
{
    kvx_slot_clear(&peer->slot);
    kvx_due_fini(session, &peer->redial);
    (void)kvx_map_remove(&session->peers, peer->id);
    if (!peer->is_accepted)
        session->dialed_count--;
    free(peer);
}

void kvx_peer_tell(kvx_session *session, kvx_peer *peer, kvx_event_kind event, kvx_status status,
        const char *text)
{
    peer->status = status;
    (void)snprintf(peer->text, sizeof(peer->text), "%s", text);
    kvx_slot_set(session, &peer->slot, event);
}

static void peer_dial(kvx_session *session, kvx_peer *peer)
{
    peer->is_dialing = true;
    session->sink.dial(session->sink.arg, peer->id, peer->address);
}

void kvx_peer_due(kvx_session *session, kvx_peer *peer)
{
    if (peer->link == NULL && !peer->is_dialing && !session->is_closing)
        peer_dial(session, peer);
}

void kvx_peer_redial(kvx_session *session, kvx_peer *peer, uint64_t now)
{
    const uint64_t pause_ns = peer->pause_ns;

    if (session->is_closing || peer->is_refused || peer->is_accepted)
        return;
    peer->pause_ns = pause_ns * 2 < REDIAL_PAUSE_MAX_NS ? pause_ns * 2 : REDIAL_PAUSE_MAX_NS;
    kvx_due_set(session, &peer->redial, now + pause_ns);
}

kvx_status kvx_session_connect(kvx_session *session, const char *address, uint32_t remote_rank,
        uint64_t now, kvx_peer_id *peer_out)
{
    (void)now;
    KVX_ENSURE(!session->is_closing, KVX_CLOSED);
    KVX_ENSURE(strlen(address) < KVX_ADDRESS_MAX, KVX_INVALID);
    KVX_ENSURE(session->dialed_count < session->settings.peers_max, KVX_NO_SPACE);

    kvx_peer *peer = kvx_peer_create(session, false);
    KVX_ENSURE(peer != NULL, KVX_NO_MEMORY);
    (void)snprintf(peer->address, sizeof(peer->address), "%s", address);
    peer->remote_rank = remote_rank;
    peer->pause_ns = session->settings.redial_ns;
    session->dialed_count++;
    peer_out->value = peer->id;
    peer_dial(session, peer);
    return KVX_OK;
}

kvx_status kvx_session_disconnect(kvx_session *session, kvx_peer_id id, uint64_t now)
{
    kvx_peer *peer = kvx_map_find(&session->peers, id.value);

    KVX_ENSURE(peer != NULL && !peer->is_leaving, KVX_NOT_FOUND);
    peer->is_refused = true; /* never again, also if a dial is under way */
    peer->is_leaving = !peer->is_accepted;
    if (peer->link == NULL) {
        kvx_peer_free(session, peer);
        return KVX_OK;
    }
    kvx_list_foreach (node, &peer->link->subs)
        kvx_sub_fail(session, KVX_LIST_ENTRY(node, kvx_sub, on_link), KVX_CANCELLED,
                "the peer was left", now);
    kvx_link_leave(session, peer->link, now);
    return KVX_OK;
}

void kvx_session_dialed(kvx_session *session, uint64_t peer_id, kvx_link_id id, uint64_t now)
{
    kvx_peer *peer = kvx_map_find(&session->peers, peer_id);
    kvx_link *link = NULL;

    if (peer != NULL) {
        peer->is_dialing = false;
        if (!session->is_closing && !peer->is_refused && peer->link == NULL)
            link = kvx_link_create(session, id, peer);
    }
    if (link == NULL) {
        session->sink.close_link(session->sink.arg, id);
        if (peer != NULL && peer->link == NULL)
            kvx_peer_redial(session, peer, now);
        return;
    }
    kvx_link_hello(session, link, now);
}

void kvx_session_dial_failed(
        kvx_session *session, uint64_t peer_id, kvx_status status, const char *why, uint64_t now)
{
    kvx_peer *peer = kvx_map_find(&session->peers, peer_id);

    if (peer == NULL)
        return;
    peer->is_dialing = false;
    kvx_log(KVX_LOG_DEBUG, "peer %" PRIu64 ": cannot connect to %s: %s", peer_id, peer->address,
            why);
    kvx_peer_tell(session, peer, KVX_EVENT_PEER_LOST, status, why);
    kvx_peer_redial(session, peer, now);
}

static kvx_link *link_of_epoch(const kvx_session *session, uint64_t epoch)
{
    size_t position = 0;

    for (kvx_link *link; (link = kvx_map_next(&session->links, &position)) != NULL;) {
        if (link->peer->is_accepted && link->remote_epoch == epoch)
            return link;
    }
    return NULL;
}

/* A new connection of a node replaces its old one, which counts as lost. */
static void replace_old(kvx_session *session, uint64_t epoch, uint64_t now)
{
    kvx_link *old = link_of_epoch(session, epoch);

    if (old == NULL)
        return;
    const kvx_link_id id = old->id;
    kvx_link_end(session, old, KVX_PEER_LOST, "replaced by a new connection", now);
    session->sink.close_link(session->sink.arg, id);
}

/* Why a connection is refused: in our words for our log, in the other side's for its own. */
typedef struct refusal {
    char ours[256];
    char theirs[256];
} refusal;

static void reject(kvx_session *session, kvx_link_id id, kvx_status status, const refusal *why)
{
    kvx_message message = { .type = KVX_MESSAGE_REJECT };

    message.reject.status = status;
    (void)snprintf(message.reject.text, sizeof(message.reject.text), "%s", why->theirs);
    kvx_count(&session->metrics->links_rejected, 1);
    kvx_log(KVX_LOG_WARN, "connection refused: %s", why->ours);
    session->sink.send(session->sink.arg, id, &message);
    session->sink.close_link(session->sink.arg, id);
}

static kvx_status refuse(refusal *why, kvx_status status, const char *text)
{
    (void)snprintf(why->ours, sizeof(why->ours), "%s", text);
    (void)snprintf(why->theirs, sizeof(why->theirs), "%s", text);
    return status;
}

/* Peers that came and went stay until their events are polled, as many as may be connected. */
static bool has_too_many(const kvx_session *session)
{
    const uint64_t accepted_count = session->peers.count - session->dialed_count;

    return accepted_count >= 2 * (uint64_t)session->settings.connections_max;
}

static kvx_status accept_check(kvx_session *session, const kvx_hello *hello, refusal *why)
{
    if (session->is_closing)
        return refuse(why, KVX_CLOSED, "the node is closing");
    if (has_too_many(session))
        return refuse(why, KVX_NO_SPACE, "too many connections whose events nobody polled");
    const kvx_status status =
            kvx_hello_match(session->hello, hello, true, why->ours, sizeof(why->ours));
    /* What is ours here is theirs there. */
    if (status != KVX_OK && kvx_hello_match(hello, session->hello, false, why->theirs,
                                    sizeof(why->theirs)) == KVX_OK)
        memcpy(why->theirs, why->ours, sizeof(why->theirs));
    return status;
}

static kvx_link *accept_link(kvx_session *session, kvx_link_id id, kvx_hello *hello)
{
    kvx_peer *peer = kvx_peer_create(session, true);
    if (peer == NULL)
        return NULL;

    kvx_link *link = kvx_link_create(session, id, peer);
    if (link == NULL) {
        kvx_peer_free(session, peer);
        return NULL;
    }
    link->remote = hello;
    link->remote_epoch = hello->epoch;
    link->state = KVX_LINK_UP;
    return link;
}

void kvx_session_accepted(kvx_session *session, kvx_link_id id, kvx_hello *hello, uint64_t now)
{
    refusal why;
    kvx_status status = accept_check(session, hello, &why);
    kvx_link *link = NULL;

    if (status == KVX_OK) {
        replace_old(session, hello->epoch, now);
        link = accept_link(session, id, hello);
        if (link == NULL)
            status = refuse(&why, KVX_NO_MEMORY, "out of memory");
    }
    if (link == NULL) {
        reject(session, id, status, &why);
        kvx_hello_destroy(&hello);
        return;
    }
    const kvx_message welcome = { .type = KVX_MESSAGE_WELCOME, .hello = session->hello };
    session->sink.send(session->sink.arg, id, &welcome);
    kvx_count(&session->metrics->links_opened, 1);
    kvx_peer_tell(session, link->peer, KVX_EVENT_PEER_UP, KVX_OK, "");
    kvx_link_ping(session, link, now);
}
