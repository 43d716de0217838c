/* SPDX-License-Identifier: Apache-2.0 */
/* Subscriptions and the pulls they become: what the owner says of them, and how they end. */
#include "session/core.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#define LEASE_MS_MIN 10 /* a third of it is the pause between renewals */

kvx_sub *kvx_sub_of_job(kvx_pull_job *job)
{
    return KVX_CONTAINER_OF(job, kvx_sub, job);
}

/* --- queues --- */

void kvx_sub_queue(kvx_session *session, kvx_sub *sub)
{
    if (!kvx_list_is_linked(&sub->in_jobs))
        kvx_list_append(&session->jobs, &sub->in_jobs);
}

void kvx_sub_joint(kvx_session *session, kvx_sub *sub, kvx_joint_step step)
{
    if (!sub->is_joint)
        return;
    sub->joint_step = step;
    if (!kvx_list_is_linked(&sub->in_joints))
        kvx_list_append(&session->joints, &sub->in_joints);
}

bool kvx_session_next_joint(kvx_session *session, kvx_subscription_id *id_out,
        kvx_joint_step *step_out, kvx_status *status_out)
{
    if (kvx_list_is_empty(&session->joints))
        return false;
    kvx_sub *sub = KVX_LIST_ENTRY(session->joints.next, kvx_sub, in_joints);
    kvx_list_remove(&sub->in_joints);
    id_out->value = sub->job.nonce;
    *step_out = sub->joint_step;
    *status_out = sub->cause;
    return true;
}

/* --- messages about it --- */

void kvx_sub_send_about(kvx_session *session, kvx_sub *sub, kvx_message_type type)
{
    kvx_message message = { .type = type };

    if (sub->link == NULL)
        return;
    message.about.nonce = sub->job.nonce;
    message.about.room = sub->room;
    message.about.generation = sub->generation;
    session->sink.send(session->sink.arg, sub->link->id, &message);
}

/* --- time --- */

/* Whether the end of trust ends it; once RELEASE is out, only RELEASED, deadline or loss do. */
static bool has_trust_end(const kvx_sub *sub)
{
    return sub->trust_until != 0 && (sub->state == KVX_SUB_READY || sub->state == KVX_SUB_PULLING ||
                                            sub->state == KVX_SUB_BYTES_IN);
}

void kvx_sub_arm(kvx_session *session, kvx_sub *sub)
{
    uint64_t at = KVX_NEVER;

    if (sub->state == KVX_SUB_WAITING || sub->state == KVX_SUB_READY)
        at = kvx_earlier(at, sub->patience_at);
    else
        at = kvx_earlier(at, sub->deadline_at);
    if (has_trust_end(sub))
        at = kvx_earlier(at, sub->trust_until);
    if (sub->state != KVX_SUB_WAITING && sub->link != NULL)
        at = kvx_earlier(at, sub->renew_at);
    if (sub->state >= KVX_SUB_DRAINING)
        at = KVX_NEVER;
    kvx_due_set(session, &sub->due, at);
}

void kvx_sub_due(kvx_session *session, kvx_sub *sub, uint64_t now)
{
    if (sub->state <= KVX_SUB_READY && now >= sub->patience_at) {
        kvx_sub_fail(session, sub, KVX_EXPIRED,
                sub->state == KVX_SUB_READY ? "nobody pulled it within the patience"
                                            : "not published within the patience",
                now);
    } else if (sub->state > KVX_SUB_READY && now >= sub->deadline_at) {
        if (sub->state != KVX_SUB_VALID) /* its bytes are good: the group decides */
            kvx_sub_fail(session, sub, KVX_DEADLINE, NULL, now);
        sub->deadline_at = KVX_NEVER;
    } else if (has_trust_end(sub) && now >= sub->trust_until) {
        kvx_sub_fail(session, sub, KVX_EXPIRED, "the lease was not renewed in time", now);
    } else if (sub->link != NULL && now >= sub->renew_at) {
        kvx_trust_renew(session, sub->link, now);
    }
    kvx_sub_arm(session, sub);
}

/* --- ends --- */

static void sub_release_pages(kvx_session *session, kvx_sub *sub)
{
    for (uint32_t i = 0; i < KVX_COMPONENT_MAX; i++) {
        if (sub->taken[i] > 0)
            kvx_book_unpull(&session->books[i], sub->pages[i], sub->taken[i]);
        sub->taken[i] = 0;
        free(sub->pages[i]);
        sub->pages[i] = NULL;
    }
}

