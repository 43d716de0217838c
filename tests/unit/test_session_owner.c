/* SPDX-License-Identifier: Apache-2.0 */
/* The session core as owner: whom it promises what, when it frees, whom it refuses. */
#include <criterion/criterion.h>

#include "support/seed.h"
#include "unit/test_session_world.h"

#define LINK  7
#define OTHER 8
#define ROOM  5
#define NONCE 100

static core c;

static void setup(void)
{
    core_init(&c);
    core_open(&c);
    core_accept(&c, LINK, OTHER_EPOCH);
    core_accept(&c, OTHER, THIRD_EPOCH);
}

static void teardown(void)
{
    core_close(&c);
}

TestSuite(session_owner, .init = setup, .fini = teardown);

static uint64_t foreign(void)
{
    return atomic_load(&c.metrics.foreign_messages);
}

/* Publish ROOM and let LINK have its only lease. */
static kvx_generation grant(void)
{
    kvx_generation generation = { 0 };

    core_publish(&c, ROOM, 0, 4);
    core_give_subscribe(&c, LINK, ROOM, NONCE, 0, 1);
    cr_assert(core_is_ready(&c, LINK, &generation));
    return generation;
}

/* Not freed until exactly then. */
static void expect_freed_after(uint64_t ns, kvx_status status)
{
    core_pass(&c, ns - 1);
    core_expect_none(&c);
    core_pass(&c, 1);
    const kvx_event event = core_expect(&c, KVX_EVENT_RELEASED);
    cr_expect_eq(event.status, status, "%s", kvx_status_name(event.status));
    cr_expect_eq(event.room, (uint64_t)ROOM);
}

/* --- RELEASE --- */

Test(session_owner, the_only_reader_s_release_frees_the_room)
{
    const kvx_generation generation = grant();

    core_give_about(&c, LINK, KVX_MESSAGE_RELEASE, NONCE, ROOM, generation);
    cr_expect_eq(core_released_status(&c, LINK), KVX_OK);
    cr_expect_eq(core_expect(&c, KVX_EVENT_RELEASED).status, KVX_OK);
    core_give_subscribe(&c, LINK, ROOM, NONCE + 1, 0, 1);
    cr_expect_eq(core_failed_status(&c, LINK), KVX_GONE);
}

Test(session_owner, a_room_of_two_readers_waits_for_both)
{
    kvx_generation generation;

    core_publish(&c, ROOM, 0, 4);
    core_give_subscribe(&c, LINK, ROOM, NONCE, 0, 2);
    core_give_subscribe(&c, OTHER, ROOM, NONCE, 1, 2); /* nonces are each connection's own */
    cr_assert(core_is_ready(&c, LINK, &generation) && core_is_ready(&c, OTHER, NULL));
    core_give_about(&c, LINK, KVX_MESSAGE_RELEASE, NONCE, ROOM, generation);
    core_expect_none(&c);
    core_give_about(&c, OTHER, KVX_MESSAGE_RELEASE, NONCE, ROOM, generation);
    cr_expect_eq(core_released_status(&c, OTHER), KVX_OK);
    cr_expect_eq(core_expect(&c, KVX_EVENT_RELEASED).status, KVX_OK);
}

Test(session_owner, a_release_that_comes_late_is_told_so_and_frees)
{
    const kvx_generation generation = grant();

    c.now += c.settings.lease_ns; /* at the end of a lease it is over */
    core_give_about(&c, LINK, KVX_MESSAGE_RELEASE, NONCE, ROOM, generation);
    cr_expect_eq(core_released_status(&c, LINK), KVX_EXPIRED);
    cr_expect_eq(core_expect(&c, KVX_EVENT_RELEASED).status, KVX_EXPIRED);
}

Test(session_owner, a_release_just_in_time_is_valid)
{
    const kvx_generation generation = grant();

    c.now += c.settings.lease_ns - 1;
    core_give_about(&c, LINK, KVX_MESSAGE_RELEASE, NONCE, ROOM, generation);
    cr_expect_eq(core_released_status(&c, LINK), KVX_OK);
}

