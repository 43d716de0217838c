/* SPDX-License-Identifier: Apache-2.0 */
/* The session core in corners that a review found: limits that a peer may not turn against
 * another, words that must come at once, and what load does. */
#include <criterion/criterion.h>

#include <stdlib.h>

#include "unit/test_session_world.h"

#define LINK  1
#define OTHER 2
#define ROOM  5
#define NONCE 100

static core c;

static void setup(void)
{
    core_init(&c);
    core_open(&c);
}

static void teardown(void)
{
    core_close(&c);
}

TestSuite(session_review, .init = setup, .fini = teardown);

/* --- one peer against another --- */

Test(session_review, a_full_queue_keeps_nobody_from_a_published_room)
{
    core_close(&c);
    core_init(&c);
    c.settings.waiting_max = 2;
    core_open(&c);
    core_accept(&c, LINK, OTHER_EPOCH);
    core_accept(&c, OTHER, THIRD_EPOCH);
    core_publish(&c, ROOM, 0, 4);
    for (uint64_t i = 1; i <= 2; i++)
        core_give_subscribe(&c, LINK, ROOM + i, NONCE + i, 0, 1);
    core_give_subscribe(&c, OTHER, ROOM, NONCE, 0, 1);
    cr_expect(core_is_ready(&c, OTHER, NULL), "refused: %s",
            kvx_status_name(core_failed_status(&c, OTHER)));
    core_give_subscribe(&c, OTHER, ROOM + 3, NONCE + 3, 0, 1);
    cr_expect_eq(core_failed_status(&c, OTHER), KVX_NO_SPACE);
}

/* Nothing polls meanwhile: what a peer that comes and goes leaves behind has a limit too. */
Test(session_review, peers_that_nobody_polled_have_a_limit)
{
    uint32_t rejected = 0;

    core_close(&c);
    core_init(&c);
    c.settings.connections_max = 4;
    core_open(&c);
    for (uint64_t i = 0; i < 100; i++) {
        kvx_session_accepted(c.session, 10 + i, core_hello(&c, OTHER_EPOCH + i), c.now);
        if (core_sent(&c, 10 + i, KVX_MESSAGE_REJECT) != NULL)
            rejected++;
        kvx_session_link_lost(c.session, 10 + i, KVX_PEER_LOST, c.now);
        core_forget(&c);
    }
    cr_expect_eq(rejected, 92u);
    for (uint32_t i = 0; i < 8; i++)
        (void)core_expect(&c, KVX_EVENT_PEER_LOST);
    core_expect_none(&c);
    core_accept(&c, LINK, OTHER_EPOCH);
}

/* --- load --- */

#define MANY 65536

static void ignore_send(void *arg, kvx_link_id link, const kvx_message *message)
{
    (void)arg;
    (void)link;
    (void)message;
}

static void ignore_link(void *arg, kvx_link_id link)
{
    (void)arg;
    (void)link;
}

/* A session whose actions are not kept, with one reader that waits for many rooms. */
static void await_many(void)
{
    const kvx_session_sink sink = { .send = ignore_send, .close_link = ignore_link };
    const kvx_session_params params = { &c.settings, c.hello, c.pool, &c.metrics, 1, sink };
    kvx_message message = { .type = KVX_MESSAGE_SUBSCRIBE, .subscribe = { .readers = 1 } };

    kvx_session_destroy(&c.session);
    c.settings.waiting_max = MANY;
    cr_assert_eq(kvx_session_create(&params, &c.session), KVX_OK);
    kvx_session_accepted(c.session, LINK, core_hello(&c, OTHER_EPOCH), c.now);
    message.subscribe.patience_ms = 60000;
    for (uint64_t i = 0; i < MANY; i++) {
        message.subscribe.room = i;
        message.subscribe.nonce = NONCE + i;
        kvx_session_message(c.session, LINK, &message, c.now);
    }
    cr_assert_eq(c.metrics.waiting_subscriptions, (uint64_t)MANY);
}

/* Each of these would keep the node busy for seconds if it were not linear, and this test for
 * longer than it may run. */
Test(session_review, many_that_wait_go_with_their_connection_in_linear_time)
{
    for (int i = 0; i < 8; i++) {
        await_many();
        kvx_session_link_lost(c.session, LINK, KVX_PEER_LOST, c.now);
        cr_assert_eq(c.metrics.waiting_subscriptions, 0u);
    }
}

Test(session_review, many_that_wait_are_refused_by_a_drain_in_linear_time)
{
    for (int i = 0; i < 8; i++) {
        await_many();
        kvx_session_begin_drain(c.session);
        cr_assert_eq(c.metrics.waiting_subscriptions, 0u);
    }
}

/* --- what cannot be sent is not published --- */

Test(session_review, a_page_table_that_no_message_can_hold_is_refused)
{
    const uint32_t count = KVX_WIRE_FRAME_MAX / 8 + 1;
    kvx_page *pages = calloc(count, sizeof(*pages));
    const kvx_page_table table = { pages, count };
    const kvx_offer *offer = KVX_OFFER(.room = ROOM, .tokens = count * CORE_PAGE_TOKENS,
            .tables = &table, .table_count = 1);

    cr_assert_not_null(pages);
    for (uint32_t i = 0; i < count; i++)
        pages[i] = i % 2 * 2; /* no two are neighbours */
    cr_expect_eq(kvx_session_publish(c.session, offer, c.now), KVX_INVALID);
    cr_expect_eq(kvx_session_room(c.session, ROOM, NULL), KVX_ROOM_UNKNOWN);
    core_expect_none(&c);
    free(pages);
}

/* --- words that must come --- */