static void sub_give_credit(kvx_session *session, kvx_sub *sub)
{
    if (!sub->has_credit)
        return;
    sub->has_credit = false;
    kvx_admit_give(&session->credits, sub->credit_bytes);
    if (kvx_admit_reopened(&session->credits))
        kvx_slot_set(session, &session->credit_slot, KVX_EVENT_CREDIT);
}

/* Off its link and out of the queues: nothing of the protocol finds it any more. */
static void sub_unlink(kvx_session *session, kvx_sub *sub)
{
    kvx_due_set(session, &sub->due, KVX_NEVER);
    kvx_list_remove(&sub->in_jobs);
    sub->needs_start = sub->needs_stop = sub->needs_trust = false;
    if (sub->link != NULL) {
        (void)kvx_map_remove(&sub->link->subscriptions, sub->room);
        if (sub->link->peer->is_leaving) /* it may have been the last to drain */
            kvx_due_set(session, &sub->link->due, 0);
    }
    kvx_list_remove(&sub->on_link);
    sub->link = NULL;
}

static void sub_count(kvx_session *session, const kvx_sub *sub, uint64_t now)
{
    kvx_metrics *metrics = session->metrics;

    if (sub->cause != KVX_OK) {
        kvx_metrics_count_failure(metrics, sub->cause);
        return;
    }
    kvx_count(&metrics->pulled, 1);
    kvx_hist_add(&metrics->wait_ns, sub->stats.wait_ns);
    kvx_hist_add(&metrics->allocate_ns, sub->stats.allocate_ns);
    kvx_hist_add(&metrics->plan_ns, sub->stats.plan_ns);
    kvx_hist_add(&metrics->wire_ns, sub->stats.wire_ns);
    kvx_hist_add(&metrics->confirm_ns, sub->stats.confirm_ns);
    kvx_hist_add(&metrics->usable_ns, now - sub->ready_at);
}

void kvx_sub_end(kvx_session *session, kvx_sub *sub, kvx_status status, uint64_t now)
{
    sub->state = KVX_SUB_ENDED;
    sub->cause = status;
    sub_unlink(session, sub);
    sub_release_pages(session, sub);
    sub_give_credit(session, sub);
    sub_count(session, sub, now);
    session->running_count--;
    kvx_uncount(&session->metrics->subscriptions, 1);
    kvx_remember(&session->ended, sub->room, status, now + session->settings.tombstone_ns);
    kvx_log(KVX_LOG_DEBUG, "room %" PRIu64 ": %s%s%s", sub->room,
            status == KVX_OK ? "pulled" : "failed: ", status == KVX_OK ? "" : kvx_status_text(status),
            sub->has_page ? " (a page is named)" : "");
    kvx_slot_set(session, &sub->slot, status == KVX_OK ? KVX_EVENT_PULLED : KVX_EVENT_FAILED);
}

void kvx_sub_free(kvx_session *session, kvx_sub *sub)
{
    (void)kvx_map_remove(&session->subs, sub->job.nonce);
    kvx_slot_clear(&sub->slot);
    kvx_list_remove(&sub->in_joints);
    kvx_due_fini(session, &sub->due);
    for (uint32_t i = 0; i < KVX_COMPONENT_MAX; i++)
        free(sub->source[i].runs);
    free(sub->aux);
    free(sub);
}

/* Quiet and failed: the owner hears it, unless its connection is gone. */
static void sub_end_quiet(kvx_session *session, kvx_sub *sub, uint64_t now)
{
    kvx_sub_send_about(session, sub, sub->owes_drained ? KVX_MESSAGE_DRAINED : KVX_MESSAGE_ABORT);
    kvx_sub_end(session, sub, sub->cause, now);
}

void kvx_sub_fail(
        kvx_session *session, kvx_sub *sub, kvx_status cause, const char *why, uint64_t now)
{
    if (sub->state >= KVX_SUB_DRAINING)
        return;
    sub->cause = cause;
    sub->why = why;
    kvx_sub_joint(session, sub, KVX_JOINT_FAILED);
    if (sub->state != KVX_SUB_PULLING || !sub->is_with_engine) {
        sub_end_quiet(session, sub, now);
        return;
    }
    sub->state = KVX_SUB_DRAINING;
    sub->needs_stop = true;
    kvx_sub_queue(session, sub);
    kvx_sub_arm(session, sub);
}

