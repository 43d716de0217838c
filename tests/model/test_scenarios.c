/* SPDX-License-Identifier: Apache-2.0 */
/* Short stories of the protocol on a virtual clock: who gets what, when, and what is refused. */
#include "script.h"

TestSuite(scenarios, .fini = script_end);

/* --- the ordinary case ---------------------------------------------------------------------- */

Test(scenarios, a_reader_pulls_what_was_published_and_the_pages_are_freed)
{
    (void)script_set("short");
    script_begin(1);
    const pub *p = publish(ROOM);
    sub *s = want(0, ROOM, 0, 1);
    run_ms(10);
    cr_assert_eq(s->state, SUB_READY);
    pull(s);
    run_ms(20);
    cr_expect(is_pulled(s));
    cr_expect(!p->is_live);
    cr_expect_eq(last_event(KVX_EVENT_RELEASED)->status, KVX_OK);
}

Test(scenarios, a_reader_that_comes_before_the_room_waits_for_it)
{
    (void)script_set("short");
    script_begin(1);
    sub *s = subscribe(0, ROOM);
    run_ms(1000);
    cr_expect_eq(s->state, SUB_WAIT);
    (void)publish(ROOM);
    run_ms(2500);
    cr_expect(is_pulled(s));
}

Test(scenarios, a_reader_whose_room_never_comes_hears_so_when_its_patience_ends)
{
    (void)script_set("short");
    script_begin(1);
    const sub *s = subscribe(0, ROOM);
    run_ms(2900);
    cr_expect_eq(s->terminal_count, 0);
    run_ms(200);
    cr_expect(is_failed(s, KVX_EXPIRED));
}

Test(scenarios, the_echo_in_ready_is_trust_enough_to_read_at_once)
{
    (void)script_set("short");
    script_begin(1);
    (void)publish(ROOM);
    sub *s = want(0, ROOM, 0, 1);
    run_ms(5);
    cr_expect_gt(s->trust, 0);
    pull(s);
    run_ms(20);
    cr_expect(is_pulled(s));
    cr_expect_eq(messages(KVX_MESSAGE_LEASE), 0);
}

Test(scenarios, a_ready_room_is_kept_by_renewals_for_many_leases)
{
    (void)script_set("short");
    script_begin(1);
    const pub *p = publish(ROOM);
    sub *s = want(0, ROOM, 0, 1);
    run_ms(2500);
    cr_expect(p->is_live);
    pull(s);
    run_ms(20);
    cr_expect(is_pulled(s));
}

Test(scenarios, confirm_by_clock_delivers_without_the_owners_word)
{
    script_set("clock")->lease_confirm = KVX_CONFIRM_CLOCK;
    script_begin(1);
    (void)publish(ROOM);
    sub *s = want(0, ROOM, 0, 1);
    run_ms(5);
    pull(s);
    while (s->terminal_count == 0 && script.t < 10 * SECOND)
        run_ms(1);
    cr_expect(is_pulled(s));
    cr_expect_eq(s->valid_seen, 0);
}

/* --- slots ------------------------------------------------------------------------------------ */

Test(scenarios, the_pages_are_freed_when_the_second_of_two_readers_is_done)
{
    (void)script_set("short");
    script_begin(2);
    const pub *p = publish(ROOM);
    sub *first = want(0, ROOM, 0, 2);
    sub *second = want(1, ROOM, 1, 2);
    run_ms(10);
    pull(first);
    run_ms(50);
    cr_expect(is_pulled(first));
    cr_expect(p->is_live);
    pull(second);
    run_ms(50);
    cr_expect(is_pulled(second));
    cr_expect(!p->is_live);
}

Test(scenarios, a_slot_that_nobody_takes_closes_at_the_hold_time)
{
    const kvx_settings *s = script_set("short");
    script_begin(2);
    const pub *p = publish(ROOM);
    sub *first = want(0, ROOM, 0, 2);
    run_ms(10);
    pull(first);
    run_ms(s->hold_ns / MS - 100);
    cr_expect(p->is_live);
    run_ms(150);
    cr_expect(!p->is_live);
    const sub *late = want(1, ROOM, 1, 2);
    run_ms(10);
    cr_expect_eq(late->terminal_count, 1);
    cr_expect_neq(late->status, KVX_OK);
}