Test(session_owner, another_generation_is_refused_and_harms_nobody)
{
    kvx_generation generation = grant();

    generation.counter++;
    core_give_about(&c, LINK, KVX_MESSAGE_RELEASE, NONCE, ROOM, generation);
    cr_expect_eq(core_released_status(&c, LINK), KVX_GONE);
    core_give_renew(&c, LINK, 1, NONCE, generation);
    cr_expect_eq(core_lease_status(&c, LINK), KVX_GONE);
    generation.counter--;
    generation.epoch++;
    core_give_about(&c, LINK, KVX_MESSAGE_RELEASE, NONCE, ROOM, generation);
    cr_expect_eq(core_released_status(&c, LINK), KVX_GONE);
    core_expect_none(&c);
    generation.epoch--;
    core_give_about(&c, LINK, KVX_MESSAGE_RELEASE, NONCE, ROOM, generation);
    cr_expect_eq(core_released_status(&c, LINK), KVX_OK);
}

Test(session_owner, another_s_lease_cannot_be_renewed_released_drained_or_aborted)
{
    const kvx_generation generation = grant();

    core_give_renew(&c, OTHER, 1, NONCE, generation);
    cr_expect_eq(core_lease_status(&c, OTHER), KVX_GONE);
    cr_expect_eq(foreign(), (uint64_t)1);
    core_give_about(&c, OTHER, KVX_MESSAGE_RELEASE, NONCE, ROOM, generation);
    cr_expect_eq(core_released_status(&c, OTHER), KVX_GONE);
    cr_expect_eq(foreign(), (uint64_t)2);
    core_give_about(&c, OTHER, KVX_MESSAGE_ABORT, NONCE, ROOM, generation);
    cr_expect_eq(foreign(), (uint64_t)3);
    core_expect_none(&c);
    cr_expect_eq(kvx_session_revoke(c.session, ROOM, c.now), KVX_OK);
    core_give_about(&c, OTHER, KVX_MESSAGE_DRAINED, NONCE, ROOM, generation);
    cr_expect_eq(foreign(), (uint64_t)4);
    core_expect_none(&c);
    core_give_about(&c, LINK, KVX_MESSAGE_RELEASE, NONCE, ROOM, generation);
    cr_expect_eq(core_released_status(&c, LINK), KVX_OK);
    cr_expect_eq(foreign(), (uint64_t)4);
}

Test(session_owner, an_abort_of_what_ended_already_is_nothing)
{
    const kvx_generation generation = grant();

    core_give_about(&c, LINK, KVX_MESSAGE_ABORT, NONCE, ROOM, generation);
    (void)core_expect(&c, KVX_EVENT_RELEASED);
    core_give_about(&c, LINK, KVX_MESSAGE_ABORT, NONCE, ROOM, generation);
    core_give_about(&c, LINK, KVX_MESSAGE_DRAINED, NONCE, ROOM, generation);
    core_expect_none(&c);
    cr_expect_null(core_take(&c, CORE_CLOSED));
    cr_expect_eq(foreign(), (uint64_t)0);
}

/* --- leases --- */

Test(session_owner, an_expired_lease_holds_the_pages_for_the_fence)
{
    (void)grant();
    expect_freed_after(c.settings.lease_ns + c.settings.fence_ns, KVX_EXPIRED);
    cr_expect_eq(atomic_load(&c.metrics.leases_expired), (uint64_t)1);
    cr_expect_eq(atomic_load(&c.metrics.leases), (uint64_t)0);
}

Test(session_owner, a_renewed_lease_counts_from_its_renewal)
{
    const kvx_generation generation = grant();

    core_pass(&c, c.settings.lease_ns - 1);
    core_give_renew(&c, LINK, 3, NONCE, generation);
    cr_expect_eq(core_lease_status(&c, LINK), KVX_OK);
    expect_freed_after(c.settings.lease_ns + c.settings.fence_ns, KVX_EXPIRED);
}

Test(session_owner, an_expired_lease_is_never_revived)
{
    const kvx_generation generation = grant();

    core_pass(&c, c.settings.lease_ns);
    core_give_renew(&c, LINK, 3, NONCE, generation);
    cr_expect_eq(core_lease_status(&c, LINK), KVX_EXPIRED);
    expect_freed_after(c.settings.fence_ns, KVX_EXPIRED);
}