static kvx_status publish(uint64_t room, uint32_t count)
{
    const kvx_page pages[] = { 1, 2, 3, 4 };
    const kvx_page_table table = { pages, count };

    return kvx_session_publish(c.session,
            KVX_OFFER(.room = room, .tokens = count * CORE_PAGE_TOKENS, .tables = &table,
                    .table_count = 1),
            c.now);
}

Test(session_review, room_that_a_reservation_leaves_over_is_told)
{
    core_close(&c);
    core_init(&c);
    c.settings.parked_bytes_max = (uint64_t)4 * CORE_PAGE_BYTES;
    core_open(&c);
    cr_expect_eq(kvx_session_reserve(c.session, 1, 4 * CORE_PAGE_BYTES, c.now), KVX_OK);
    cr_expect_eq(publish(2, 1), KVX_AGAIN);
    cr_expect_eq(publish(1, 1), KVX_OK);
    (void)core_expect(&c, KVX_EVENT_ROOM);
    cr_expect_eq(publish(2, 1), KVX_OK);
}

Test(session_review, what_never_fits_makes_no_word_of_room)
{
    core_close(&c);
    core_init(&c);
    c.settings.parked_bytes_max = (uint64_t)2 * CORE_PAGE_BYTES;
    core_open(&c);
    cr_expect_eq(kvx_session_reserve(c.session, 1, CORE_PAGE_BYTES, c.now), KVX_OK);
    cr_expect_eq(publish(1, 4), KVX_NO_SPACE);
    cr_expect_eq(kvx_session_reserve(c.session, 1, 0, c.now), KVX_OK);
    core_expect_none(&c);
}

static kvx_pull_job *hold(kvx_peer_id peer)
{
    const kvx_subscription_id id = core_subscribe(&c, peer, ROOM);

    core_give_ready(&c, LINK, id, ROOM, 4, core_last_sequence(&c, LINK));
    (void)core_expect(&c, KVX_EVENT_READY);
    kvx_pull_job *job = core_pull(&c, id, 4);
    core_plan(&c, job);
    cr_expect_eq(kvx_session_fail(c.session, id, KVX_CANCELLED, c.now), KVX_OK);
    cr_expect_eq(core_order(&c, KVX_JOB_STOP), job);
    kvx_session_job_held(c.session, job, c.now);
    cr_expect(core_expect(&c, KVX_EVENT_FAILED).pages_held);
    return job;
}

Test(session_review, a_revoke_of_held_pages_is_answered_when_they_are_quiet)
{
    const kvx_pull_stats none = { 0 };
    kvx_pull_job *job = hold(core_connect(&c, LINK, OTHER_EPOCH));

    core_give_about(&c, LINK, KVX_MESSAGE_REVOKE, job->nonce, ROOM, core_remote_generation());
    cr_expect_null(core_sent(&c, LINK, KVX_MESSAGE_DRAINED));
    kvx_session_job_quiet(c.session, job, &none, c.now);
    (void)core_must_send(&c, LINK, KVX_MESSAGE_DRAINED);
    (void)core_expect(&c, KVX_EVENT_PAGES_QUIET);
}

Test(session_review, held_pages_that_become_quiet_free_the_owners)
{
    const kvx_pull_stats none = { 0 };
    kvx_pull_job *job = hold(core_connect(&c, LINK, OTHER_EPOCH));

    kvx_session_job_quiet(c.session, job, &none, c.now);
    (void)core_must_send(&c, LINK, KVX_MESSAGE_ABORT);
    (void)core_expect(&c, KVX_EVENT_PAGES_QUIET);
}

/* --- trust --- */

Test(session_review, an_echo_that_is_too_old_waits_for_the_first_lease)
{
    const kvx_peer_id peer = core_connect(&c, LINK, OTHER_EPOCH);
    const uint64_t first = core_last_sequence(&c, LINK);
    const kvx_subscription_id id = core_subscribe(&c, peer, ROOM);

    c.now += c.settings.lease_ns; /* this side was stopped */
    core_give_ready(&c, LINK, id, ROOM, 4, first);
    core_pass(&c, 1 * MS);
    (void)core_expect(&c, KVX_EVENT_READY);
    kvx_pull_job *job = core_pull(&c, id, 4);
    cr_expect_eq(kvx_session_job_may_post(c.session, job, c.now), KVX_AGAIN);
    const uint64_t renewed = core_must_send(&c, LINK, KVX_MESSAGE_RENEW)->renew.sequence;
    core_give_lease(&c, LINK, renewed, id, KVX_OK);
    cr_expect_eq(kvx_session_job_may_post(c.session, job, c.now), KVX_OK);
}

/* --- pages given early --- */

static kvx_status subscribe_early(
        kvx_peer_id peer, const kvx_pull_params *pull, kvx_subscription_id *id_out)
{
    return kvx_session_subscribe(
            c.session, KVX_SUBSCRIPTION(.peer = peer, .room = ROOM), pull, false, c.now, id_out);
}

Test(session_review, a_release_given_early_ends_the_room_when_it_is_ready)
{
    const kvx_peer_id peer = core_connect(&c, LINK, OTHER_EPOCH);
    kvx_subscription_id id = { 0 };

    cr_assert_eq(subscribe_early(peer, KVX_PULL(.tables = NULL), &id), KVX_OK);
    core_give_ready(&c, LINK, id, ROOM, 4, core_last_sequence(&c, LINK));
    core_done(&c, core_order(&c, KVX_JOB_START));
    (void)core_must_send(&c, LINK, KVX_MESSAGE_RELEASE);
    core_give_status(&c, LINK, KVX_MESSAGE_RELEASED, id, KVX_OK);
    (void)core_expect(&c, KVX_EVENT_PULLED);
}
