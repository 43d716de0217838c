/* SPDX-License-Identifier: Apache-2.0 */
/* From a READY subscription to a job of the pull engine, and what the engine reports. */
#include "session/core.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* --- subscribing --- */

static void sub_init(
        kvx_session *session, kvx_sub *sub, const kvx_subscription *subscription, uint64_t now)
{
    kvx_list_init(&sub->on_link);
    sub->slot.kind = KVX_OWNER_SUBSCRIPTION;
    sub->job.nonce = ++session->nonce;
    sub->room = subscription->room;
    sub->user = subscription->user;
    sub->peer = subscription->peer.value;
    sub->subscribed_at = now;
    sub->deadline_at = KVX_NEVER;
    sub->renew_at = KVX_NEVER;
    sub->patience_ns = subscription->patience_ms == 0 ? session->settings.patience_ns
                                                      : subscription->patience_ms * KVX_NS_PER_MS;
    sub->patience_at = now + sub->patience_ns;
}

/* Put it where the protocol finds it. */
static kvx_status sub_register(kvx_session *session, kvx_sub *sub, kvx_link *link)
{
    KVX_TRY(kvx_due_init(session, &sub->due, KVX_OWNER_SUBSCRIPTION));
    kvx_status status = kvx_map_insert(&session->subs, sub->job.nonce, sub);
    if (status != KVX_OK)
        goto fail;
    status = kvx_map_insert(&link->subscriptions, sub->room, sub);
    if (status != KVX_OK)
        goto fail_subs;
    sub->link = link;
    sub->job.link = link->id;
    kvx_list_append(&link->subs, &sub->on_link);
    return KVX_OK;

fail_subs:
    (void)kvx_map_remove(&session->subs, sub->job.nonce);
fail:
    kvx_due_fini(session, &sub->due);
    return status;
}

static void send_subscribe(
        kvx_session *session, const kvx_sub *sub, const kvx_subscription *subscription)
{
    kvx_message message = { .type = KVX_MESSAGE_SUBSCRIBE };

    message.subscribe.room = sub->room;
    message.subscribe.nonce = sub->job.nonce;
    message.subscribe.reader = subscription->reader;
    message.subscribe.readers = subscription->readers == 0 ? 1 : subscription->readers;
    message.subscribe.patience_ms = (uint32_t)(sub->patience_ns / KVX_NS_PER_MS);
    session->sink.send(session->sink.arg, sub->link->id, &message);
}

static kvx_status subscribe_check(
        const kvx_session *session, const kvx_subscription *subscription, kvx_link **link_out)
{
    const uint32_t readers = subscription->readers == 0 ? 1 : subscription->readers;
    const kvx_peer *peer = kvx_map_find(&session->peers, subscription->peer.value);

    KVX_ENSURE(!session->is_draining, KVX_CLOSED);
    KVX_ENSURE(peer != NULL && !peer->is_accepted && !peer->is_leaving, KVX_NOT_FOUND);
    KVX_ENSURE(subscription->reader < readers && readers <= KVX_READERS_MAX, KVX_INVALID);
    KVX_ENSURE(peer->link != NULL && peer->link->state == KVX_LINK_UP, KVX_AGAIN);
    KVX_ENSURE(kvx_map_find(&peer->link->subscriptions, subscription->room) == NULL, KVX_BUSY);
    KVX_ENSURE(session->subs.count < session->settings.subscriptions_max, KVX_NO_SPACE);
    *link_out = peer->link;
    return KVX_OK;
}

static kvx_status copy_tables(kvx_sub *sub, const kvx_pull_params *pull)
{
    for (uint32_t i = 0; i < pull->table_count; i++) {
        const kvx_page_table *table = &pull->tables[i];
        if (table->page_count == 0)
            continue;
        const size_t bytes = table->page_count * sizeof(kvx_page);
        sub->pages[i] = malloc(bytes);
        KVX_ENSURE(sub->pages[i] != NULL, KVX_NO_MEMORY);
        memcpy(sub->pages[i], table->pages, bytes);
        sub->page_count[i] = table->page_count;
    }
    sub->table_count = pull->table_count;
    sub->first_token = pull->first_token;
    sub->deadline_ms = pull->deadline_ms;
    return KVX_OK;
}

static void free_tables(kvx_sub *sub)
{
    for (uint32_t i = 0; i < KVX_COMPONENT_MAX; i++) {
        free(sub->pages[i]);
        sub->pages[i] = NULL;
        sub->page_count[i] = 0;
    }
}

