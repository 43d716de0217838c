/* SPDX-License-Identifier: Apache-2.0 */
/* The session core as owner, continued: pages by number, generations beside each other, limits,
 * reads that it serves itself, and a property over random histories. */
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
}

static void teardown(void)
{
    core_close(&c);
}

TestSuite(session_book, .init = setup, .fini = teardown);

static kvx_status publish(uint64_t room, const kvx_page *pages, uint32_t count, uint32_t tokens)
{
    const kvx_page_table table = { pages, count };

    return kvx_session_publish(c.session,
            KVX_OFFER(.room = room, .tokens = tokens, .tables = &table, .table_count = 1), c.now);
}

static kvx_generation grant(void)
{
    kvx_generation generation = { 0 };

    core_publish(&c, ROOM, 0, 4);
    core_give_subscribe(&c, LINK, ROOM, NONCE, 0, 1);
    cr_assert(core_is_ready(&c, LINK, &generation));
    return generation;
}

/* --- offers --- */

Test(session_book, what_does_not_fit_the_layout_is_refused_and_takes_nothing)
{
    static const kvx_page pages[] = { 1, 2, CORE_PAGES, 3 };
    const kvx_page_table table = { pages, 2 };

    cr_expect_eq(publish(ROOM, pages, 2, 9), KVX_INVALID, "three pages hold 9 tokens");
    cr_expect_eq(publish(ROOM, pages, 2, 4), KVX_INVALID, "one page holds 4 tokens");
    cr_expect_eq(publish(ROOM, pages, 2, 0), KVX_INVALID);
    cr_expect_eq(publish(ROOM, pages, 3, 12), KVX_INVALID, "page 32 is not in the pool");
    cr_expect_eq(kvx_session_publish(c.session,
                         KVX_OFFER(.room = ROOM, .tokens = 8, .tables = &table, .table_count = 1,
                                 .is_partial = true),
                         c.now),
            KVX_UNSUPPORTED);
    cr_expect_eq(kvx_session_publish(c.session,
                         KVX_OFFER(.room = ROOM, .tokens = 8, .tables = &table, .table_count = 1,
                                 .aux_bytes = KVX_AUX_MAX + 1),
                         c.now),
            KVX_INVALID);
    cr_expect_eq(atomic_load(&c.metrics.parked_bytes), (uint64_t)0);
    cr_expect_eq(publish(ROOM, pages, 2, 5), KVX_OK);
    cr_expect_eq(publish(ROOM, pages, 2, 5), KVX_BUSY, "a live room");
}

Test(session_book, rooms_may_share_pages)
{
    static const kvx_page shared[] = { 1, 2, 3 };

    cr_expect_eq(publish(1, shared, 3, 12), KVX_OK);
    cr_expect_eq(publish(2, shared, 2, 8), KVX_OK);
    cr_expect_eq(kvx_session_revoke(c.session, 1, c.now), KVX_OK);
    cr_expect_eq(core_expect(&c, KVX_EVENT_RELEASED).room, (uint64_t)1);
    cr_expect_eq(atomic_load(&c.metrics.parked_bytes), (uint64_t)2 * CORE_PAGE_BYTES);
}

/* --- two generations of a room --- */

Test(session_book, a_room_may_be_published_anew_while_a_lost_reader_holds_its_old_pages)
{
    kvx_generation second;
    const kvx_generation first = grant();

    core_give_subscribe(&c, LINK, ROOM + 1, NONCE + 1, 0, 1);
    kvx_session_link_lost(c.session, LINK, KVX_PEER_LOST, c.now);
    (void)core_expect(&c, KVX_EVENT_PEER_LOST);
    cr_expect_eq(kvx_session_revoke(c.session, ROOM, c.now), KVX_OK);
    core_publish(&c, ROOM, 10, 4);
    core_accept(&c, OTHER, OTHER_EPOCH);
    core_give_subscribe(&c, OTHER, ROOM, NONCE, 0, 1);
    cr_assert(core_is_ready(&c, OTHER, &second));
    cr_expect_eq(second.counter, first.counter + 1);
    core_give_about(&c, OTHER, KVX_MESSAGE_RELEASE, NONCE, ROOM, first);
    cr_expect_eq(core_released_status(&c, OTHER), KVX_GONE);
    core_give_about(&c, OTHER, KVX_MESSAGE_RELEASE, NONCE, ROOM, second);
    cr_expect_eq(core_released_status(&c, OTHER), KVX_OK);
    cr_expect_eq(core_expect(&c, KVX_EVENT_RELEASED).status, KVX_OK);
    core_expect_none(&c);
    core_pass(&c, c.settings.lease_ns + c.settings.fence_ns);
    cr_expect_eq(core_expect(&c, KVX_EVENT_RELEASED).status, KVX_REVOKED);
}