Test(session_owner, nothing_is_granted_past_the_age_of_a_publication)
{
    core_close(&c);
    core_init(&c);
    c.settings.publication_age_ns = 1000 * MS;
    core_open(&c);
    core_accept(&c, LINK, OTHER_EPOCH);
    const kvx_generation generation = grant();

    core_pass(&c, 500 * MS);
    core_give_renew(&c, LINK, 1, NONCE, generation);
    cr_expect_eq(core_lease_status(&c, LINK), KVX_OK);
    core_pass(&c, 500 * MS);
    core_give_renew(&c, LINK, 2, NONCE, generation);
    cr_expect_eq(core_lease_status(&c, LINK), KVX_EXPIRED);
}

Test(session_owner, a_lost_connection_ends_no_lease)
{
    (void)grant();
    core_pass(&c, 10 * MS);
    kvx_session_link_lost(c.session, LINK, KVX_PEER_LOST, c.now);
    (void)core_expect(&c, KVX_EVENT_PEER_LOST);
    expect_freed_after(c.settings.lease_ns + c.settings.fence_ns - 10 * MS, KVX_EXPIRED);
}

Test(session_owner, a_slot_is_kept_for_its_node_until_its_lease_ends)
{
    (void)grant();
    kvx_session_link_lost(c.session, LINK, KVX_PEER_LOST, c.now);
    (void)core_expect(&c, KVX_EVENT_PEER_LOST);
    core_give_subscribe(&c, OTHER, ROOM, 7, 0, 1);
    cr_expect_eq(core_failed_status(&c, OTHER), KVX_REFUSED);
    core_pass(&c, c.settings.lease_ns - 1);
    core_give_subscribe(&c, OTHER, ROOM, 8, 0, 1);
    cr_expect_eq(core_failed_status(&c, OTHER), KVX_REFUSED);
    core_pass(&c, 1);
    core_give_subscribe(&c, OTHER, ROOM, 9, 0, 1);
    cr_expect(core_is_ready(&c, OTHER, NULL), "then anyone may take it until the pages are freed");
}

Test(session_owner, a_sole_reader_that_reconnects_gets_ready)
{
    kvx_generation generation;
    const kvx_generation first = grant();

    kvx_session_link_lost(c.session, LINK, KVX_PEER_LOST, c.now);
    (void)core_expect(&c, KVX_EVENT_PEER_LOST);
    core_accept(&c, LINK + 10, OTHER_EPOCH);
    core_give_subscribe(&c, LINK + 10, ROOM, NONCE + 1, 0, 1);
    cr_assert(core_is_ready(&c, LINK + 10, &generation));
    cr_expect_eq(generation.counter, first.counter);
    /* the old promise still stands when the new one is done */
    core_give_about(&c, LINK + 10, KVX_MESSAGE_RELEASE, NONCE + 1, ROOM, generation);
    cr_expect_eq(core_released_status(&c, LINK + 10), KVX_OK);
    expect_freed_after(c.settings.lease_ns + c.settings.fence_ns, KVX_OK);
}

/* --- slots and early subscriptions --- */

Test(session_owner, a_room_that_nobody_reads_comes_back_at_the_hold_time)
{
    core_publish(&c, ROOM, 0, 4);
    expect_freed_after(c.settings.hold_ns, KVX_EXPIRED);
}

Test(session_owner, a_slot_that_nobody_takes_closes_at_the_hold_time)
{
    kvx_generation generation;

    core_publish(&c, ROOM, 0, 4);
    core_give_subscribe(&c, LINK, ROOM, NONCE, 0, 2);
    cr_assert(core_is_ready(&c, LINK, &generation));
    for (uint64_t i = 1; i <= 4; i++) {
        core_pass(&c, c.settings.hold_ns / 4);
        core_give_renew(&c, LINK, i, NONCE, generation);
    }
    core_give_subscribe(&c, OTHER, ROOM, 1, 1, 2);
    cr_expect_eq(core_failed_status(&c, OTHER), KVX_GONE);
    core_give_about(&c, LINK, KVX_MESSAGE_RELEASE, NONCE, ROOM, generation);
    cr_expect_eq(core_expect(&c, KVX_EVENT_RELEASED).status, KVX_EXPIRED);
}