kvx_status kvx_session_subscribe(kvx_session *session, const kvx_subscription *subscription,
        const kvx_pull_params *early, bool is_joint, uint64_t now, kvx_subscription_id *id_out)
{
    kvx_link *link = NULL;

    KVX_TRY(subscribe_check(session, subscription, &link));
    KVX_ENSURE(early == NULL || early->table_count == 0 ||
                       early->table_count == session->pool->component_count,
            KVX_INVALID);
    kvx_sub *sub = calloc(1, sizeof(*sub));
    KVX_ENSURE(sub != NULL, KVX_NO_MEMORY);

    sub_init(session, sub, subscription, now);
    sub->is_joint = is_joint;
    sub->is_early = early != NULL;
    kvx_status status = early == NULL ? KVX_OK : copy_tables(sub, early);
    if (status == KVX_OK)
        status = sub_register(session, sub, link);
    if (status != KVX_OK) {
        free_tables(sub);
        free(sub);
        return status;
    }
    session->running_count++;
    kvx_count(&session->metrics->subscribed, 1);
    kvx_count(&session->metrics->subscriptions, 1);
    send_subscribe(session, sub, subscription);
    kvx_sub_arm(session, sub);
    id_out->value = sub->job.nonce;
    return KVX_OK;
}

/* --- pulling --- */

/* Pages are matched by token position (L8). */
static kvx_status table_skip(const kvx_session *session, const kvx_sub *sub, uint32_t i,
        uint32_t first_token, uint32_t *skip_out)
{
    const uint32_t page_tokens = session->pool->components[i].page_tokens;

    if (first_token == sub->tokens) {
        *skip_out = sub->source[i].pages;
        return KVX_OK;
    }
    if (page_tokens == 0) {
        *skip_out = 0;
        return KVX_OK;
    }
    KVX_ENSURE(first_token < sub->tokens && first_token % page_tokens == 0, KVX_INVALID);
    *skip_out = first_token / page_tokens;
    return KVX_OK;
}

static kvx_status table_check(const kvx_session *session, const kvx_sub *sub, uint32_t i,
        uint32_t first_token, uint32_t page_count)
{
    uint32_t skip = 0;
    const kvx_status status = table_skip(session, sub, i, first_token, &skip);

    if (status == KVX_OK && page_count == sub->source[i].pages - skip)
        return KVX_OK;
    kvx_log(KVX_LOG_ERROR,
            "pull room %" PRIu64 ": component %s has %" PRIu32 " pages for %" PRIu32
            " tokens of %" PRIu32 " a page; %" PRIu32 " pages from token %" PRIu32
            " do not line up",
            sub->room, session->pool->components[i].name, sub->source[i].pages, sub->tokens,
            session->pool->components[i].page_tokens, page_count, first_token);
    return KVX_INVALID;
}

static kvx_status pull_check(
        const kvx_session *session, const kvx_sub *sub, const kvx_pull_params *pull)
{
    const uint32_t components = session->pool->component_count;
    const bool is_release = pull->table_count == 0;

    KVX_ENSURE(is_release || pull->table_count == components, KVX_INVALID);
    for (uint32_t i = 0; i < components; i++)
        KVX_TRY(table_check(session, sub, i, is_release ? sub->tokens : pull->first_token,
                is_release ? 0 : pull->tables[i].page_count));
    return KVX_OK;
}

static uint64_t sub_bytes(const kvx_session *session, const kvx_pull_params *pull)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < pull->table_count; i++)
        bytes += pull->tables[i].page_count * kvx_pool_page_bytes(session->pool, i);
    return bytes;
}

static void job_fill(const kvx_session *session, kvx_sub *sub)
{
    kvx_pull_job *job = &sub->job;

    job->component_count = session->pool->component_count;
    for (uint32_t i = 0; i < job->component_count; i++) {
        job->tables[i].source = sub->source[i].runs;
        job->tables[i].source_count = sub->source[i].count;
        job->tables[i].source_skip = sub->source[i].pages - sub->page_count[i];
        job->tables[i].destination = sub->pages[i];
        job->tables[i].page_count = sub->page_count[i];
    }
}

static void sub_start(kvx_session *session, kvx_sub *sub, uint64_t now)
{
    const uint64_t deadline_ns = sub->deadline_ms == 0 ? session->settings.deadline_ns
                                                       : sub->deadline_ms * KVX_NS_PER_MS;

    job_fill(session, sub);
    sub->state = KVX_SUB_PULLING;
    sub->pulled_at = now;
    sub->planned_at = now;
    sub->stats.allocate_ns = now - sub->ready_at;
    sub->deadline_at = now + deadline_ns;
    sub->needs_start = true;
    kvx_slot_clear(&sub->slot); /* an unpolled READY is answered already */
    kvx_sub_queue(session, sub);
    kvx_sub_arm(session, sub);
}