/* --- limits --- */

Test(session_book, a_full_owner_says_again_and_tells_when_there_is_room)
{
    static const kvx_page pages[] = { 1, 2, 3, 4 };

    core_close(&c);
    core_init(&c);
    c.settings.parked_bytes_max = (uint64_t)4 * CORE_PAGE_BYTES;
    core_open(&c);
    cr_expect_eq(publish(1, pages, 3, 12), KVX_OK);
    cr_expect_eq(publish(2, pages, 2, 8), KVX_AGAIN);
    cr_expect_eq(kvx_session_reserve(c.session, 3, 2 * CORE_PAGE_BYTES, c.now), KVX_AGAIN);
    cr_expect_eq(kvx_session_reserve(c.session, 3, 5 * CORE_PAGE_BYTES, c.now), KVX_NO_SPACE);
    cr_expect_eq(kvx_session_reserve(c.session, 3, CORE_PAGE_BYTES, c.now), KVX_OK);
    cr_expect_eq(kvx_session_reserve(c.session, 3, CORE_PAGE_BYTES, c.now), KVX_BUSY);
    cr_expect_eq(kvx_session_reserve(c.session, 1, CORE_PAGE_BYTES, c.now), KVX_BUSY);
    cr_expect_eq(publish(2, pages, 1, 4), KVX_AGAIN, "what is reserved is another room's");
    core_expect_none(&c);
    cr_expect_eq(publish(3, pages, 1, 4), KVX_OK, "a reservation cannot be refused");
    cr_expect_eq(kvx_session_revoke(c.session, 1, c.now), KVX_OK);
    (void)core_expect(&c, KVX_EVENT_RELEASED);
    (void)core_expect(&c, KVX_EVENT_ROOM);
    cr_expect_eq(publish(2, pages, 2, 8), KVX_OK);
}

Test(session_book, a_reservation_given_up_makes_room)
{
    static const kvx_page pages[] = { 1, 2, 3, 4 };

    core_close(&c);
    core_init(&c);
    c.settings.parked_bytes_max = (uint64_t)4 * CORE_PAGE_BYTES;
    core_open(&c);
    cr_expect_eq(kvx_session_reserve(c.session, 1, 4 * CORE_PAGE_BYTES, c.now), KVX_OK);
    cr_expect_eq(kvx_session_room(c.session, 1, NULL), KVX_ROOM_RESERVED);
    cr_expect_eq(publish(2, pages, 1, 4), KVX_AGAIN);
    cr_expect_eq(kvx_session_reserve(c.session, 1, 0, c.now), KVX_OK);
    (void)core_expect(&c, KVX_EVENT_ROOM);
    cr_expect_eq(kvx_session_reserve(c.session, 1, 0, c.now), KVX_NOT_FOUND);
    cr_expect_eq(publish(2, pages, 1, 4), KVX_OK);
    cr_expect_eq(atomic_load(&c.metrics.reserved_bytes), (uint64_t)0);
}

/* --- reads that the owner serves itself --- */

static kvx_status serve(uint64_t epoch, uint64_t nonce)
{
    return kvx_session_serve_begin(c.session, epoch, nonce, c.now);
}

