/* SPDX-License-Identifier: Apache-2.0 */
/* The session core as reader, continued: pages, ends by ourselves, held pages, early pages,
 * groups, and the one event of each subscription. */
#include <criterion/criterion.h>

#include "unit/test_session_world.h"

#define LINK 7
#define ROOM 5

static core c;
static kvx_peer_id peer;
static const kvx_pull_stats no_stats;

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

TestSuite(session_pull, .init = setup, .fini = teardown);

static kvx_subscription_id ready(uint64_t room)
{
    const kvx_subscription_id id = core_subscribe(&c, peer, room);

    core_give_ready(&c, LINK, id, room, 4, core_last_sequence(&c, LINK));
    (void)core_expect(&c, KVX_EVENT_READY);
    return id;
}

static kvx_status pull(kvx_subscription_id id, const kvx_page *pages, uint32_t count, uint32_t from)
{
    const kvx_page_table table = { pages, count };

    return kvx_session_pull(c.session, id,
            KVX_PULL(.tables = &table, .table_count = 1, .first_token = from), c.now);
}

/* --- pages --- */

Test(session_pull, pages_belong_to_one_pull_and_to_no_publication)
{
    const kvx_page pages[] = { 1, 2, 3, 4 };
    const kvx_page more[] = { 9, 8, 3, 7 };
    const kvx_page_table table = { more, 4 };
    const kvx_subscription_id first = ready(ROOM);
    const kvx_subscription_id second = ready(ROOM + 1);
    kvx_page bad = 0;

    cr_expect_eq(pull(first, pages, 4, 0), KVX_OK);
    core_plan(&c, core_order(&c, KVX_JOB_START));
    cr_expect_eq(pull(second, more, 4, 0), KVX_OK);
    kvx_pull_job *job = core_order(&c, KVX_JOB_START);
    cr_expect_eq(kvx_session_job_take(c.session, job, 0, 0, 4, &bad), KVX_BUSY);
    cr_expect_eq(bad, 3u);
    kvx_session_job_failed(c.session, job, KVX_BUSY, true, bad, c.now);
    cr_expect_eq(core_order(&c, KVX_JOB_STOP), job);
    kvx_session_job_quiet(c.session, job, &no_stats, c.now);
    const kvx_event event = core_expect(&c, KVX_EVENT_FAILED);
    cr_expect(event.has_page && event.page == 3 && event.status == KVX_BUSY);
    cr_expect_eq(
            kvx_session_publish(c.session,
                    KVX_OFFER(.room = 99, .tokens = 16, .tables = &table, .table_count = 1), c.now),
            KVX_BUSY, "a page of it is the target of the other pull");
}

Test(session_pull, published_pages_are_no_target)
{
    const kvx_page pages[] = { 1, 2, 10, 4 };
    kvx_page bad = 0;

    core_publish(&c, 77, 10, 1);
    cr_expect_eq(pull(ready(ROOM), pages, 4, 0), KVX_OK);
    cr_expect_eq(kvx_session_job_take(c.session, core_order(&c, KVX_JOB_START), 0, 0, 4, &bad),
            KVX_BUSY);
    cr_expect_eq(bad, 10u);
}

Test(session_pull, positions_that_do_not_line_up_are_refused_and_take_nothing)
{
    const kvx_page pages[] = { 1, 2, 3, 4, 5 };
    const kvx_subscription_id id = ready(ROOM);

    cr_expect_eq(pull(id, pages, 3, 0), KVX_INVALID);
    cr_expect_eq(pull(id, pages, 5, 0), KVX_INVALID);
    cr_expect_eq(pull(id, pages, 4, 1), KVX_INVALID);
    cr_expect_eq(pull(id, pages, 4, 4), KVX_INVALID);
    cr_expect_eq(pull(id, pages, 3, 5), KVX_INVALID);
    cr_expect_eq(pull(id, pages, 1, 16), KVX_INVALID);
    cr_expect_eq(pull(id, pages, 0, 20), KVX_INVALID);
    core_expect_none(&c);
    cr_expect_eq(kvx_session_room(c.session, ROOM, NULL), KVX_ROOM_READY);
    cr_expect_eq(pull(id, pages, 3, 4), KVX_OK);
    const kvx_pull_job *job = core_order(&c, KVX_JOB_START);
    cr_expect_eq(job->tables[0].source_skip, 1u);
    cr_expect_eq(job->tables[0].page_count, 3u);
    cr_expect_eq(pull(id, pages, 3, 4), KVX_BUSY);
}