Test(scenarios, a_lost_readers_slot_is_kept_for_its_node)
{
    (void)script_set("lone");
    script_begin(2);
    (void)publish(ROOM);
    (void)want(0, ROOM, 0, 1);
    run_ms(10);
    cut(0, false);
    run_ms(10);
    const sub *other = want(1, ROOM, 0, 1);
    run_ms(10);
    cr_expect(is_failed(other, KVX_REFUSED));
    run_ms(100);
    sub *again = want(0, ROOM, 0, 1);
    run_ms(10);
    cr_assert_eq(again->state, SUB_READY);
    pull(again);
    run_ms(20);
    cr_expect(is_pulled(again));
}

Test(scenarios, a_lost_readers_slot_is_anyones_when_its_lease_has_ended)
{
    const kvx_settings *set = script_set("lone");
    script_begin(2);
    (void)publish(ROOM);
    (void)want(0, ROOM, 0, 1);
    run_ms(10);
    proc_kill(reader(0)->proc, false);
    run_ms(set->lease_ns / MS + 20);
    sub *other = want(1, ROOM, 0, 1);
    run_ms(10);
    cr_assert_eq(other->state, SUB_READY);
    pull(other);
    run_ms(20);
    cr_expect(is_pulled(other));
}

Test(scenarios, a_new_connection_of_a_node_replaces_its_old_one)
{
    (void)script_set("lone"); /* the owner would hear nothing of the loss for long */
    script_begin(0);
    script.settings.peer_timeout_ns = 300 * MS; /* of the reader alone */
    script_add_reader("D0");
    const pub *p = publish(ROOM);
    (void)want(0, ROOM, 0, 1);
    run_ms(10);
    cut(0, true);
    run_ms(500);
    cr_expect_eq(events(KVX_EVENT_PEER_LOST), 2);
    sub *again = want(0, ROOM, 0, 1);
    run_ms(10);
    cr_assert_eq(again->state, SUB_READY);
    cr_expect_eq(again->pub, p);
    pull(again);
    run_ms(20);
    cr_expect(is_pulled(again));
}

Test(scenarios, another_number_of_readers_is_refused)
{
    (void)script_set("short");
    script_begin(2);
    (void)publish(ROOM);
    (void)want(0, ROOM, 0, 1);
    run_ms(10);
    const sub *s = want(1, ROOM, 1, 2);
    run_ms(10);
    cr_expect(is_failed(s, KVX_REFUSED));
}

/* --- what is not current is refused ------------------------------------------------------------ */

Test(scenarios, release_of_an_old_generation_is_refused)
{
    (void)script_set("short");
    script_begin(1);
    const pub *old = publish(ROOM);
    const sub *s = want(0, ROOM, 0, 1);
    run_ms(10);
    revoke(ROOM);
    run_ms(10);
    cr_assert(!old->is_live);
    const pub *fresh = publish(ROOM);
    run_ms(10);
    say(0, KVX_MESSAGE_RELEASE, s->nonce, old);
    run_ms(10);
    cr_expect_eq(messages(KVX_MESSAGE_RELEASED), 1);
    cr_expect_neq(last_released(), KVX_OK);
    cr_expect(fresh->is_live);
}

Test(scenarios, release_with_another_readers_nonce_is_refused_and_ends_nothing)
{
    (void)script_set("short");
    script_begin(2);
    const pub *p = publish(ROOM);
    sub *s = want(0, ROOM, 0, 1);
    run_ms(10);
    say(1, KVX_MESSAGE_RELEASE, s->nonce, p);
    run_ms(10);
    cr_expect_eq(messages(KVX_MESSAGE_RELEASED), 1);
    cr_expect_neq(last_released(), KVX_OK);
    cr_expect(p->is_live);
    pull(s);
    run_ms(20);
    cr_expect(is_pulled(s));
}