Test(session_book, only_the_asker_s_own_live_lease_is_served)
{
    (void)grant();
    core_accept(&c, OTHER, THIRD_EPOCH);
    core_give_subscribe(&c, OTHER, ROOM + 1, 1, 0, 1);
    cr_expect_eq(serve(THIRD_EPOCH, NONCE), KVX_REFUSED, "another's");
    cr_expect_eq(serve(OTHER_EPOCH, NONCE + 1), KVX_REFUSED, "nobody's");
    cr_expect_eq(serve(THIRD_EPOCH, 1), KVX_REFUSED, "not granted yet");
    cr_expect_eq(serve(OTHER_EPOCH, NONCE), KVX_OK);
    kvx_session_serve_end(c.session, OTHER_EPOCH, NONCE, c.now);
    cr_expect_eq(kvx_session_revoke(c.session, ROOM, c.now), KVX_OK);
    cr_expect_eq(serve(OTHER_EPOCH, NONCE), KVX_REFUSED, "revoked");
    cr_expect_eq(atomic_load(&c.metrics.foreign_messages), (uint64_t)4);
}

Test(session_book, an_expired_lease_is_not_served)
{
    (void)grant();
    c.now += c.settings.lease_ns;
    cr_expect_eq(serve(OTHER_EPOCH, NONCE), KVX_REFUSED);
}

Test(session_book, an_operation_of_ours_holds_the_pages_after_the_release)
{
    const kvx_generation generation = grant();

    cr_assert_eq(serve(OTHER_EPOCH, NONCE), KVX_OK);
    cr_assert_eq(serve(OTHER_EPOCH, NONCE), KVX_OK);
    core_give_about(&c, LINK, KVX_MESSAGE_RELEASE, NONCE, ROOM, generation);
    cr_expect_eq(core_released_status(&c, LINK), KVX_OK);
    kvx_session_serve_end(c.session, OTHER_EPOCH, NONCE, c.now);
    core_expect_none(&c);
    cr_expect_eq(serve(OTHER_EPOCH, NONCE), KVX_REFUSED, "its lease is over");
    kvx_session_serve_end(c.session, OTHER_EPOCH, NONCE, c.now);
    cr_expect_eq(core_expect(&c, KVX_EVENT_RELEASED).status, KVX_OK);
}

Test(session_book, an_operation_of_ours_that_does_not_end_is_closed_and_told)
{
    (void)grant();
    cr_assert_eq(serve(OTHER_EPOCH, NONCE), KVX_OK);
    kvx_session_link_lost(c.session, LINK, KVX_PEER_LOST, c.now);
    (void)core_expect(&c, KVX_EVENT_PEER_LOST);
    core_pass(&c, c.settings.lease_ns + c.settings.fence_ns - 1);
    cr_expect_null(core_take(&c, CORE_SENDS_CLOSED));
    core_pass(&c, 1);
    cr_expect_eq(core_take(&c, CORE_SENDS_CLOSED)->link, (uint64_t)NONCE);
    core_expect_none(&c);
    core_pass(&c, c.settings.close_ns);
    cr_expect_eq(core_expect(&c, KVX_EVENT_PAGES_STUCK).room, (uint64_t)ROOM);
    core_pass(&c, 100000 * MS);
    core_expect_none(&c);
    cr_expect_null(core_take(&c, CORE_SENDS_CLOSED), "it is asked for once");
    kvx_session_serve_end(c.session, OTHER_EPOCH, NONCE, c.now);
    (void)core_expect(&c, KVX_EVENT_RELEASED);
}

/* --- property: no page is freed while a promise stands, and every room ends --- */

#define HISTORY_LEASES 64

/* What the test itself believes of one promise. */
typedef struct promise {
    uint64_t link, nonce, room;
    kvx_generation generation;
    uint64_t expiry;
    bool is_over;
    bool is_revoked;
} promise;

typedef struct history {
    promise promises[HISTORY_LEASES];
    uint32_t count;
    uint64_t nonce;
    uint32_t freed;
    uint32_t published;
    bool is_revoked[4];
} history;

static void take_ready(history *h, uint64_t link, uint64_t room)
{
    kvx_generation generation;

    if (!core_is_ready(&c, link, &generation))
        return;
    cr_assert_lt(h->count, (uint32_t)HISTORY_LEASES);
    h->promises[h->count++] = (promise){ link, h->nonce, room, generation,
        c.now + c.settings.lease_ns, false, false };
}

static void take_freed(history *h)
{
    kvx_event event;

    while (kvx_session_poll(c.session, &event)) {
        if (event.kind != KVX_EVENT_RELEASED)
            continue;
        h->freed++;
        for (uint32_t i = 0; i < h->count; i++) {
            promise *p = &h->promises[i];
            if (p->room != event.room)
                continue;
            cr_assert(p->is_over || c.now >= p->expiry + c.settings.fence_ns,
                    "room %d is freed while a promise stands", (int)event.room);
            p->is_over = true;
        }
    }
}