kvx_status kvx_session_fail(
        kvx_session *session, kvx_subscription_id id, kvx_status cause, uint64_t now)
{
    kvx_sub *sub = kvx_map_find(&session->subs, id.value);

    KVX_ENSURE(sub != NULL && sub->state < KVX_SUB_DRAINING, KVX_NOT_FOUND);
    kvx_sub_fail(session, sub, cause,
            cause == KVX_CANCELLED ? NULL : "another rank of the group failed", now);
    return KVX_OK;
}

/* --- READY --- */

static kvx_status ready_copy_table(const kvx_session *session, const kvx_link *link, kvx_sub *sub,
        const kvx_message *message, uint32_t i)
{
    const kvx_wire_runs *view = &message->ready.tables[i].view;
    const kvx_hello_component *remote = &link->remote->components[i];
    const uint32_t page_tokens = session->pool->components[i].page_tokens;
    kvx_page_run *runs = NULL;

    if (view->count > 0) {
        runs = malloc(view->count * sizeof(*runs));
        KVX_ENSURE(runs != NULL, KVX_NO_MEMORY);
        for (uint32_t k = 0; k < view->count; k++)
            runs[k] = kvx_wire_run_at(view, k);
    }
    sub->source[i].runs = runs;
    sub->source[i].count = view->count;
    KVX_TRY(kvx_runs_check(runs, view->count, remote->page_count, &sub->source[i].pages));
    KVX_ENSURE(page_tokens == 0 || sub->source[i].pages ==
                                           kvx_pages_for_tokens(message->ready.tokens, page_tokens),
            KVX_INVALID);
    return KVX_OK;
}

static kvx_status ready_copy(
        const kvx_session *session, const kvx_link *link, kvx_sub *sub, const kvx_message *message)
{
    KVX_ENSURE(message->ready.room == sub->room &&
                       message->ready.component_count == session->pool->component_count &&
                       message->ready.generation.epoch == link->remote_epoch &&
                       message->ready.tokens > 0 && message->ready.lease_ms >= LEASE_MS_MIN,
            KVX_INVALID);
    for (uint32_t i = 0; i < message->ready.component_count; i++)
        KVX_TRY(ready_copy_table(session, link, sub, message, i));
    if (message->ready.aux.size > 0) {
        sub->aux = malloc(message->ready.aux.size);
        KVX_ENSURE(sub->aux != NULL, KVX_NO_MEMORY);
        memcpy(sub->aux, message->ready.aux.data, message->ready.aux.size);
    }
    sub->aux_bytes = message->ready.aux.size;
    sub->generation = message->ready.generation;
    sub->tokens = message->ready.tokens;
    sub->job.component_count = message->ready.component_count;
    sub->lease_ns = message->ready.lease_ms * KVX_NS_PER_MS;
    return KVX_OK;
}

static void sub_become_ready(
        kvx_session *session, kvx_link *link, kvx_sub *sub, uint64_t echo, uint64_t now)
{
    sub->state = KVX_SUB_READY;
    sub->ready_at = now;
    sub->stats.wait_ns = now - sub->subscribed_at;
    sub->patience_at = now + sub->patience_ns;
    sub->renew_at = now + sub->lease_ns / 3;
    kvx_trust_extend(session, sub, kvx_link_sent(link, echo));
    if (sub->trust_until <= now) /* so old an echo is none: the first LEASE decides */
        sub->trust_until = 0;
    if (sub->trust_until < now + sub->lease_ns / 2) /* too old an echo to begin with */
        sub->renew_at = now;
    if (sub->renew_at == now)
        kvx_trust_renew(session, link, now);
    kvx_log(KVX_LOG_DEBUG, "room %" PRIu64 ": ready, %" PRIu32 " tokens", sub->room, sub->tokens);
    if (!sub->is_early) {
        kvx_slot_set(session, &sub->slot, KVX_EVENT_READY);
        kvx_sub_arm(session, sub);
        return;
    }
    const kvx_status status = kvx_sub_begin_pull(session, sub, NULL, now);
    if (status != KVX_OK)
        kvx_sub_fail(session, sub, status, "the pages given early do not fit", now);
}

void kvx_sub_ready(kvx_session *session, kvx_link *link, const kvx_message *message, uint64_t now)
{
    kvx_sub *sub = kvx_map_find(&session->subs, message->ready.nonce);

    /* It may have ended while READY was on its way: our ABORT is on its way too. */
    if (sub == NULL || sub->link != link || sub->state != KVX_SUB_WAITING)
        return;
    if (message->ready.is_partial) {
        kvx_sub_fail(session, sub, KVX_UNSUPPORTED,
                "the owner publishes in chunks (partial), which is not built yet", now);
        return;
    }
    const kvx_status status = ready_copy(session, link, sub, message);
    if (status == KVX_NO_MEMORY)
        kvx_sub_fail(session, sub, status, NULL, now);
    else if (status != KVX_OK)
        kvx_link_protocol_error(session, link, "READY does not fit what WELCOME described", now);
    else
        sub_become_ready(session, link, sub, message->ready.echo, now);
}