Test(session_owner, the_first_subscription_fixes_the_number_of_readers)
{
    core_give_subscribe(&c, LINK, ROOM, NONCE, 0, 2);
    core_give_subscribe(&c, OTHER, ROOM, 1, 0, 3);
    cr_expect_eq(core_failed_status(&c, OTHER), KVX_REFUSED);
    core_give_subscribe(&c, OTHER, ROOM, 2, 0, 2); /* waits; its slot is taken when it is granted */
    core_publish(&c, ROOM, 0, 4);
    cr_expect(core_is_ready(&c, LINK, NULL));
    cr_expect_eq(core_failed_status(&c, OTHER), KVX_REFUSED);
}

/* As if the codec let it through. */
static void give_subscribe_raw(uint32_t reader, uint32_t readers)
{
    kvx_message message = { .type = KVX_MESSAGE_SUBSCRIBE,
        .subscribe = { ROOM, NONCE, reader, readers, 1000 } };

    kvx_session_message(c.session, LINK, &message, c.now);
}

Test(session_owner, what_makes_no_sense_is_refused)
{
    give_subscribe_raw(1, 1);
    cr_expect_eq(core_failed_status(&c, LINK), KVX_INVALID);
    give_subscribe_raw(0, 0);
    cr_expect_eq(core_failed_status(&c, LINK), KVX_INVALID);
    give_subscribe_raw(0, UINT32_MAX);
    cr_expect_eq(core_failed_status(&c, LINK), KVX_INVALID);
    core_give_subscribe(&c, LINK, ROOM, NONCE, 0, 1);
    core_give_subscribe(&c, LINK, ROOM, NONCE + 1, 0, 1);
    cr_expect_eq(core_failed_status(&c, LINK), KVX_REFUSED, "the same room twice");
    core_give_subscribe(&c, LINK, ROOM + 1, NONCE, 0, 1);
    cr_expect_eq(core_failed_status(&c, LINK), KVX_REFUSED, "the same nonce twice");
}

Test(session_owner, an_early_subscription_fails_when_its_patience_ends)
{
    core_give_subscribe(&c, LINK, ROOM, NONCE, 0, 1);
    cr_expect_eq(kvx_session_room(c.session, ROOM, NULL), KVX_ROOM_AWAITED);
    core_pass(&c, 1000 * MS - 1);
    cr_expect_eq(core_failed_status(&c, LINK), KVX_AGAIN);
    core_pass(&c, 1);
    cr_expect_eq(core_failed_status(&c, LINK), KVX_EXPIRED);
    cr_expect_eq(kvx_session_room(c.session, ROOM, NULL), KVX_ROOM_UNKNOWN);
}

Test(session_owner, early_subscriptions_have_a_limit)
{
    core_close(&c);
    core_init(&c);
    c.settings.waiting_max = 3;
    core_open(&c);
    core_accept(&c, LINK, OTHER_EPOCH);
    for (uint64_t i = 0; i < 3; i++)
        core_give_subscribe(&c, LINK, ROOM + i, NONCE + i, 0, 1);
    cr_expect_eq(core_failed_status(&c, LINK), KVX_AGAIN);
    core_give_subscribe(&c, LINK, ROOM + 3, NONCE + 3, 0, 1);
    cr_expect_eq(core_failed_status(&c, LINK), KVX_NO_SPACE);
    core_give_about(&c, LINK, KVX_MESSAGE_ABORT, NONCE, ROOM, (kvx_generation){ 0 });
    core_give_subscribe(&c, LINK, ROOM + 3, NONCE + 4, 0, 1);
    cr_expect_eq(core_failed_status(&c, LINK), KVX_AGAIN);
}

/* --- what is remembered --- */

Test(session_owner, an_aborted_room_fails_who_waits_and_who_asks_later)
{
    core_give_subscribe(&c, LINK, ROOM, NONCE, 0, 1);
    cr_expect_eq(kvx_session_abort(c.session, ROOM, c.now), KVX_OK);
    cr_expect_eq(core_failed_status(&c, LINK), KVX_GONE);
    core_give_subscribe(&c, OTHER, ROOM, NONCE, 0, 1);
    cr_expect_eq(core_failed_status(&c, OTHER), KVX_GONE);
    core_publish(&c, ROOM, 0, 4); /* publishing it after all clears that */
    core_give_subscribe(&c, OTHER, ROOM, NONCE + 1, 0, 1);
    cr_expect(core_is_ready(&c, OTHER, NULL));
}

