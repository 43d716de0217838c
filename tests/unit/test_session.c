/* SPDX-License-Identifier: Apache-2.0 */
/* The session core's connections: handshake, liveness, roles, ends. What owners and readers may
 * do is in test_session_owner.c and test_session_reader.c. */
#include <criterion/criterion.h>

#include "unit/test_session_world.h"

#define LINK 7

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

TestSuite(session, .init = setup, .fini = teardown);

static uint64_t count_of(_Atomic uint64_t *counter)
{
    return atomic_load(counter);
}

/* --- handshake --- */

Test(session, a_dialled_peer_is_up_when_its_data_path_is_proven)
{
    const kvx_peer_id peer = core_connect(&c, LINK, OTHER_EPOCH);

    cr_expect_gt(peer.value, (uint64_t)0);
    cr_expect_eq(count_of(&c.metrics.links_opened), (uint64_t)1);
    core_expect_none(&c);
}

Test(session, a_dial_that_fails_is_told_and_tried_again_after_a_growing_pause)
{
    kvx_peer_id peer;
    uint64_t pause = c.settings.redial_ns;

    cr_assert_eq(kvx_session_connect(c.session, "10.0.0.1:7000", 0, c.now, &peer), KVX_OK);
    for (int i = 0; i < 6; i++) {
        cr_assert_not_null(core_take(&c, CORE_DIALED), "try %d", i);
        kvx_session_dial_failed(c.session, peer.value, KVX_PEER_LOST, "nobody there", c.now);
        const kvx_event event = core_expect(&c, KVX_EVENT_PEER_LOST);
        cr_expect_str_eq(event.text, "nobody there");
        core_pass(&c, pause - 1);
        cr_expect_null(core_take(&c, CORE_DIALED));
        core_pass(&c, 1);
        pause = pause * 2 < 1000 * MS ? pause * 2 : 1000 * MS;
    }
}

Test(session, a_handshake_that_is_not_answered_ends)
{
    kvx_peer_id peer;

    cr_assert_eq(kvx_session_connect(c.session, "10.0.0.1:7000", 0, c.now, &peer), KVX_OK);
    kvx_session_dialed(c.session, peer.value, LINK, c.now);
    (void)core_take(&c, CORE_DIALED);
    core_pass(&c, c.settings.hello_ns - 1);
    cr_expect_null(core_take(&c, CORE_CLOSED));
    core_pass(&c, 1);
    cr_expect_eq(core_take(&c, CORE_CLOSED)->link, (uint64_t)LINK);
    (void)core_expect(&c, KVX_EVENT_PEER_LOST);
    core_pass(&c, c.settings.redial_ns);
    cr_expect_not_null(core_take(&c, CORE_DIALED));
}

static void greet_with(const kvx_message *answer, kvx_status want, bool is_final)
{
    kvx_peer_id peer;

    cr_assert_eq(kvx_session_connect(c.session, "10.0.0.1:7000", 0, c.now, &peer), KVX_OK);
    kvx_session_dialed(c.session, peer.value, LINK, c.now);
    core_forget(&c);
    core_give(&c, LINK, answer);
    cr_expect_eq(core_take(&c, CORE_CLOSED)->link, (uint64_t)LINK);
    cr_expect_eq(core_expect(&c, KVX_EVENT_PEER_LOST).status, want);
    core_pass(&c, 10000 * MS);
    cr_expect_eq(core_take(&c, CORE_DIALED) == NULL, is_final);
}

Test(session, a_welcome_that_does_not_match_is_final)
{
    kvx_hello *hello = core_hello(&c, OTHER_EPOCH);
    const kvx_message welcome = { .type = KVX_MESSAGE_WELCOME, .hello = hello };

    hello->components[0].page_tokens = 64;
    greet_with(&welcome, KVX_MISMATCH, true);
    kvx_hello_destroy(&hello);
}

