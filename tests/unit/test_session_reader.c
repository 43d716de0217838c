/* SPDX-License-Identifier: Apache-2.0 */
/* The session core as reader: what it trusts and for how long, how pulls and subscriptions end. */
#include <criterion/criterion.h>

#include "unit/test_session_world.h"

#define LINK  7
#define OTHER 8
#define ROOM  5

static core c;
static kvx_peer_id peer;

static void setup(void)
{
    core_init(&c);
    core_open(&c);
    peer = core_connect(&c, LINK, OTHER_EPOCH);
}

static void teardown(void)
{
    core_close(&c);
}

TestSuite(session_reader, .init = setup, .fini = teardown);

/* From when a message was sent until when its answer lets us trust. */
static uint64_t trust_ns(void)
{
    return c.settings.lease_ns - c.settings.margin_ns - c.settings.lease_ns / 1000;
}

/* A pull whose owner has just handled our last PING. */
static kvx_pull_job *begin(kvx_subscription_id *id_out)
{
    const kvx_subscription_id id = core_subscribe(&c, peer, ROOM);

    core_give_ready(&c, LINK, id, ROOM, 4, core_last_sequence(&c, LINK));
    (void)core_expect(&c, KVX_EVENT_READY);
    kvx_pull_job *job = core_pull(&c, id, 4);
    core_plan(&c, job);
    if (id_out != NULL)
        *id_out = id;
    return job;
}

/* The engine makes it quiet; the owner is told this. */
static void make_quiet(kvx_pull_job *job, kvx_message_type told)
{
    const kvx_pull_stats stats = { 0 };

    cr_assert_eq(core_order(&c, KVX_JOB_STOP), job);
    core_expect_none(&c);
    core_forget(&c);
    kvx_session_job_quiet(c.session, job, &stats, c.now);
    (void)core_must_send(&c, LINK, told);
}

static kvx_status may_post(kvx_pull_job *job)
{
    return kvx_session_job_may_post(c.session, job, c.now);
}

static void expect_failed(kvx_status status)
{
    const kvx_event event = core_expect(&c, KVX_EVENT_FAILED);

    cr_expect_eq(event.status, status, "%s", kvx_status_name(event.status));
    cr_expect_not(event.pages_held);
    core_expect_none(&c);
}

/* --- trust --- */

Test(session_reader, trust_counts_from_when_the_echoed_ping_was_sent)
{
    c.now += 150 * MS; /* READY takes its time */
    kvx_pull_job *job = begin(NULL);

    cr_expect_eq(may_post(job), KVX_OK);
    c.now = CORE_START + trust_ns() - 1;
    cr_expect_eq(may_post(job), KVX_OK);
    c.now++;
    cr_expect_eq(may_post(job), KVX_EXPIRED);
    make_quiet(job, KVX_MESSAGE_ABORT);
    expect_failed(KVX_EXPIRED);
}

Test(session_reader, without_an_echo_nothing_is_posted_before_the_first_lease)
{
    const kvx_subscription_id id = core_subscribe(&c, peer, ROOM);

    core_give_ready(&c, LINK, id, ROOM, 4, 0);
    const kvx_message *renew = core_must_send(&c, LINK, KVX_MESSAGE_RENEW);
    const uint64_t sequence = renew->renew.sequence;
    cr_expect_eq(kvx_wire_renew_at(renew->renew.view, 0).nonce, id.value);
    kvx_pull_job *job = core_pull(&c, id, 4);
    cr_expect_eq(may_post(job), KVX_AGAIN);
    c.now += 30 * MS;
    core_give_lease(&c, LINK, sequence, id, KVX_OK);
    cr_expect_eq(core_order(&c, KVX_JOB_TRUST), job);
    cr_expect_eq(may_post(job), KVX_OK);
    c.now = CORE_START + trust_ns();
    cr_expect_eq(may_post(job), KVX_EXPIRED);
}

Test(session_reader, an_echo_of_what_was_never_sent_gives_no_trust)
{
    const kvx_subscription_id id = core_subscribe(&c, peer, ROOM);

    core_give_ready(&c, LINK, id, ROOM, 4, core_last_sequence(&c, LINK) + 1);
    cr_expect_eq(may_post(core_pull(&c, id, 4)), KVX_AGAIN);
}