Test(session_owner, ended_rooms_are_remembered_for_a_time_and_up_to_a_number)
{
    kvx_status status = KVX_OK;

    for (uint64_t room = 1; room <= 9; room++)
        cr_expect_eq(kvx_session_abort(c.session, room, c.now), KVX_OK);
    cr_expect_eq(kvx_session_room(c.session, 1, &status), KVX_ROOM_UNKNOWN, "eight are remembered");
    cr_expect_eq(kvx_session_room(c.session, 2, &status), KVX_ROOM_FREED);
    cr_expect_eq(status, KVX_GONE);
    core_give_subscribe(&c, LINK, 1, NONCE, 0, 1);
    core_give_subscribe(&c, LINK, 2, NONCE + 1, 0, 1);
    cr_expect_eq(core_sent_count(&c, LINK, KVX_MESSAGE_FAILED), 1u);
    core_pass(&c, c.settings.tombstone_ns);
    core_forget(&c);
    core_give_subscribe(&c, LINK, 3, NONCE + 2, 0, 1);
    cr_expect_eq(core_failed_status(&c, LINK), KVX_AGAIN, "forgotten by time: it waits");
}

Test(session_owner, a_release_after_the_end_is_told_how_it_ended)
{
    const kvx_generation generation = grant();

    core_pass(&c, c.settings.lease_ns + c.settings.fence_ns);
    (void)core_expect(&c, KVX_EVENT_RELEASED);
    core_give_about(&c, LINK, KVX_MESSAGE_RELEASE, NONCE, ROOM, generation);
    cr_expect_eq(core_released_status(&c, LINK), KVX_EXPIRED);
}

/* --- revoke --- */

Test(session_owner, a_revoked_room_comes_back_when_its_reader_has_drained)
{
    const kvx_generation generation = grant();

    core_give_about(&c, LINK, KVX_MESSAGE_DRAINED, NONCE, ROOM, generation);
    cr_expect_eq(kvx_session_room(c.session, ROOM, NULL), KVX_ROOM_PUBLISHED, "nobody asked");
    cr_expect_eq(kvx_session_revoke(c.session, ROOM, c.now), KVX_OK);
    cr_expect_eq(core_must_send(&c, LINK, KVX_MESSAGE_REVOKE)->about.nonce, (uint64_t)NONCE);
    core_expect_none(&c);
    core_give_renew(&c, LINK, 1, NONCE, generation);
    cr_expect_eq(core_lease_status(&c, LINK), KVX_REVOKED);
    core_give_subscribe(&c, OTHER, ROOM, 1, 0, 1);
    cr_expect_eq(core_failed_status(&c, OTHER), KVX_REVOKED);
    core_give_about(&c, LINK, KVX_MESSAGE_DRAINED, NONCE, ROOM, generation);
    cr_expect_eq(core_expect(&c, KVX_EVENT_RELEASED).status, KVX_REVOKED);
}

Test(session_owner, a_release_after_the_revoke_is_valid_before_the_drained)
{
    const kvx_generation generation = grant();

    cr_expect_eq(kvx_session_revoke(c.session, ROOM, c.now), KVX_OK);
    core_give_about(&c, LINK, KVX_MESSAGE_RELEASE, NONCE, ROOM, generation);
    cr_expect_eq(core_released_status(&c, LINK), KVX_OK);
    cr_expect_eq(core_expect(&c, KVX_EVENT_RELEASED).status, KVX_REVOKED);
    core_give_about(&c, LINK, KVX_MESSAGE_DRAINED, NONCE, ROOM, generation);
    core_expect_none(&c);
}

Test(session_owner, a_release_after_the_drained_is_not_valid)
{
    const kvx_generation generation = grant();

    cr_expect_eq(kvx_session_revoke(c.session, ROOM, c.now), KVX_OK);
    core_give_about(&c, LINK, KVX_MESSAGE_DRAINED, NONCE, ROOM, generation);
    core_give_about(&c, LINK, KVX_MESSAGE_RELEASE, NONCE, ROOM, generation);
    cr_expect_eq(core_released_status(&c, LINK), KVX_REVOKED);
}

Test(session_owner, a_revoked_room_whose_reader_is_dumb_waits_for_its_lease)
{
    (void)grant();
    cr_expect_eq(kvx_session_revoke(c.session, ROOM, c.now), KVX_OK);
    expect_freed_after(c.settings.lease_ns + c.settings.fence_ns, KVX_REVOKED);
}