Test(session_pull, too_many_pulls_wait_for_credit)
{
    static const kvx_page pages[2][4] = { { 1, 2, 3, 4 }, { 5, 6, 7, 8 } };

    core_close(&c);
    core_init(&c);
    c.settings.pulls_max = 1;
    core_open(&c);
    peer = core_connect(&c, LINK, OTHER_EPOCH);
    const kvx_subscription_id first = ready(ROOM);
    const kvx_subscription_id second = ready(ROOM + 1);
    cr_expect_eq(pull(first, pages[0], 4, 0), KVX_OK);
    cr_expect_eq(pull(second, pages[1], 4, 0), KVX_AGAIN);
    core_expect_none(&c);
    core_done(&c, core_order(&c, KVX_JOB_START));
    core_give_status(&c, LINK, KVX_MESSAGE_RELEASED, first, KVX_OK);
    (void)core_expect(&c, KVX_EVENT_CREDIT);
    (void)core_expect(&c, KVX_EVENT_PULLED);
    cr_expect_eq(pull(second, pages[1], 4, 0), KVX_OK);
}

/* --- ends by ourselves --- */

Test(session_pull, a_cancel_ends_each_state_and_tells_the_owner)
{
    kvx_subscription_id id = core_subscribe(&c, peer, ROOM);

    cr_expect_eq(kvx_session_fail(c.session, id, KVX_CANCELLED, c.now), KVX_OK);
    (void)core_must_send(&c, LINK, KVX_MESSAGE_ABORT);
    (void)core_expect(&c, KVX_EVENT_FAILED);

    id = ready(ROOM);
    cr_expect_eq(kvx_session_fail(c.session, id, KVX_CANCELLED, c.now), KVX_OK);
    (void)core_must_send(&c, LINK, KVX_MESSAGE_ABORT);
    (void)core_expect(&c, KVX_EVENT_FAILED);

    id = ready(ROOM);
    kvx_pull_job *job = core_pull(&c, id, 4);
    cr_expect_eq(kvx_session_fail(c.session, id, KVX_CANCELLED, c.now), KVX_OK);
    cr_expect_eq(kvx_session_fail(c.session, id, KVX_CANCELLED, c.now), KVX_NOT_FOUND);
    cr_expect_null(core_sent(&c, LINK, KVX_MESSAGE_ABORT), "not before it is quiet");
    cr_expect_eq(core_order(&c, KVX_JOB_STOP), job);
    kvx_session_job_quiet(c.session, job, &no_stats, c.now);
    (void)core_must_send(&c, LINK, KVX_MESSAGE_ABORT);
    (void)core_expect(&c, KVX_EVENT_FAILED);

    id = ready(ROOM);
    core_done(&c, core_pull(&c, id, 4));
    cr_expect_eq(kvx_session_fail(c.session, id, KVX_CANCELLED, c.now), KVX_OK);
    (void)core_must_send(&c, LINK, KVX_MESSAGE_ABORT);
    cr_expect_eq(core_expect(&c, KVX_EVENT_FAILED).status, KVX_CANCELLED);
    cr_expect_eq(kvx_session_fail(c.session, id, KVX_CANCELLED, c.now), KVX_NOT_FOUND);
}

Test(session_pull, a_pull_that_the_engine_never_began_ends_at_once)
{
    const kvx_page pages[] = { 1, 2, 3, 4 };
    const kvx_subscription_id id = ready(ROOM);
    kvx_job_order order;

    cr_expect_eq(pull(id, pages, 4, 0), KVX_OK);
    cr_expect_eq(kvx_session_fail(c.session, id, KVX_CANCELLED, c.now), KVX_OK);
    (void)core_expect(&c, KVX_EVENT_FAILED);
    cr_expect_null(kvx_session_next_job(c.session, &order));
}

Test(session_pull, bytes_that_come_in_while_it_is_stopped_are_not_delivered)
{
    const kvx_subscription_id id = ready(ROOM);
    kvx_pull_job *job = core_pull(&c, id, 4);

    cr_expect_eq(kvx_session_fail(c.session, id, KVX_CANCELLED, c.now), KVX_OK);
    core_done(&c, job);
    cr_expect_null(core_sent(&c, LINK, KVX_MESSAGE_RELEASE));
    (void)core_must_send(&c, LINK, KVX_MESSAGE_ABORT);
    (void)core_expect(&c, KVX_EVENT_FAILED);
}