Test(session_reader, a_lease_counts_for_the_renewal_that_it_answers)
{
    kvx_subscription_id id;
    kvx_pull_job *job = begin(&id);

    core_pass(&c, c.settings.lease_ns / 3);
    const uint64_t first = core_last_sequence(&c, LINK);
    const uint64_t first_at = c.now;
    core_pass(&c, c.settings.lease_ns / 3);
    cr_assert_gt(core_last_sequence(&c, LINK), first);
    core_give_lease(&c, LINK, first, id, KVX_OK); /* the answer to the first comes late */
    c.now = first_at + trust_ns() - 1;
    cr_expect_eq(may_post(job), KVX_OK);
    c.now++;
    cr_expect_eq(may_post(job), KVX_EXPIRED);
}

Test(session_reader, an_old_answer_shortens_no_trust)
{
    kvx_subscription_id id;
    kvx_pull_job *job = begin(&id);

    core_pass(&c, c.settings.lease_ns / 3);
    const uint64_t first = core_last_sequence(&c, LINK);
    core_pass(&c, c.settings.lease_ns / 3);
    const uint64_t second = core_last_sequence(&c, LINK);
    const uint64_t second_at = c.now;
    core_give_lease(&c, LINK, second, id, KVX_OK);
    core_give_lease(&c, LINK, first, id, KVX_OK);
    c.now = second_at + trust_ns() - 1;
    cr_expect_eq(may_post(job), KVX_OK);
}

Test(session_reader, a_lease_is_renewed_every_third_of_it_until_the_end)
{
    kvx_subscription_id id;
    kvx_pull_job *job = begin(&id);

    core_forget(&c);
    for (int i = 0; i < 9; i++) {
        core_pass(&c, c.settings.lease_ns / 3);
        core_pong(&c, LINK, core_last_sequence(&c, LINK));
        core_give_lease(&c, LINK, core_last_sequence(&c, LINK), id, KVX_OK);
    }
    const uint32_t renewals = core_sent_count(&c, LINK, KVX_MESSAGE_RENEW);
    cr_expect_eq(renewals, 9u, "%u renewals", renewals);
    core_done(&c, job);
    core_pass(&c, c.settings.lease_ns / 3);
    cr_expect_eq(core_sent_count(&c, LINK, KVX_MESSAGE_RENEW), 10u, "also while it is confirmed");
    core_give_status(&c, LINK, KVX_MESSAGE_RELEASED, id, KVX_OK);
    core_pass(&c, c.settings.lease_ns);
    cr_expect_eq(core_sent_count(&c, LINK, KVX_MESSAGE_RENEW), 10u);
}

Test(session_reader, a_refused_renewal_fails_the_pull_with_its_reason)
{
    kvx_subscription_id id;
    kvx_pull_job *job = begin(&id);

    core_pass(&c, c.settings.lease_ns / 3);
    core_give_lease(&c, LINK, core_last_sequence(&c, LINK), id, KVX_REVOKED);
    make_quiet(job, KVX_MESSAGE_ABORT);
    expect_failed(KVX_REVOKED);
}

Test(session_reader, the_timer_ends_a_pull_whose_trust_is_over)
{
    kvx_pull_job *job = begin(NULL);

    c.settings.peer_timeout_ns = 1;
    core_pass(&c, trust_ns());
    make_quiet(job, KVX_MESSAGE_ABORT);
    expect_failed(KVX_EXPIRED);
}

/* --- the owner's word --- */

Test(session_reader, only_the_owner_s_word_delivers)
{
    kvx_subscription_id id;
    kvx_pull_job *job = begin(&id);

    core_give_status(&c, LINK, KVX_MESSAGE_RELEASED, id, KVX_OK); /* nobody asked yet */
    core_expect_none(&c);
    core_done(&c, job);
    const kvx_message *release = core_must_send(&c, LINK, KVX_MESSAGE_RELEASE);
    cr_expect_eq(release->about.nonce, id.value);
    cr_expect_eq(release->about.generation.counter, core_remote_generation().counter);
    core_expect_none(&c);
    core_give_status(&c, LINK, KVX_MESSAGE_RELEASED, (kvx_subscription_id){ id.value + 1 }, KVX_OK);
    core_expect_none(&c);
    core_give_status(&c, LINK, KVX_MESSAGE_RELEASED, id, KVX_OK);
    const kvx_event event = core_expect(&c, KVX_EVENT_PULLED);
    cr_expect_eq(event.subscription.value, id.value);
    cr_expect_eq(event.stats.reads, (uint64_t)1);
    cr_expect_eq(kvx_session_room(c.session, ROOM, NULL), KVX_ROOM_ENDED);
}

Test(session_reader, another_connection_s_word_is_not_the_owner_s)
{
    kvx_subscription_id id;
    kvx_pull_job *job = begin(&id);

    (void)core_connect(&c, OTHER, THIRD_EPOCH);
    core_done(&c, job);
    core_give_status(&c, OTHER, KVX_MESSAGE_RELEASED, id, KVX_OK);
    core_give_lease(&c, OTHER, 1, id, KVX_OK);
    core_expect_none(&c);
    core_give_status(&c, LINK, KVX_MESSAGE_RELEASED, id, KVX_OK);
    (void)core_expect(&c, KVX_EVENT_PULLED);
}

