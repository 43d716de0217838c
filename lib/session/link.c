/* SPDX-License-Identifier: Apache-2.0 */
/* A control connection: handshake, liveness, dispatch, end. */
#include "session/core.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"

kvx_link *kvx_link_create(kvx_session *session, kvx_link_id id, kvx_peer *peer)
{
    kvx_link *link = calloc(1, sizeof(*link));
    if (link == NULL)
        return NULL;

    link->id = id;
    link->peer = peer;
    kvx_list_init(&link->subs);
    kvx_list_init(&link->lease_list);
    if (kvx_due_init(session, &link->due, KVX_OWNER_LINK) != KVX_OK)
        goto fail;
    if (kvx_map_insert(&session->links, id, link) != KVX_OK)
        goto fail_due;
    peer->link = link;
    return link;

fail_due:
    kvx_due_fini(session, &link->due);
fail:
    free(link);
    return NULL;
}

static void link_free(kvx_session *session, kvx_link *link)
{
    kvx_list_remove(&link->suspect);
    kvx_due_fini(session, &link->due);
    (void)kvx_map_remove(&session->links, link->id);
    kvx_map_fini(&link->leases);
    kvx_map_fini(&link->subscriptions);
    kvx_hello_destroy(&link->remote);
    free(link);
}

void kvx_link_hello(kvx_session *session, kvx_link *link, uint64_t now)
{
    const kvx_message message = { .type = KVX_MESSAGE_HELLO, .hello = session->hello };

    session->hello->rank_wanted = link->peer->remote_rank;
    session->sink.send(session->sink.arg, link->id, &message);
    kvx_due_set(session, &link->due, now + session->settings.hello_ns);
}

/* --- liveness --- */

uint64_t kvx_link_next_sequence(kvx_link *link, uint64_t now)
{
    link->sequence++;
    link->sent_ns[link->sequence % KVX_SENT_RING] = now;
    return link->sequence;
}

uint64_t kvx_link_sent(const kvx_link *link, uint64_t sequence)
{
    if (sequence == 0 || sequence > link->sequence || link->sequence - sequence >= KVX_SENT_RING)
        return 0;
    return link->sent_ns[sequence % KVX_SENT_RING];
}

void kvx_link_answered(kvx_link *link, uint64_t sequence)
{
    if (sequence > link->answered && sequence <= link->sequence)
        link->answered = sequence;
}

/* When the other side counts as dead: peer_timeout after the oldest unanswered message. */
static uint64_t silence_at(const kvx_session *session, const kvx_link *link)
{
    if (link->answered == link->sequence)
        return KVX_NEVER;
    uint64_t sent = kvx_link_sent(link, link->answered + 1);
    if (sent == 0) /* more than a whole ring is unanswered: the oldest that is known */
        sent = link->sent_ns[(link->sequence + 1) % KVX_SENT_RING];
    return sent + session->settings.peer_timeout_ns;
}

static void link_arm(kvx_session *session, kvx_link *link)
{
    const uint64_t silence = silence_at(session, link);

    kvx_due_set(session, &link->due,
            silence < link->ping_at && !link->is_suspect ? silence : link->ping_at);
}

void kvx_link_ping(kvx_session *session, kvx_link *link, uint64_t now)
{
    kvx_message message = { .type = KVX_MESSAGE_PING };

    message.ping.sequence = kvx_link_next_sequence(link, now);
    session->sink.send(session->sink.arg, link->id, &message);
    link->ping_at = now + session->settings.ping_ns;
    link_arm(session, link);
}

static bool has_draining(const kvx_link *link)
{
    kvx_list_foreach (node, &link->subs) {
        if (KVX_LIST_ENTRY(node, kvx_sub, on_link)->state == KVX_SUB_DRAINING)
            return true;
    }
    return false;
}

void kvx_link_due(kvx_session *session, kvx_link *link, uint64_t now)
{
    if (link->peer->is_leaving && !has_draining(link)) {
        kvx_link_leave(session, link, now);
        return;
    }
    if (link->state == KVX_LINK_GREETING) {
        const kvx_link_id id = link->id;
        kvx_link_end(session, link, KVX_PEER_LOST, "no answer to the handshake", now);
        session->sink.close_link(session->sink.arg, id);
        return;
    }
    if (now >= silence_at(session, link) && !link->is_suspect) {
        link->is_suspect = true;
        kvx_list_append(&session->suspects, &link->suspect);
    }
    if (now >= link->ping_at)
        kvx_link_ping(session, link, now);
    else
        link_arm(session, link);
}

bool kvx_session_next_suspect(kvx_session *session, kvx_link_id *link_out)
{
    if (kvx_list_is_empty(&session->suspects))
        return false;
    kvx_link *link = KVX_LIST_ENTRY(session->suspects.next, kvx_link, suspect);
    kvx_list_remove(&link->suspect);
    *link_out = link->id;
    return true;
}