/* The tables that an early subscription keeps, as the parameters of a pull. */
static kvx_pull_params early_params(const kvx_sub *sub, kvx_page_table tables[KVX_COMPONENT_MAX])
{
    for (uint32_t i = 0; i < sub->table_count; i++)
        tables[i] = (kvx_page_table){ sub->pages[i], sub->page_count[i] };
    return (kvx_pull_params){ .struct_size = sizeof(kvx_pull_params),
        .tables = tables,
        .table_count = sub->table_count,
        .first_token = sub->first_token };
}

kvx_status kvx_sub_begin_pull(
        kvx_session *session, kvx_sub *sub, const kvx_pull_params *pull, uint64_t now)
{
    kvx_page_table tables[KVX_COMPONENT_MAX];
    const kvx_pull_params kept = early_params(sub, tables);
    const kvx_pull_params *params = pull == NULL ? &kept : pull;

    KVX_TRY(pull_check(session, sub, params));
    const uint64_t bytes = sub_bytes(session, params);
    if (pull != NULL) /* who gave its pages early has them already: no credit to wait for */
        KVX_TRY(kvx_admit_take(&session->credits, bytes));
    sub->has_credit = pull != NULL;
    sub->credit_bytes = bytes;
    if (pull != NULL && copy_tables(sub, pull) != KVX_OK) {
        free_tables(sub);
        sub->has_credit = false;
        kvx_admit_give(&session->credits, bytes);
        return KVX_NO_MEMORY;
    }
    sub_start(session, sub, now);
    return KVX_OK;
}

kvx_status kvx_session_pull_check(
        kvx_session *session, kvx_subscription_id id, const kvx_pull_params *pull)
{
    const kvx_sub *sub = kvx_map_find(&session->subs, id.value);
    kvx_admit trial = session->credits;

    KVX_ENSURE(sub != NULL && sub->state < KVX_SUB_DRAINING, KVX_NOT_FOUND);
    KVX_ENSURE(sub->state == KVX_SUB_READY, KVX_BUSY);
    KVX_TRY(pull_check(session, sub, pull));
    const kvx_status status = kvx_admit_take(&trial, sub_bytes(session, pull));
    if (status == KVX_AGAIN)
        session->credits.was_refused = true;
    return status;
}

kvx_status kvx_session_pull(
        kvx_session *session, kvx_subscription_id id, const kvx_pull_params *pull, uint64_t now)
{
    kvx_sub *sub = kvx_map_find(&session->subs, id.value);

    KVX_ENSURE(sub != NULL && sub->state < KVX_SUB_DRAINING, KVX_NOT_FOUND);
    KVX_ENSURE(sub->state == KVX_SUB_READY, KVX_BUSY);
    return kvx_sub_begin_pull(session, sub, pull, now);
}

/* --- the engine's side --- */

kvx_pull_job *kvx_session_next_job(kvx_session *session, kvx_job_order *order_out)
{
    if (kvx_list_is_empty(&session->jobs))
        return NULL;
    kvx_sub *sub = KVX_LIST_ENTRY(session->jobs.next, kvx_sub, in_jobs);
    if (sub->needs_start) {
        sub->needs_start = false;
        sub->is_with_engine = true;
        *order_out = KVX_JOB_START;
    } else if (sub->needs_stop) {
        sub->needs_stop = false;
        *order_out = KVX_JOB_STOP;
    } else {
        sub->needs_trust = false;
        *order_out = KVX_JOB_TRUST;
    }
    if (!sub->needs_stop && !sub->needs_trust)
        kvx_list_remove(&sub->in_jobs);
    return &sub->job;
}

kvx_status kvx_session_job_take(kvx_session *session, kvx_pull_job *job, uint32_t component,
        uint32_t first, uint32_t count, kvx_page *page_out)
{
    kvx_sub *sub = kvx_sub_of_job(job);

    KVX_TRY(kvx_book_pull(
            &session->books[component], sub->pages[component] + first, count, page_out));
    sub->taken[component] = first + count;
    return KVX_OK;
}

