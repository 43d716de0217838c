/* SPDX-License-Identifier: Apache-2.0 */
/* Short stories of the protocol's ends: revoke, cancel, deadlines, silence, stops and hangs. */
#include "script.h"

#include <string.h>

TestSuite(ends, .fini = script_end);

static sub *make_ready(uint32_t index)
{
    sub *s = want(index, ROOM, 0, 1);

    run_ms(10);
    cr_assert_eq(s->state, SUB_READY);
    return s;
}

/* --- revoke -------------------------------------------------------------------------------------- */

Test(ends, revoke_before_the_pull_fails_it_and_frees_at_once)
{
    (void)script_set("short");
    script_begin(1);
    const pub *p = publish(ROOM);
    const sub *s = make_ready(0);
    revoke(ROOM);
    run_ms(10);
    cr_expect(is_failed(s, KVX_REVOKED));
    cr_expect(!p->is_live);
    cr_expect_eq(last_event(KVX_EVENT_RELEASED)->status, KVX_REVOKED);
}

Test(ends, revoke_in_the_pull_waits_for_its_reads_to_be_quiet)
{
    const kvx_settings *set = script_set("short");
    script_begin(1);
    const pub *p = publish(ROOM);
    sub *s = make_ready(0);
    script.script_delay = 10 * set->drain_ns;
    pull(s);
    run_ms(1);
    script.script_delay = MS;
    revoke(ROOM);
    run_ms(10);
    cr_expect(p->is_live, "its reads are not over");
    run_ms(set->drain_ns / MS + 10);
    cr_expect(is_failed(s, KVX_REVOKED));
    run_ms(10);
    cr_expect(!p->is_live);
}

Test(ends, revoke_after_release_was_sent_does_not_break_the_pull)
{
    (void)script_set("short");
    script_begin(1);
    const pub *p = publish(ROOM);
    sub *s = make_ready(0);
    script.script_delay = 0;
    pull(s);
    while (!s->is_release_sent && s->terminal_count == 0)
        world_run(&script, script.t + 10 * US);
    revoke(ROOM);
    run_ms(10);
    cr_expect(is_pulled(s));
    cr_expect(!p->is_live);
}

Test(ends, a_revoked_lease_of_a_stopped_reader_ends_past_expiry_and_fence)
{
    const kvx_settings *set = script_set("lone");
    script_begin(1);
    const pub *p = publish(ROOM);
    (void)make_ready(0);
    stop(reader(0), 0);
    revoke(ROOM);
    run_ms((set->lease_ns + set->fence_ns) / MS - 50);
    cr_expect(p->is_live);
    run_ms(100);
    cr_expect(!p->is_live);
}

/* --- cancel, deadline, patience -------------------------------------------------------------------- */

Test(ends, cancel_in_the_pull_is_over_when_the_endpoint_is_closed)
{
    const kvx_settings *set = script_set("short");
    script_begin(1);
    (void)publish(ROOM);
    sub *s = make_ready(0);
    script.script_delay = 20 * set->drain_ns;
    pull(s);
    run_ms(1);
    script.script_delay = MS;
    cancel(s);
    run_ms(set->drain_ns / MS - 5);
    cr_expect_eq(s->terminal_count, 0);
    run_ms(20);
    cr_expect(is_failed(s, KVX_CANCELLED));
    cr_expect_eq(s->active_reads, 0);
}

Test(ends, pages_are_held_while_a_close_hangs_and_quiet_after_it)
{
    const kvx_settings *set = script_set("short");
    script_begin(1);
    const pub *p = publish(ROOM);
    sub *s = make_ready(0);
    script.script_delay = 5 * SECOND;
    pull(s);
    run_ms(1);
    script.script_delay = MS;
    script.script_hang = 3 * SECOND;
    cancel(s);
    run_ms((set->drain_ns + set->close_ns) / MS + 20);
    cr_expect(is_failed(s, KVX_CANCELLED));
    cr_expect(s->is_held);
    cr_expect(p->is_live);
    run_ms((set->lease_ns + set->fence_ns) / MS);
    cr_expect(!p->is_live, "the owner waits for expiry and fence only");
    cr_expect_eq(events(KVX_EVENT_PAGES_QUIET), 0);
    run_ms(3000);
    cr_expect_eq(events(KVX_EVENT_PAGES_QUIET), 1);
    cr_expect(!s->is_held);
}

Test(ends, a_pull_whose_owner_stops_before_its_word_fails_at_the_deadline)
{
    const kvx_settings *set = script_set("lone");
    script_begin(1);
    (void)publish(ROOM);
    sub *s = make_ready(0);
    pull(s);
    stop(owner(), 10000);
    run_ms(set->deadline_ns / MS - 20);
    cr_expect_eq(s->terminal_count, 0);
    run_ms(40);
    cr_expect(is_failed(s, KVX_DEADLINE));
    run_ms(12000); /* its word comes too late and changes nothing */
    cr_expect_eq(s->terminal_count, 1);
}

Test(ends, a_ready_room_that_nobody_pulls_is_aborted_after_the_patience)
{
    const kvx_settings *set = script_set("short");
    script_begin(1);
    const pub *p = publish(ROOM);
    const sub *s = make_ready(0);
    run_ms(set->patience_ns / MS - 50);
    cr_expect_eq(s->terminal_count, 0);
    run_ms(100);
    cr_expect(is_failed(s, KVX_EXPIRED));
    cr_expect(!p->is_live);
}