static void message_about(promise *p, uint64_t link, kvx_message_type type, bool is_live)
{
    core_give_about(&c, link, type, p->nonce, p->room, p->generation);
    if (link != p->link)
        return;
    if (type == KVX_MESSAGE_RELEASE && !p->is_over)
        cr_assert_eq(core_released_status(&c, link) == KVX_OK, is_live, "a release is judged");
    if (type != KVX_MESSAGE_DRAINED || p->is_revoked)
        p->is_over = true;
}

static void renew_one(promise *p, uint64_t link, bool is_live)
{
    core_give_renew(&c, link, 1, p->nonce, p->generation);
    const kvx_status status = core_lease_status(&c, link);
    const bool is_granted = link == p->link && is_live && !p->is_over && !p->is_revoked;

    cr_assert_eq(status == KVX_OK, is_granted, "a renewal is judged: %s", kvx_status_name(status));
    if (is_granted)
        p->expiry = c.now + c.settings.lease_ns;
}

static void step_promise(history *h, uint64_t *state)
{
    promise *p = &h->promises[test_random_below(state, h->count)];
    const uint64_t link = test_random_below(state, 4) == 0 ? LINK + OTHER - p->link : p->link;
    const bool is_live = c.now < p->expiry;

    switch (test_random_below(state, 5)) {
    case 0: message_about(p, link, KVX_MESSAGE_RELEASE, is_live); break;
    case 1: message_about(p, link, KVX_MESSAGE_ABORT, is_live); break;
    case 2: message_about(p, link, KVX_MESSAGE_DRAINED, is_live); break;
    default: renew_one(p, link, is_live); break;
    }
}

static void step(history *h, uint64_t *state)
{
    const uint64_t room = 1 + test_random_below(state, 3);
    const uint64_t link = test_random_below(state, 2) == 0 ? LINK : OTHER;
    const kvx_page pages[] = { (kvx_page)room * 2, (kvx_page)room * 2 + 1 };

    switch (test_random_below(state, 6)) {
    case 0:
        if (kvx_session_room(c.session, room, NULL) != KVX_ROOM_PUBLISHED &&
                kvx_session_room(c.session, room, NULL) != KVX_ROOM_REVOKING)
            h->published += publish(room, pages, 2, 8) == KVX_OK;
        break;
    case 1:
        core_give_subscribe(&c, link, room, ++h->nonce, (uint32_t)test_random_below(state, 2), 2);
        take_ready(h, link, room);
        break;
    case 2:
        if (test_random_below(state, 6) != 0 || kvx_session_revoke(c.session, room, c.now) != KVX_OK)
            break;
        for (uint32_t i = 0; i < h->count; i++)
            h->promises[i].is_revoked |= h->promises[i].room == room && !h->promises[i].is_over;
        break;
    case 3: core_pass(&c, test_random_below(state, 400) * MS); break;
    default:
        if (h->count > 0)
            step_promise(h, state);
        break;
    }
    take_freed(h);
    core_forget(&c);
}

Test(session_book, no_history_frees_a_page_that_is_promised_and_every_room_ends)
{
    uint64_t state = test_seed();
    const uint64_t rounds = test_rounds(300);

    for (uint64_t round = 0; round < rounds; round++) {
        history h = { .nonce = 1 };
        core_close(&c);
        core_init(&c);
        c.settings.peer_timeout_ns = 1000000 * MS;
        core_open(&c);
        core_accept(&c, LINK, OTHER_EPOCH);
        core_accept(&c, OTHER, THIRD_EPOCH);
        for (int i = 0; i < 200 && h.count < HISTORY_LEASES - 1; i++)
            step(&h, &state);
        core_pass(&c, c.settings.hold_ns + c.settings.lease_ns + c.settings.fence_ns);
        core_pass(&c, c.settings.lease_ns + c.settings.fence_ns);
        take_freed(&h);
        cr_assert_eq(h.freed, h.published, "round %d: %u of %u rooms ended", (int)round, h.freed,
                h.published);
        core_forget(&c);
    }
}