Test(session_reader, a_broken_lease_is_told_by_the_owner_and_nothing_is_delivered)
{
    kvx_subscription_id id;
    kvx_pull_job *job = begin(&id);

    core_done(&c, job);
    core_give_status(&c, LINK, KVX_MESSAGE_RELEASED, id, KVX_EXPIRED);
    expect_failed(KVX_EXPIRED);
    core_give_status(&c, LINK, KVX_MESSAGE_RELEASED, id, KVX_OK);
    core_expect_none(&c);
}

Test(session_reader, once_release_is_out_the_end_of_trust_decides_nothing)
{
    kvx_subscription_id id;
    kvx_pull_job *job = begin(&id);

    core_done(&c, job);
    core_pass(&c, 2 * c.settings.lease_ns);
    core_give_lease(&c, LINK, core_last_sequence(&c, LINK), id, KVX_EXPIRED);
    core_expect_none(&c);
    core_give_status(&c, LINK, KVX_MESSAGE_RELEASED, id, KVX_OK);
    (void)core_expect(&c, KVX_EVENT_PULLED);
}

Test(session_reader, a_word_that_does_not_come_by_the_deadline_is_none)
{
    kvx_pull_job *job = begin(NULL);

    core_done(&c, job);
    core_pass(&c, c.settings.deadline_ns - 1);
    core_expect_none(&c);
    core_pass(&c, 1);
    expect_failed(KVX_DEADLINE);
}

Test(session_reader, with_its_clock_it_delivers_without_the_owner_s_word)
{
    core_close(&c);
    core_init(&c);
    c.settings.lease_confirm = KVX_CONFIRM_CLOCK;
    core_open(&c);
    peer = core_connect(&c, LINK, OTHER_EPOCH);
    kvx_pull_job *job = begin(NULL);

    core_done(&c, job);
    (void)core_must_send(&c, LINK, KVX_MESSAGE_RELEASE);
    (void)core_expect(&c, KVX_EVENT_PULLED);
}

Test(session_reader, with_its_clock_bytes_that_come_after_the_end_of_trust_are_not_delivered)
{
    core_close(&c);
    core_init(&c);
    c.settings.lease_confirm = KVX_CONFIRM_CLOCK;
    core_open(&c);
    peer = core_connect(&c, LINK, OTHER_EPOCH);
    kvx_pull_job *job = begin(NULL);

    c.now += trust_ns();
    core_done(&c, job);
    expect_failed(KVX_EXPIRED);
}

/* --- READY --- */

Test(session_reader, ready_for_what_has_ended_is_ignored)
{
    const kvx_subscription_id id = core_subscribe(&c, peer, ROOM);

    cr_expect_eq(kvx_session_fail(c.session, id, KVX_CANCELLED, c.now), KVX_OK);
    (void)core_must_send(&c, LINK, KVX_MESSAGE_ABORT);
    core_give_ready(&c, LINK, id, ROOM, 4, 1);
    expect_failed(KVX_CANCELLED);
    cr_expect_null(core_take(&c, CORE_CLOSED));
}

static void expect_protocol_error(const char *what)
{
    cr_expect_not_null(core_take(&c, CORE_CLOSED), "%s", what);
    cr_expect_eq(core_expect(&c, KVX_EVENT_FAILED).status, KVX_PEER_LOST, "%s", what);
    cr_expect_eq(core_expect(&c, KVX_EVENT_PEER_LOST).status, KVX_PROTOCOL, "%s", what);
}

Test(session_reader, ready_with_another_room_closes_the_connection)
{
    core_give_ready(&c, LINK, core_subscribe(&c, peer, ROOM), ROOM + 1, 4, 1);
    expect_protocol_error("another room");
}

Test(session_reader, ready_with_pages_that_the_owner_has_not_closes_the_connection)
{
    core_give_ready(&c, LINK, core_subscribe(&c, peer, ROOM), ROOM, CORE_PAGES - 2, 1);
    expect_protocol_error("pages 3 ... 32 of 32");
}

Test(session_reader, ready_of_another_epoch_closes_the_connection)
{
    const kvx_subscription_id id = core_subscribe(&c, peer, ROOM);
    kvx_message message = { .type = KVX_MESSAGE_READY };

    message.ready.nonce = id.value;
    message.ready.room = ROOM;
    message.ready.generation = (kvx_generation){ THIRD_EPOCH, 1 };
    message.ready.tokens = 1;
    message.ready.lease_ms = 900;
    message.ready.component_count = 1;
    core_give(&c, LINK, &message);
    expect_protocol_error("another epoch");
}