kvx_status kvx_session_job_may_post(kvx_session *session, kvx_pull_job *job, uint64_t now)
{
    kvx_sub *sub = kvx_sub_of_job(job);

    if (sub->state != KVX_SUB_PULLING)
        return sub->cause != KVX_OK ? sub->cause : KVX_CANCELLED;
    if (sub->trust_until == 0)
        return KVX_AGAIN;
    if (now >= sub->trust_until) {
        kvx_sub_fail(session, sub, KVX_EXPIRED, "the lease was not renewed in time", now);
        return KVX_EXPIRED;
    }
    if (now >= sub->deadline_at) {
        kvx_sub_fail(session, sub, KVX_DEADLINE, NULL, now);
        return KVX_DEADLINE;
    }
    return KVX_OK;
}

void kvx_session_job_planned(kvx_session *session, kvx_pull_job *job, uint64_t now)
{
    kvx_sub *sub = kvx_sub_of_job(job);

    (void)session;
    sub->planned_at = now;
    sub->stats.plan_ns = now - sub->pulled_at;
}

static void sub_take_stats(kvx_sub *sub, const kvx_pull_stats *stats, uint64_t now)
{
    sub->is_with_engine = false;
    sub->job.pull = NULL;
    sub->done_at = now;
    sub->stats.bytes = stats->bytes;
    sub->stats.reads = stats->reads;
    sub->stats.pages = stats->pages;
    sub->stats.wire_ns = now - sub->planned_at;
}

/* Every byte is in: RELEASE goes out (L3), once all ranks are here in a group (L10). */
static void sub_bytes_in(kvx_session *session, kvx_sub *sub, uint64_t now)
{
    if (sub->is_joint) {
        sub->state = KVX_SUB_BYTES_IN;
        kvx_sub_joint(session, sub, KVX_JOINT_BYTES_IN);
    } else if (session->settings.lease_confirm == KVX_CONFIRM_OWNER) {
        sub->state = KVX_SUB_CONFIRM;
        kvx_sub_send_about(session, sub, KVX_MESSAGE_RELEASE);
    } else if (sub->trust_until == 0 || now >= sub->trust_until) {
        kvx_sub_fail(session, sub, KVX_EXPIRED, NULL, now);
        return;
    } else {
        kvx_sub_send_about(session, sub, KVX_MESSAGE_RELEASE);
        kvx_sub_end(session, sub, KVX_OK, now);
        return;
    }
    kvx_sub_arm(session, sub);
}

void kvx_session_job_done(
        kvx_session *session, kvx_pull_job *job, const kvx_pull_stats *stats, uint64_t now)
{
    kvx_sub *sub = kvx_sub_of_job(job);

    if (sub->state != KVX_SUB_PULLING) {
        kvx_session_job_quiet(session, job, stats, now);
        return;
    }
    sub_take_stats(sub, stats, now);
    sub_bytes_in(session, sub, now);
}

void kvx_session_job_failed(kvx_session *session, kvx_pull_job *job, kvx_status status,
        bool has_page, kvx_page page, uint64_t now)
{
    kvx_sub *sub = kvx_sub_of_job(job);

    if (sub->state != KVX_SUB_PULLING)
        return;
    sub->has_page = has_page;
    sub->page = page;
    kvx_sub_fail(session, sub, status, NULL, now);
}

void kvx_session_job_quiet(
        kvx_session *session, kvx_pull_job *job, const kvx_pull_stats *stats, uint64_t now)
{
    kvx_sub *sub = kvx_sub_of_job(job);
    const bool was_held = sub->state == KVX_SUB_HELD;
    const bool was_told = was_held && sub->slot.event == KVX_EVENT_NONE;

    sub_take_stats(sub, stats, now);
    kvx_sub_send_about(session, sub, sub->owes_drained ? KVX_MESSAGE_DRAINED : KVX_MESSAGE_ABORT);
    kvx_sub_end(session, sub, sub->cause, now);
    if (was_told) /* else the unpolled FAILED now says that the pages are quiet */
        kvx_slot_set(session, &sub->slot, KVX_EVENT_PAGES_QUIET);
}

void kvx_session_job_held(kvx_session *session, kvx_pull_job *job, uint64_t now)
{
    kvx_sub *sub = kvx_sub_of_job(job);

    (void)now;
    if (sub->state != KVX_SUB_DRAINING)
        return;
    sub->state = KVX_SUB_HELD;
    if (sub->link != NULL && sub->link->peer->is_leaving)
        kvx_due_set(session, &sub->link->due, 0);
    kvx_log(KVX_LOG_ERROR,
            "room %" PRIu64 ": an endpoint does not close, the pages of the pull are held",
            sub->room);
    kvx_slot_set(session, &sub->slot, KVX_EVENT_FAILED);
}