Test(scenarios, abort_and_drained_of_another_readers_lease_end_nothing)
{
    (void)script_set("short");
    script_begin(2);
    const pub *p = publish(ROOM);
    sub *s = want(0, ROOM, 0, 1);
    run_ms(10);
    say(1, KVX_MESSAGE_ABORT, s->nonce, p);
    say(1, KVX_MESSAGE_DRAINED, s->nonce, p);
    run_ms(10);
    cr_expect(p->is_live);
    pull(s);
    run_ms(20);
    cr_expect(is_pulled(s));
}

Test(scenarios, drained_without_revoke_ends_nothing)
{
    (void)script_set("short");
    script_begin(1);
    const pub *p = publish(ROOM);
    sub *s = want(0, ROOM, 0, 1);
    run_ms(10);
    say(0, KVX_MESSAGE_DRAINED, s->nonce, p);
    run_ms(10);
    cr_expect(p->is_live);
    pull(s);
    run_ms(20);
    cr_expect(is_pulled(s));
}

Test(scenarios, abort_may_be_said_twice)
{
    (void)script_set("short");
    script_begin(1);
    const pub *p = publish(ROOM);
    sub *s = want(0, ROOM, 0, 1);
    run_ms(10);
    cancel(s);
    run_ms(10);
    cr_expect(is_failed(s, KVX_CANCELLED));
    cr_expect(!p->is_live);
    say(0, KVX_MESSAGE_ABORT, s->nonce, p);
    run_ms(10);
    cr_expect_eq(events(KVX_EVENT_RELEASED), 1);
}

/* --- rooms ------------------------------------------------------------------------------------- */

Test(scenarios, who_asks_for_a_released_room_hears_gone)
{
    script_set("short")->tombstone_ns = 60 * SECOND;
    script_begin(1);
    (void)publish(ROOM);
    sub *s = want(0, ROOM, 0, 1);
    run_ms(10);
    pull(s);
    run_ms(20);
    cr_assert(is_pulled(s));
    const sub *late = want(0, ROOM, 0, 1);
    run_ms(10);
    cr_expect(is_failed(late, KVX_GONE));
}

Test(scenarios, publishing_a_released_room_clears_its_tombstone)
{
    script_set("short")->tombstone_ns = 60 * SECOND;
    script_begin(1);
    (void)publish(ROOM);
    sub *s = want(0, ROOM, 0, 1);
    run_ms(10);
    pull(s);
    run_ms(20);
    cr_assert_not_null(publish(ROOM));
    const sub *again = want(0, ROOM, 0, 1);
    run_ms(10);
    cr_expect_eq(again->state, SUB_READY);
}

Test(scenarios, subscribe_gets_the_newest_while_an_older_generation_is_held)
{
    (void)script_set("lone");
    script_begin(2);
    const pub *old = publish(ROOM);
    (void)want(0, ROOM, 0, 1);
    run_ms(10);
    stop(reader(0), 5000);
    revoke(ROOM);
    run_ms(10);
    cr_expect(old->is_live, "the stopped reader has not answered");
    const pub *fresh = publish(ROOM);
    cr_assert_not_null(fresh);
    sub *s = want(1, ROOM, 0, 1);
    run_ms(10);
    cr_expect_eq(s->pub, fresh);
    pull(s);
    run_ms(20);
    cr_expect(is_pulled(s));
    run_ms(1000);
    cr_expect(!old->is_live);
}

Test(scenarios, a_live_room_is_not_published_twice)
{
    (void)script_set("short");
    script_begin(1);
    cr_expect_not_null(publish(ROOM));
    cr_expect_null(publish(ROOM));
}

Test(scenarios, again_at_the_parked_limit_is_followed_by_room)
{
    script_set("short")->parked_rooms_max = 1;
    script_begin(1);
    (void)publish(ROOM);
    cr_expect_null(publish(ROOM + 1));
    cr_expect_eq(events(KVX_EVENT_ROOM), 0);
    sub *s = want(0, ROOM, 0, 1);
    run_ms(10);
    pull(s);
    run_ms(20);
    cr_expect(is_pulled(s));
    cr_expect_eq(events(KVX_EVENT_ROOM), 1);
    cr_expect_not_null(publish(ROOM + 1));
}