Test(session_reader, a_room_that_comes_in_chunks_is_refused_by_name)
{
    const kvx_subscription_id id = core_subscribe(&c, peer, ROOM);
    const kvx_page_run run = { 3, 1 };
    kvx_message message = { .type = KVX_MESSAGE_READY };

    message.ready.nonce = id.value;
    message.ready.room = ROOM;
    message.ready.generation = core_remote_generation();
    message.ready.tokens = 4;
    message.ready.lease_ms = 900;
    message.ready.is_partial = true;
    message.ready.component_count = 1;
    message.ready.tables[0].runs = &run;
    message.ready.tables[0].run_count = 1;
    core_give(&c, LINK, &message);
    const kvx_event event = core_expect(&c, KVX_EVENT_FAILED);
    cr_expect_eq(event.status, KVX_UNSUPPORTED);
    cr_expect_not_null(strstr(event.text, "partial"), "%s", event.text);
    (void)core_must_send(&c, LINK, KVX_MESSAGE_ABORT);
}

Test(session_reader, a_room_that_is_not_published_in_time_is_given_up)
{
    (void)core_subscribe(&c, peer, ROOM);
    core_pass(&c, c.settings.patience_ns);
    (void)core_must_send(&c, LINK, KVX_MESSAGE_ABORT);
    expect_failed(KVX_EXPIRED);
}

Test(session_reader, a_room_that_nobody_pulls_is_given_back)
{
    const kvx_subscription_id id = core_subscribe(&c, peer, ROOM);

    core_give_ready(&c, LINK, id, ROOM, 4, 1);
    (void)core_expect(&c, KVX_EVENT_READY);
    core_pass(&c, 100 * MS); /* renewed in between */
    c.now = CORE_START + c.settings.patience_ns;
    core_give_lease(&c, LINK, core_last_sequence(&c, LINK), id, KVX_OK);
    core_pass(&c, 0);
    (void)core_must_send(&c, LINK, KVX_MESSAGE_ABORT);
    expect_failed(KVX_EXPIRED);
}

/* --- REVOKE --- */

static void give_revoke(uint64_t nonce)
{
    core_forget(&c);
    core_give_about(&c, LINK, KVX_MESSAGE_REVOKE, nonce, ROOM, core_remote_generation());
}

Test(session_reader, a_revoked_pull_drains_and_says_so)
{
    kvx_subscription_id id;
    kvx_pull_job *job = begin(&id);

    give_revoke(id.value);
    cr_expect_null(core_sent(&c, LINK, KVX_MESSAGE_DRAINED), "not before it is quiet");
    cr_expect_eq(may_post(job), KVX_REVOKED);
    make_quiet(job, KVX_MESSAGE_DRAINED);
    expect_failed(KVX_REVOKED);
}

Test(session_reader, a_revoked_room_that_was_not_pulled_ends_at_once)
{
    const kvx_subscription_id id = core_subscribe(&c, peer, ROOM);

    core_give_ready(&c, LINK, id, ROOM, 4, 1);
    give_revoke(id.value);
    (void)core_must_send(&c, LINK, KVX_MESSAGE_DRAINED);
    expect_failed(KVX_REVOKED); /* and the unpolled READY is gone */
}

Test(session_reader, a_revoke_after_the_release_is_answered_and_the_word_still_awaited)
{
    kvx_subscription_id id;
    kvx_pull_job *job = begin(&id);

    core_done(&c, job);
    give_revoke(id.value);
    (void)core_must_send(&c, LINK, KVX_MESSAGE_DRAINED);
    core_expect_none(&c);
    core_give_status(&c, LINK, KVX_MESSAGE_RELEASED, id, KVX_OK);
    (void)core_expect(&c, KVX_EVENT_PULLED);
}

Test(session_reader, a_revoke_of_what_ended_is_answered)
{
    give_revoke(4711);
    cr_expect_eq(core_must_send(&c, LINK, KVX_MESSAGE_DRAINED)->about.nonce, (uint64_t)4711);
}

Test(session_reader, a_revoke_while_it_drains_changes_the_answer_only)
{
    kvx_subscription_id id;
    kvx_pull_job *job = begin(&id);

    cr_expect_eq(kvx_session_fail(c.session, id, KVX_CANCELLED, c.now), KVX_OK);
    give_revoke(id.value);
    make_quiet(job, KVX_MESSAGE_DRAINED);
    expect_failed(KVX_CANCELLED);
}