void kvx_session_link_idle(kvx_session *session, kvx_link_id id, uint64_t now)
{
    kvx_link *link = kvx_map_find(&session->links, id);

    if (link == NULL || link->state == KVX_LINK_GREETING)
        return;
    if (now >= silence_at(session, link)) {
        kvx_link_end(session, link, KVX_PEER_LOST, "silent for longer than peer_timeout", now);
        session->sink.close_link(session->sink.arg, id);
        return;
    }
    if (link->is_suspect) {
        link->is_suspect = false;
        kvx_list_remove(&link->suspect);
        link_arm(session, link);
    }
}

/* --- the end of a link --- */

static void link_lose_all(kvx_session *session, kvx_link *link, uint64_t now)
{
    /* The end of one lease may end others of its publication: the first is asked for anew. */
    while (!kvx_list_is_empty(&link->lease_list))
        kvx_lease_lost(session, KVX_LIST_ENTRY(link->lease_list.next, kvx_lease, on_link), now);
    while (!kvx_list_is_empty(&link->subs)) {
        kvx_sub *sub = KVX_LIST_ENTRY(link->subs.next, kvx_sub, on_link);
        kvx_list_remove(&sub->on_link);
        sub->link = NULL;
        if (sub->state != KVX_SUB_VALID) /* its bytes are good: the group decides */
            kvx_sub_fail(session, sub, KVX_PEER_LOST, NULL, now);
    }
}

void kvx_link_end(
        kvx_session *session, kvx_link *link, kvx_status status, const char *text, uint64_t now)
{
    kvx_peer *peer = link->peer;
    const kvx_link_id id = link->id;
    const bool has_data = !peer->is_accepted && link->state != KVX_LINK_GREETING;

    kvx_log(KVX_LOG_INFO, "peer %" PRIu64 ": connection ended: %s", peer->id, text);
    kvx_count(&session->metrics->links_lost, 1);
    peer->link = NULL;
    link_lose_all(session, link, now);
    if (has_data)
        session->sink.drop_data(session->sink.arg, id);
    link_free(session, link);
    if (peer->is_leaving) {
        kvx_peer_free(session, peer);
        return;
    }
    kvx_peer_tell(session, peer, KVX_EVENT_PEER_LOST, status, text);
    kvx_peer_redial(session, peer, now);
}

void kvx_link_leave(kvx_session *session, kvx_link *link, uint64_t now)
{
    const kvx_message bye = { .type = KVX_MESSAGE_BYE };
    const kvx_link_id id = link->id;

    if (has_draining(link))
        return;
    session->sink.send(session->sink.arg, id, &bye);
    kvx_link_end(session, link, KVX_CANCELLED, "we left", now);
    session->sink.close_link(session->sink.arg, id);
}

void kvx_session_link_lost(kvx_session *session, kvx_link_id id, kvx_status status, uint64_t now)
{
    kvx_link *link = kvx_map_find(&session->links, id);

    if (link != NULL)
        kvx_link_end(session, link, status, kvx_status_text(status), now);
}

void kvx_link_protocol_error(kvx_session *session, kvx_link *link, const char *what, uint64_t now)
{
    const kvx_link_id id = link->id;

    kvx_log(KVX_LOG_ERROR, "peer %" PRIu64 ": %s", link->peer->id, what);
    kvx_count(&session->metrics->protocol_errors, 1);
    kvx_link_end(session, link, KVX_PROTOCOL, what, now);
    session->sink.close_link(session->sink.arg, id);
}

/* --- handshake of the dialling side --- */

/* Whether trying again can help: a rank that is not open yet, a full or closing listener. */
static bool is_final(kvx_status status)
{
    return status == KVX_MISMATCH || status == KVX_INVALID || status == KVX_UNSUPPORTED ||
           status == KVX_PROTOCOL || status == KVX_UNREACHABLE;
}

static void link_refused(
        kvx_session *session, kvx_link *link, kvx_status status, const char *text, uint64_t now)
{
    const kvx_link_id id = link->id;

    link->peer->is_refused = is_final(status);
    kvx_link_end(session, link, status, text, now);
    session->sink.close_link(session->sink.arg, id);
}

static void link_welcome(kvx_session *session, kvx_link *link, kvx_message *message, uint64_t now)
{
    char why[256];

    link->remote = message->hello_in;
    message->hello_in = NULL;
    session->hello->rank_wanted = link->peer->remote_rank;
    kvx_status status = kvx_hello_match(session->hello, link->remote, false, why, sizeof(why));
    if (status == KVX_OK && link->remote->rank != link->peer->remote_rank) {
        (void)snprintf(why, sizeof(why), "rank: wanted %" PRIu32 ", theirs is %" PRIu32,
                link->peer->remote_rank, link->remote->rank);
        status = KVX_MISMATCH;
    }
    if (status != KVX_OK) {
        link_refused(session, link, status, why, now);
        return;
    }
    link->remote_epoch = link->remote->epoch;
    link->state = KVX_LINK_CONNECTING;
    kvx_link_ping(session, link, now);
    session->sink.connect_data(session->sink.arg, link->id, link->remote);
}