Test(session_pull, a_deadline_covers_every_stage)
{
    const kvx_page pages[] = { 1, 2, 3, 4 };
    const kvx_page_table table = { pages, 4 };
    const kvx_subscription_id id = ready(ROOM);

    cr_expect_eq(kvx_session_pull(c.session, id,
                         KVX_PULL(.tables = &table, .table_count = 1, .deadline_ms = 200), c.now),
            KVX_OK);
    kvx_pull_job *job = core_order(&c, KVX_JOB_START);
    core_pass(&c, 200 * MS - 1);
    cr_expect_eq(kvx_session_job_may_post(c.session, job, c.now), KVX_OK);
    c.now++;
    cr_expect_eq(kvx_session_job_may_post(c.session, job, c.now), KVX_DEADLINE);
    cr_expect_eq(core_order(&c, KVX_JOB_STOP), job);
    kvx_session_job_quiet(c.session, job, &no_stats, c.now);
    cr_expect_eq(core_expect(&c, KVX_EVENT_FAILED).status, KVX_DEADLINE);
}

Test(session_pull, a_lost_connection_fails_everything_on_it_when_it_is_quiet)
{
    kvx_pull_job *job = core_pull(&c, ready(ROOM), 4);

    (void)core_subscribe(&c, peer, ROOM + 1);
    core_forget(&c);
    kvx_session_link_lost(c.session, LINK, KVX_PEER_LOST, c.now);
    cr_expect_eq(core_take(&c, CORE_DATA_DROPPED)->link, (uint64_t)LINK);
    kvx_event event = core_expect(&c, KVX_EVENT_FAILED);
    cr_expect(event.room == ROOM + 1 && event.scope == KVX_SCOPE_PEER);
    (void)core_expect(&c, KVX_EVENT_PEER_LOST);
    cr_expect_eq(core_order(&c, KVX_JOB_STOP), job);
    kvx_session_job_quiet(c.session, job, &no_stats, c.now);
    event = core_expect(&c, KVX_EVENT_FAILED);
    cr_expect(event.room == ROOM && event.status == KVX_PEER_LOST);
    cr_expect_null(core_take(&c, CORE_SENT), "there is nobody to tell");
}

Test(session_pull, who_leaves_a_peer_ends_its_subscriptions)
{
    (void)core_subscribe(&c, peer, ROOM);
    (void)ready(ROOM + 1);
    cr_expect_eq(kvx_session_disconnect(c.session, peer, c.now), KVX_OK);
    (void)core_must_send(&c, LINK, KVX_MESSAGE_BYE);
    cr_expect_eq(core_expect(&c, KVX_EVENT_FAILED).status, KVX_CANCELLED);
    cr_expect_eq(core_expect(&c, KVX_EVENT_FAILED).status, KVX_CANCELLED);
    core_pass(&c, 10000 * MS);
    cr_expect_null(core_take(&c, CORE_DIALED));
}

Test(session_pull, who_leaves_a_peer_in_mid_pull_says_abort_before_bye)
{
    kvx_pull_job *job = core_pull(&c, ready(ROOM), 4);

    cr_expect_eq(kvx_session_disconnect(c.session, peer, c.now), KVX_OK);
    cr_expect_eq(kvx_session_disconnect(c.session, peer, c.now), KVX_NOT_FOUND);
    cr_expect_eq(core_order(&c, KVX_JOB_STOP), job);
    cr_expect_null(core_sent(&c, LINK, KVX_MESSAGE_BYE), "its pages are not quiet yet");
    kvx_session_job_quiet(c.session, job, &no_stats, c.now);
    (void)core_must_send(&c, LINK, KVX_MESSAGE_ABORT);
    core_pass(&c, 1 * MS);
    (void)core_must_send(&c, LINK, KVX_MESSAGE_BYE);
    cr_expect_eq(core_expect(&c, KVX_EVENT_FAILED).status, KVX_CANCELLED);
    core_pass(&c, 10000 * MS);
    cr_expect_null(core_take(&c, CORE_DIALED));
}

/* --- held pages --- */

static kvx_pull_job *hold(void)
{
    const kvx_subscription_id id = ready(ROOM);
    kvx_pull_job *job = core_pull(&c, id, 4);

    core_plan(&c, job);
    cr_expect_eq(kvx_session_fail(c.session, id, KVX_CANCELLED, c.now), KVX_OK);
    cr_expect_eq(core_order(&c, KVX_JOB_STOP), job);
    kvx_session_job_held(c.session, job, c.now);
    return job;
}