Test(session, a_rejection_for_a_difference_is_final)
{
    const kvx_message reject = { .type = KVX_MESSAGE_REJECT,
        .reject = { KVX_MISMATCH, "axis: ours a, theirs b" } };

    greet_with(&reject, KVX_MISMATCH, true);
}

Test(session, a_rejection_for_want_of_room_is_tried_again)
{
    const kvx_message reject = { .type = KVX_MESSAGE_REJECT, .reject = { KVX_NO_SPACE, "full" } };

    greet_with(&reject, KVX_NO_SPACE, false);
}

Test(session, a_message_before_welcome_is_an_error)
{
    const kvx_message ping = { .type = KVX_MESSAGE_PING, .ping = { 1 } };

    greet_with(&ping, KVX_PROTOCOL, false);
    cr_expect_eq(count_of(&c.metrics.protocol_errors), (uint64_t)1);
}

Test(session, a_hello_that_does_not_match_is_rejected_with_the_difference)
{
    kvx_hello *hello = core_hello(&c, OTHER_EPOCH);

    hello->regions[0].page_bytes = 128;
    kvx_session_accepted(c.session, LINK, hello, c.now);
    const kvx_message *reject = core_must_send(&c, LINK, KVX_MESSAGE_REJECT);
    cr_expect_not_null(strstr(reject->reject.text, "page_bytes"), "%s", reject->reject.text);
    cr_expect_eq(core_take(&c, CORE_CLOSED)->link, (uint64_t)LINK);
    cr_expect_eq(count_of(&c.metrics.links_rejected), (uint64_t)1);
    core_expect_none(&c);
}

Test(session, a_dial_that_succeeds_after_the_peer_was_left_is_hung_up)
{
    kvx_peer_id peer;

    cr_assert_eq(kvx_session_connect(c.session, "10.0.0.1:7000", 0, c.now, &peer), KVX_OK);
    cr_assert_eq(kvx_session_disconnect(c.session, peer, c.now), KVX_OK);
    kvx_session_dialed(c.session, peer.value, LINK, c.now);
    cr_expect_eq(core_take(&c, CORE_CLOSED)->link, (uint64_t)LINK);
    cr_expect_null(core_sent(&c, LINK, KVX_MESSAGE_HELLO));
    cr_expect_eq(kvx_session_disconnect(c.session, peer, c.now), KVX_NOT_FOUND);
}

/* --- liveness --- */

Test(session, a_ping_is_answered_and_the_last_one_is_echoed_by_ready)
{
    const kvx_message ping = { .type = KVX_MESSAGE_PING, .ping = { 41 } };

    core_accept(&c, LINK, OTHER_EPOCH);
    core_publish(&c, 5, 0, 2);
    core_give(&c, LINK, &ping);
    cr_expect_eq(core_must_send(&c, LINK, KVX_MESSAGE_PONG)->ping.sequence, (uint64_t)41);
    core_give_renew(&c, LINK, 42, 999, (kvx_generation){ 1, 1 });
    core_give_subscribe(&c, LINK, 5, 100, 0, 1);
    cr_expect_eq(core_must_send(&c, LINK, KVX_MESSAGE_READY)->ready.echo, (uint64_t)42);
}

Test(session, ready_echoes_nothing_when_nothing_was_handled)
{
    core_accept(&c, LINK, OTHER_EPOCH);
    core_publish(&c, 5, 0, 2);
    core_give_subscribe(&c, LINK, 5, 100, 0, 1);
    cr_expect_eq(core_must_send(&c, LINK, KVX_MESSAGE_READY)->ready.echo, (uint64_t)0);
}

/* Let the first PING go unanswered for peer_timeout; returns whether the link is suspected. */
static bool fall_silent(void)
{
    kvx_link_id suspect = 0;

    core_accept(&c, LINK, OTHER_EPOCH);
    for (uint64_t i = 0; i < 5; i++)
        core_pass(&c, c.settings.peer_timeout_ns / 5);
    return kvx_session_next_suspect(c.session, &suspect) && suspect == LINK;
}