/* --- FAILED, RELEASED, REVOKE --- */

void kvx_sub_failed(kvx_session *session, kvx_link *link, const kvx_message *message, uint64_t now)
{
    kvx_sub *sub = kvx_map_find(&session->subs, message->released.nonce);

    if (sub == NULL || sub->link != link || sub->state != KVX_SUB_WAITING)
        return;
    sub->cause = message->released.status == KVX_OK ? KVX_GONE : message->released.status;
    sub->why = NULL;
    kvx_sub_joint(session, sub, KVX_JOINT_FAILED);
    kvx_sub_end(session, sub, sub->cause, now);
}

static void sub_deliver(kvx_session *session, kvx_sub *sub, uint64_t now)
{
    sub->stats.confirm_ns = now - sub->done_at;
    kvx_sub_end(session, sub, KVX_OK, now);
}

void kvx_sub_released(kvx_session *session, kvx_link *link, const kvx_message *message, uint64_t now)
{
    kvx_sub *sub = kvx_map_find(&session->subs, message->released.nonce);

    if (sub == NULL || sub->link != link || sub->state != KVX_SUB_CONFIRM)
        return;
    if (message->released.status != KVX_OK) {
        kvx_sub_fail(session, sub, message->released.status,
                "the owner says that its lease was broken", now);
    } else if (sub->is_joint) {
        sub->state = KVX_SUB_VALID;
        kvx_sub_joint(session, sub, KVX_JOINT_VALID);
        kvx_sub_arm(session, sub);
    } else {
        sub_deliver(session, sub, now);
    }
}

static void answer_drained(kvx_session *session, const kvx_link *link, const kvx_message *message)
{
    kvx_message answer = *message;

    answer.type = KVX_MESSAGE_DRAINED;
    session->sink.send(session->sink.arg, link->id, &answer);
}

void kvx_sub_revoked(kvx_session *session, kvx_link *link, const kvx_message *message, uint64_t now)
{
    kvx_sub *sub = kvx_map_find(&session->subs, message->about.nonce);

    if (sub == NULL || sub->link != link) {
        answer_drained(session, link, message); /* it ended: nothing reads those pages */
        return;
    }
    switch (sub->state) {
    case KVX_SUB_WAITING:
    case KVX_SUB_READY:
    case KVX_SUB_PULLING:
    case KVX_SUB_BYTES_IN:
        sub->owes_drained = true;
        kvx_sub_fail(session, sub, KVX_REVOKED, NULL, now);
        break;
    case KVX_SUB_DRAINING: sub->owes_drained = true; break;
    case KVX_SUB_HELD: /* not before it is quiet; if never, the owner waits for expiry + fence */
        sub->owes_drained = true;
        break;
    case KVX_SUB_CONFIRM: /* all bytes are in; RELEASED is still awaited */
    case KVX_SUB_VALID:
    case KVX_SUB_ENDED: answer_drained(session, link, message); break;
    }
}

/* --- the group's part --- */

void kvx_session_joint_release(kvx_session *session, kvx_subscription_id id, uint64_t now)
{
    kvx_sub *sub = kvx_map_find(&session->subs, id.value);

    if (sub == NULL || sub->state != KVX_SUB_BYTES_IN)
        return;
    if (session->settings.lease_confirm == KVX_CONFIRM_OWNER) {
        sub->state = KVX_SUB_CONFIRM;
        kvx_sub_send_about(session, sub, KVX_MESSAGE_RELEASE);
        kvx_sub_arm(session, sub);
        return;
    }
    if (sub->trust_until == 0 || now >= sub->trust_until) {
        kvx_sub_fail(session, sub, KVX_EXPIRED, NULL, now);
        return;
    }
    kvx_sub_send_about(session, sub, KVX_MESSAGE_RELEASE);
    sub->state = KVX_SUB_VALID;
    kvx_sub_joint(session, sub, KVX_JOINT_VALID);
    kvx_sub_arm(session, sub);
}

void kvx_session_joint_deliver(kvx_session *session, kvx_subscription_id id, uint64_t now)
{
    kvx_sub *sub = kvx_map_find(&session->subs, id.value);

    if (sub != NULL && sub->state == KVX_SUB_VALID)
        sub_deliver(session, sub, now);
}