Test(session_pull, held_pages_stay_busy_until_they_are_told_quiet)
{
    const kvx_page pages[] = { 0, 1, 2, 3 };
    const kvx_page_table table = { pages, 4 };
    kvx_pull_job *job = hold();
    const kvx_offer *offer = KVX_OFFER(.room = 9, .tokens = 16, .tables = &table, .table_count = 1);

    const kvx_event event = core_expect(&c, KVX_EVENT_FAILED);
    cr_expect(event.pages_held && event.status == KVX_CANCELLED);
    cr_expect_eq(kvx_session_room(c.session, ROOM, NULL), KVX_ROOM_DRAINING);
    cr_expect_eq(kvx_session_publish(c.session, offer, c.now), KVX_BUSY);
    cr_expect_not(kvx_session_is_drained(c.session));
    kvx_session_job_quiet(c.session, job, &no_stats, c.now);
    cr_expect_eq(
            core_expect(&c, KVX_EVENT_PAGES_QUIET).subscription.value, event.subscription.value);
    core_expect_none(&c);
    cr_expect_eq(kvx_session_publish(c.session, offer, c.now), KVX_OK);
}

Test(session_pull, quiet_merges_into_a_failure_that_was_not_polled)
{
    kvx_pull_job *job = hold();

    kvx_session_job_quiet(c.session, job, &no_stats, c.now);
    cr_expect_not(core_expect(&c, KVX_EVENT_FAILED).pages_held);
    core_expect_none(&c);
}

Test(session_pull, a_revoke_of_held_pages_is_not_answered)
{
    kvx_pull_job *job = hold();

    core_forget(&c);
    core_give_about(&c, LINK, KVX_MESSAGE_REVOKE, job->nonce, ROOM, core_remote_generation());
    cr_expect_null(core_take(&c, CORE_SENT));
}

/* --- pages given early --- */

static kvx_subscription_id subscribe_early(uint32_t count)
{
    const kvx_page pages[] = { 1, 2, 3, 4, 5 };
    const kvx_page_table table = { pages, count };
    kvx_subscription_id id = { 0 };

    cr_assert_eq(kvx_session_subscribe(c.session, KVX_SUBSCRIPTION(.peer = peer, .room = ROOM),
                         KVX_PULL(.tables = &table, .table_count = 1), false, c.now, &id),
            KVX_OK);
    return id;
}

Test(session_pull, pages_given_early_are_pulled_without_a_word)
{
    const kvx_subscription_id id = subscribe_early(4);

    core_give_ready(&c, LINK, id, ROOM, 4, 1);
    core_expect_none(&c);
    core_done(&c, core_order(&c, KVX_JOB_START));
    core_give_status(&c, LINK, KVX_MESSAGE_RELEASED, id, KVX_OK);
    (void)core_expect(&c, KVX_EVENT_PULLED);
}

Test(session_pull, pages_given_early_that_do_not_fit_fail)
{
    const kvx_subscription_id id = subscribe_early(5);

    core_give_ready(&c, LINK, id, ROOM, 4, 1);
    (void)core_must_send(&c, LINK, KVX_MESSAGE_ABORT);
    cr_expect_eq(core_expect(&c, KVX_EVENT_FAILED).status, KVX_INVALID);
}

/* --- one rank of a group --- */

static kvx_subscription_id joint(void)
{
    kvx_subscription_id id = { 0 };

    cr_assert_eq(kvx_session_subscribe(c.session, KVX_SUBSCRIPTION(.peer = peer, .room = ROOM),
                         NULL, true, c.now, &id),
            KVX_OK);
    core_give_ready(&c, LINK, id, ROOM, 4, 1);
    (void)core_expect(&c, KVX_EVENT_READY);
    core_done(&c, core_pull(&c, id, 4));
    return id;
}

static void expect_step(kvx_subscription_id id, kvx_joint_step want, kvx_status want_status)
{
    kvx_subscription_id came;
    kvx_joint_step step;
    kvx_status status;

    cr_assert(kvx_session_next_joint(c.session, &came, &step, &status), "step %d", (int)want);
    cr_expect(came.value == id.value && step == want && status == want_status);
    cr_expect_not(kvx_session_next_joint(c.session, &came, &step, &status));
}