void kvx_session_data_ready(
        kvx_session *session, kvx_link_id id, kvx_status status, const char *why, uint64_t now)
{
    kvx_link *link = kvx_map_find(&session->links, id);

    if (link == NULL || link->state != KVX_LINK_CONNECTING)
        return;
    if (status != KVX_OK) {
        link_refused(session, link, status, why, now);
        return;
    }
    link->state = KVX_LINK_UP;
    link->peer->pause_ns = session->settings.redial_ns;
    kvx_count(&session->metrics->links_opened, 1);
    kvx_peer_tell(session, link->peer, KVX_EVENT_PEER_UP, KVX_OK, "");
}

static void link_greeting_message(
        kvx_session *session, kvx_link *link, kvx_message *message, uint64_t now)
{
    if (message->type == KVX_MESSAGE_WELCOME)
        link_welcome(session, link, message, now);
    else if (message->type == KVX_MESSAGE_REJECT)
        link_refused(session, link, message->reject.status, message->reject.text, now);
    else
        kvx_link_protocol_error(session, link, "a message before WELCOME", now);
}

/* --- dispatch --- */

static void link_answer_ping(kvx_session *session, kvx_link *link, const kvx_message *message)
{
    kvx_message pong = { .type = KVX_MESSAGE_PONG };

    link->echo = message->ping.sequence;
    pong.ping.sequence = message->ping.sequence;
    session->sink.send(session->sink.arg, link->id, &pong);
}

static void link_bye(kvx_session *session, kvx_link *link, uint64_t now)
{
    const kvx_link_id id = link->id;

    kvx_link_end(session, link, link->peer->is_accepted ? KVX_OK : KVX_PEER_LOST,
            "the other side said BYE", now);
    session->sink.close_link(session->sink.arg, id);
}

/* What only the dialling side may get, since it is the reader. */
static void reader_message(
        kvx_session *session, kvx_link *link, const kvx_message *message, uint64_t now)
{
    if (link->peer->is_accepted) {
        kvx_link_protocol_error(session, link, "an owner's message from a reader", now);
        return;
    }
    if (message->type == KVX_MESSAGE_READY)
        kvx_sub_ready(session, link, message, now);
    else if (message->type == KVX_MESSAGE_LEASE)
        kvx_trust_lease(session, link, message, now);
    else if (message->type == KVX_MESSAGE_RELEASED)
        kvx_sub_released(session, link, message, now);
    else if (message->type == KVX_MESSAGE_REVOKE)
        kvx_sub_revoked(session, link, message, now);
    else
        kvx_sub_failed(session, link, message, now);
}

/* What only the accepting side may get, since it is the owner. */
static void owner_message(
        kvx_session *session, kvx_link *link, const kvx_message *message, uint64_t now)
{
    if (!link->peer->is_accepted) {
        kvx_link_protocol_error(session, link, "a reader's message from an owner", now);
        return;
    }
    if (message->type == KVX_MESSAGE_SUBSCRIBE)
        kvx_lease_subscribe(session, link, message, now);
    else if (message->type == KVX_MESSAGE_RENEW)
        kvx_lease_renew(session, link, message, now);
    else if (message->type == KVX_MESSAGE_RELEASE)
        kvx_lease_release(session, link, message, now);
    else if (message->type == KVX_MESSAGE_ABORT)
        kvx_lease_abort(session, link, message, now);
    else
        kvx_lease_drained(session, link, message, now);
}

static void link_message(kvx_session *session, kvx_link *link, kvx_message *message, uint64_t now)
{
    switch (message->type) {
    case KVX_MESSAGE_HELLO:
    case KVX_MESSAGE_WELCOME:
    case KVX_MESSAGE_REJECT:
        kvx_link_protocol_error(session, link, "a second handshake", now);
        break;
    case KVX_MESSAGE_READY:
    case KVX_MESSAGE_LEASE:
    case KVX_MESSAGE_RELEASED:
    case KVX_MESSAGE_REVOKE:
    case KVX_MESSAGE_FAILED: reader_message(session, link, message, now); break;
    case KVX_MESSAGE_SUBSCRIBE:
    case KVX_MESSAGE_RENEW:
    case KVX_MESSAGE_RELEASE:
    case KVX_MESSAGE_ABORT:
    case KVX_MESSAGE_DRAINED: owner_message(session, link, message, now); break;
    case KVX_MESSAGE_PING: link_answer_ping(session, link, message); break;
    case KVX_MESSAGE_PONG: kvx_link_answered(link, message->ping.sequence); break;
    case KVX_MESSAGE_BYE: link_bye(session, link, now); break;
    }
}

void kvx_session_message(kvx_session *session, kvx_link_id id, kvx_message *message, uint64_t now)
{
    kvx_link *link = kvx_map_find(&session->links, id);

    if (link != NULL && link->state == KVX_LINK_GREETING)
        link_greeting_message(session, link, message, now);
    else if (link != NULL)
        link_message(session, link, message, now);
    if (message->type == KVX_MESSAGE_HELLO || message->type == KVX_MESSAGE_WELCOME)
        kvx_hello_destroy(&message->hello_in);
}