Test(ends, nothing_is_granted_past_the_age_of_a_publication)
{
    kvx_settings *set = script_set("short");
    set->patience_ns = 60 * SECOND;
    script_begin(1);
    const pub *p = publish(ROOM);
    const sub *s = make_ready(0);
    run_ms((set->publication_age_ns + set->lease_ns) / MS);
    cr_expect_eq(s->terminal_count, 1);
    cr_expect_eq(s->status, KVX_EXPIRED);
    run_ms((set->lease_ns + set->fence_ns) / MS);
    cr_expect(!p->is_live);
}

Test(ends, a_reader_that_stopped_past_its_lease_delivers_nothing)
{
    const kvx_settings *set = script_set("lone");
    script_begin(1);
    const pub *p = publish(ROOM);
    sub *s = make_ready(0);
    script.script_delay = 20 * MS;
    pull(s);
    run_ms(5);
    stop(reader(0), (set->lease_ns + 2 * set->fence_ns) / MS);
    run_ms(4000);
    cr_expect(!p->is_live);
    cr_expect_eq(s->terminal_count, 1);
    cr_expect_neq(s->status, KVX_OK);
}

/* --- pages ------------------------------------------------------------------------------------------ */

Test(ends, a_page_that_is_in_a_pull_is_refused_to_a_second_one)
{
    (void)script_set("short");
    script_begin(1);
    (void)publish(ROOM);
    sub *first = make_ready(0);
    (void)publish(ROOM + 1);
    sub *second = want(0, ROOM + 1, 0, 1);
    run_ms(10);
    script.script_delay = 20 * MS;
    pull(first);
    run_ms(2);
    const kvx_page_table table = { first->pages, 1 };
    const kvx_pull_params params = { .struct_size = sizeof(params),
        .tables = &table,
        .table_count = 1,
        .first_token = (second->pub->page_count - 1) * PAGE_TOKENS };
    second->state = SUB_PULL;
    cr_assert_eq(kvx_session_pull(reader(0)->session, second->id, &params, reader(0)->now), KVX_OK);
    node_called(reader(0));
    node_news(reader(0));
    run_ms(10);
    cr_expect(is_failed(second, KVX_BUSY));
    cr_expect(last_event(KVX_EVENT_FAILED)->has_page);
    cr_expect_eq(last_event(KVX_EVENT_FAILED)->page, first->pages[0]);
    run_ms(100);
    cr_expect(is_pulled(first));
}

/* --- the other side ------------------------------------------------------------------------------------ */

Test(ends, a_killed_owner_fails_the_pull_with_peer_lost_at_once)
{
    (void)script_set("lone");
    script_begin(1);
    (void)publish(ROOM);
    sub *s = make_ready(0);
    script.script_delay = 50 * MS;
    pull(s);
    run_ms(5);
    script.script_delay = MS;
    proc_kill(owner()->proc, false);
    run_ms(100);
    cr_expect(is_failed(s, KVX_PEER_LOST));
}

Test(ends, a_silent_owner_fails_the_pull_after_peer_timeout)
{
    const kvx_settings *set = script_set("short");
    script_begin(1);
    (void)publish(ROOM);
    sub *s = make_ready(0);
    cut(0, true);
    pull(s);
    run_ms(set->peer_timeout_ns / MS - 150);
    cr_expect_eq(s->terminal_count, 0);
    run_ms(300);
    cr_expect(is_failed(s, KVX_PEER_LOST));
}

Test(ends, an_answer_that_waits_in_the_socket_is_no_silence)
{
    kvx_settings *set = script_set("short");
    set->peer_timeout_ns = 1000 * MS;
    script_begin(0);
    script.settings.peer_timeout_ns = 300 * MS; /* of the reader alone */
    script_add_reader("D0");
    cr_assert_eq(events(KVX_EVENT_PEER_UP), 2);
    script.script_delay = 10 * MS;
    run_ms(100);
    for (uint32_t i = 0; i < 20; i++) {
        stop(reader(0), 400);
        run_ms(557);
    }
    cr_expect_eq(events(KVX_EVENT_PEER_LOST), 0);
}

Test(ends, a_reader_of_another_model_is_told_the_difference_and_not_dialled_again)
{
    (void)script_set("short");
    script_begin(0);
    script.compat = "another";
    script_add_reader("D0");
    run_ms(3000);
    cr_expect_eq(events(KVX_EVENT_PEER_LOST), 1);
    cr_expect_eq(last_event(KVX_EVENT_PEER_LOST)->status, KVX_MISMATCH);
    cr_expect_not_null(strstr(last_event(KVX_EVENT_PEER_LOST)->text, "compat"));
    cr_expect_eq(messages(KVX_MESSAGE_HELLO), 1);
}

Test(ends, a_pool_is_moved_only_past_expiry_and_fence_of_a_stopped_reader)
{
    const kvx_settings *set = script_set("lone");
    script_begin(1);
    (void)publish(ROOM);
    (void)make_ready(0);
    const uint64_t before = owner()->epoch;
    stop(reader(0), 3000);
    proc_command(owner(), engine_reregister, NULL, 0);
    run_ms((set->lease_ns + set->fence_ns) / MS - 50);
    cr_expect_eq(owner()->epoch, before);
    run_ms(100);
    cr_expect_neq(owner()->epoch, before);
    run_ms(4000);
    (void)publish(ROOM);
    sub *s = make_ready(0);
    pull(s);
    run_ms(20);
    cr_expect(is_pulled(s));
}