Test(session, silence_alone_closes_nothing_before_the_socket_was_read_empty)
{
    cr_expect(fall_silent());
    core_pass(&c, 100000 * MS);
    cr_expect_null(core_take(&c, CORE_CLOSED));
    core_expect_none(&c);
    kvx_session_link_idle(c.session, LINK, c.now);
    cr_expect_eq(core_take(&c, CORE_CLOSED)->link, (uint64_t)LINK);
    cr_expect_eq(core_expect(&c, KVX_EVENT_PEER_LOST).status, KVX_PEER_LOST);
}

Test(session, an_answer_that_lay_in_the_socket_is_life)
{
    cr_expect(fall_silent());
    core_pong(&c, LINK, core_last_sequence(&c, LINK));
    kvx_session_link_idle(c.session, LINK, c.now);
    cr_expect_null(core_take(&c, CORE_CLOSED));
    core_expect_none(&c);
}

Test(session, another_message_is_no_sign_of_life)
{
    const kvx_message ping = { .type = KVX_MESSAGE_PING, .ping = { 1 } };

    cr_expect(fall_silent());
    core_give(&c, LINK, &ping);
    kvx_session_link_idle(c.session, LINK, c.now);
    cr_expect_not_null(core_take(&c, CORE_CLOSED));
}

Test(session, a_pong_of_what_was_never_sent_is_no_sign_of_life)
{
    cr_expect(fall_silent());
    core_pong(&c, LINK, core_last_sequence(&c, LINK) + 1);
    core_pong(&c, LINK, 0);
    kvx_session_link_idle(c.session, LINK, c.now);
    cr_expect_not_null(core_take(&c, CORE_CLOSED));
}

Test(session, an_answer_to_the_first_ping_leaves_the_second_to_be_answered)
{
    core_accept(&c, LINK, OTHER_EPOCH);
    core_pass(&c, c.settings.ping_ns);
    cr_expect_eq(core_last_sequence(&c, LINK), (uint64_t)2);
    core_pong(&c, LINK, 1);
    core_pass(&c, c.settings.peer_timeout_ns - 1);
    kvx_session_link_idle(c.session, LINK, c.now);
    cr_expect_null(core_take(&c, CORE_CLOSED));
    core_pass(&c, 1);
    kvx_session_link_idle(c.session, LINK, c.now);
    cr_expect_not_null(core_take(&c, CORE_CLOSED));
}

/* --- roles and ends --- */

Test(session, an_owner_s_message_from_a_reader_closes_the_connection)
{
    core_accept(&c, LINK, OTHER_EPOCH);
    core_give_status(&c, LINK, KVX_MESSAGE_RELEASED, (kvx_subscription_id){ 1 }, KVX_OK);
    cr_expect_not_null(core_take(&c, CORE_CLOSED));
    cr_expect_eq(core_expect(&c, KVX_EVENT_PEER_LOST).status, KVX_PROTOCOL);
}

Test(session, a_reader_s_message_from_an_owner_closes_the_connection)
{
    (void)core_connect(&c, LINK, OTHER_EPOCH);
    core_give_subscribe(&c, LINK, 1, 1, 0, 1);
    cr_expect_not_null(core_take(&c, CORE_CLOSED));
    cr_expect_not_null(core_take(&c, CORE_DATA_DROPPED));
    cr_expect_eq(core_expect(&c, KVX_EVENT_PEER_LOST).status, KVX_PROTOCOL);
}

Test(session, messages_of_an_unknown_connection_are_ignored)
{
    core_publish(&c, 5, 0, 2);
    core_give_subscribe(&c, 99, 5, 1, 0, 1);
    kvx_session_link_idle(c.session, 99, c.now);
    kvx_session_link_lost(c.session, 99, KVX_PEER_LOST, c.now);
    kvx_session_data_ready(c.session, 99, KVX_OK, "", c.now);
    cr_expect_null(core_sent(&c, 99, KVX_MESSAGE_READY));
    core_expect_none(&c);
}