Test(session_pull, a_rank_releases_and_delivers_when_the_group_says_so)
{
    const kvx_subscription_id id = joint();

    expect_step(id, KVX_JOINT_BYTES_IN, KVX_OK);
    cr_expect_null(core_sent(&c, LINK, KVX_MESSAGE_RELEASE));
    kvx_session_joint_deliver(c.session, id, c.now);
    core_expect_none(&c);
    kvx_session_joint_release(c.session, id, c.now);
    (void)core_must_send(&c, LINK, KVX_MESSAGE_RELEASE);
    core_give_status(&c, LINK, KVX_MESSAGE_RELEASED, id, KVX_OK);
    expect_step(id, KVX_JOINT_VALID, KVX_OK);
    core_expect_none(&c);
    kvx_session_link_lost(c.session, LINK, KVX_PEER_LOST, c.now); /* its bytes are good */
    (void)core_expect(&c, KVX_EVENT_PEER_LOST);
    kvx_session_joint_deliver(c.session, id, c.now);
    (void)core_expect(&c, KVX_EVENT_PULLED);
}

Test(session_pull, a_rank_whose_lease_was_broken_tells_the_group)
{
    const kvx_subscription_id id = joint();

    expect_step(id, KVX_JOINT_BYTES_IN, KVX_OK);
    kvx_session_joint_release(c.session, id, c.now);
    core_give_status(&c, LINK, KVX_MESSAGE_RELEASED, id, KVX_REVOKED);
    expect_step(id, KVX_JOINT_FAILED, KVX_REVOKED);
    cr_expect_eq(core_expect(&c, KVX_EVENT_FAILED).status, KVX_REVOKED);
    kvx_session_joint_deliver(c.session, id, c.now);
    core_expect_none(&c);
}

Test(session_pull, a_rank_that_waits_for_the_others_is_renewed_and_can_expire)
{
    const kvx_subscription_id id = joint();

    expect_step(id, KVX_JOINT_BYTES_IN, KVX_OK);
    core_pass(&c, c.settings.lease_ns / 3);
    (void)core_must_send(&c, LINK, KVX_MESSAGE_RENEW);
    core_pass(&c, c.settings.lease_ns);
    expect_step(id, KVX_JOINT_FAILED, KVX_EXPIRED);
    (void)core_must_send(&c, LINK, KVX_MESSAGE_ABORT);
    kvx_session_joint_release(c.session, id, c.now);
    cr_expect_null(core_sent(&c, LINK, KVX_MESSAGE_RELEASE));
}

/* --- the one event of a subscription --- */

Test(session_pull, a_terminal_event_replaces_the_one_before)
{
    const kvx_subscription_id id = core_subscribe(&c, peer, ROOM);

    core_give_ready(&c, LINK, id, ROOM, 4, 1);
    cr_expect(kvx_session_has_event(c.session));
    cr_expect_eq(kvx_session_fail(c.session, id, KVX_CANCELLED, c.now), KVX_OK);
    cr_expect_eq(core_expect(&c, KVX_EVENT_FAILED).status, KVX_CANCELLED);
    core_expect_none(&c);
    cr_expect_not(kvx_session_has_event(c.session));
}

Test(session_pull, a_pull_of_an_unpolled_ready_answers_it)
{
    const kvx_subscription_id id = core_subscribe(&c, peer, ROOM);

    core_give_ready(&c, LINK, id, ROOM, 4, 1);
    (void)core_pull(&c, id, 4);
    core_expect_none(&c);
}

Test(session_pull, a_second_subscription_to_a_room_is_refused_until_the_first_has_ended)
{
    const kvx_subscription_id first = core_subscribe(&c, peer, ROOM);
    kvx_subscription_id id;

    cr_expect_eq(kvx_session_subscribe(c.session, KVX_SUBSCRIPTION(.peer = peer, .room = ROOM),
                         NULL, false, c.now, &id),
            KVX_BUSY);
    cr_expect_eq(kvx_session_fail(c.session, first, KVX_CANCELLED, c.now), KVX_OK);
    id = core_subscribe(&c, peer, ROOM);
    cr_expect_neq(id.value, first.value);
    (void)core_expect(&c, KVX_EVENT_FAILED);
    core_give_status(&c, LINK, KVX_MESSAGE_FAILED, id, KVX_GONE);
    cr_expect_eq(core_expect(&c, KVX_EVENT_FAILED).status, KVX_GONE);
}