Test(session, a_reader_that_says_bye_is_lost_in_order)
{
    const kvx_message bye = { .type = KVX_MESSAGE_BYE };

    core_accept(&c, LINK, OTHER_EPOCH);
    core_give(&c, LINK, &bye);
    const kvx_event event = core_expect(&c, KVX_EVENT_PEER_LOST);
    cr_expect_eq(event.status, KVX_OK);
    cr_expect(event.is_accepted);
    cr_expect_not_null(core_take(&c, CORE_CLOSED));
}

Test(session, a_new_connection_of_a_node_replaces_its_old_one)
{
    core_accept(&c, LINK, OTHER_EPOCH);
    core_give_subscribe(&c, LINK, 5, 100, 0, 1);
    kvx_session_accepted(c.session, LINK + 1, core_hello(&c, OTHER_EPOCH), c.now);
    cr_expect_eq(core_take(&c, CORE_CLOSED)->link, (uint64_t)LINK);
    cr_expect_eq(core_expect(&c, KVX_EVENT_PEER_LOST).status, KVX_PEER_LOST);
    cr_expect(core_expect(&c, KVX_EVENT_PEER_UP).is_accepted);
    /* what the old one waited for is forgotten with it */
    core_publish(&c, 5, 0, 2);
    cr_expect_null(core_sent(&c, LINK, KVX_MESSAGE_READY));
    cr_expect_null(core_sent(&c, LINK + 1, KVX_MESSAGE_READY));
}

Test(session, a_closing_session_refuses_who_comes_and_what_is_asked)
{
    kvx_peer_id peer;

    kvx_session_begin_close(c.session, c.now);
    kvx_session_accepted(c.session, LINK, core_hello(&c, OTHER_EPOCH), c.now);
    cr_expect_eq(core_must_send(&c, LINK, KVX_MESSAGE_REJECT)->reject.status, KVX_CLOSED);
    cr_expect_eq(kvx_session_connect(c.session, "10.0.0.1:7000", 0, c.now, &peer), KVX_CLOSED);
    cr_expect_eq(kvx_session_abort(c.session, 1, c.now), KVX_CLOSED);
    cr_expect(kvx_session_is_drained(c.session));
}

Test(session, a_restarted_session_dials_again_with_its_new_epoch)
{
    const kvx_peer_id peer = core_connect(&c, LINK, OTHER_EPOCH);
    kvx_hello *hello = core_hello(&c, THIRD_EPOCH);

    core_accept(&c, LINK + 1, THIRD_EPOCH + 1);
    core_forget(&c);
    kvx_session_begin_close(c.session, c.now);
    cr_assert_eq(kvx_session_restart(c.session, hello, c.pool, c.now), KVX_OK);
    (void)core_must_send(&c, LINK, KVX_MESSAGE_BYE);
    (void)core_must_send(&c, LINK + 1, KVX_MESSAGE_BYE);
    core_pass(&c, c.settings.redial_ns);
    cr_expect_eq(core_take(&c, CORE_DIALED)->link, peer.value);
    kvx_session_dialed(c.session, peer.value, LINK + 2, c.now);
    (void)core_must_send(&c, LINK + 2, KVX_MESSAGE_HELLO);
    core_publish(&c, 5, 0, 2);
    kvx_hello_destroy(&hello);
}

Test(session, it_can_be_destroyed_with_everything_alive)
{
    const kvx_peer_id peer = core_connect(&c, LINK, OTHER_EPOCH);

    core_accept(&c, LINK + 1, THIRD_EPOCH);
    core_publish(&c, 5, 10, 2);
    core_give_subscribe(&c, LINK + 1, 5, 100, 0, 2);
    core_give_subscribe(&c, LINK + 1, 6, 101, 0, 1);
    const kvx_subscription_id id = core_subscribe(&c, peer, 7);
    core_give_ready(&c, LINK, id, 7, 2, 1);
    (void)core_pull(&c, id, 2);
    (void)core_subscribe(&c, peer, 8);
    cr_expect_eq(kvx_session_reserve(c.session, 9, 100, c.now), KVX_OK);
}
