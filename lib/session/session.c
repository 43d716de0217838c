/* SPDX-License-Identifier: Apache-2.0 */
/* The session as a whole: its making, its timers, its ending. */
#include "session/core.h"

#include <stdlib.h>
#include <string.h>

kvx_status kvx_due_init(kvx_session *session, kvx_due *due, kvx_owner_kind kind)
{
    KVX_TRY(kvx_timers_reserve(&session->timers));
    due->kind = kind;
    return KVX_OK;
}

void kvx_due_fini(kvx_session *session, kvx_due *due)
{
    kvx_timers_clear(&session->timers, &due->timer);
    kvx_timers_unreserve(&session->timers);
}

void kvx_due_set(kvx_session *session, kvx_due *due, uint64_t at_ns)
{
    kvx_timers_set(&session->timers, &due->timer, at_ns);
}

static void books_fini(kvx_book books[KVX_COMPONENT_MAX])
{
    for (uint32_t i = 0; i < KVX_COMPONENT_MAX; i++) {
        kvx_book_fini(&books[i]);
        books[i] = (kvx_book){ 0 };
    }
}

/* All zero before; on failure none is made. */
static kvx_status books_init(kvx_book books[KVX_COMPONENT_MAX], const kvx_pool *pool)
{
    kvx_status status = KVX_OK;

    for (uint32_t i = 0; i < pool->component_count && status == KVX_OK; i++)
        status = kvx_book_init(&books[i], pool->components[i].page_count);
    if (status != KVX_OK)
        books_fini(books);
    return status;
}

static void session_lists_init(kvx_session *session)
{
    kvx_list_init(&session->events);
    kvx_list_init(&session->suspects);
    kvx_list_init(&session->publications);
    kvx_list_init(&session->jobs);
    kvx_list_init(&session->joints);
    session->room_slot.kind = KVX_OWNER_SESSION;
    session->credit_slot.kind = KVX_OWNER_SESSION;
}

static kvx_status session_init(kvx_session *session, const kvx_session_params *params)
{
    const kvx_settings *settings = params->settings;

    session->settings = *settings;
    session->pool = params->pool;
    session->metrics = params->metrics;
    session->sink = params->sink;
    session->nonce = params->nonce_seed;
    session_lists_init(session);
    session->parked = (kvx_admit){
        .bytes_max = settings->parked_bytes_max,
        .count_max = settings->parked_rooms_max,
    };
    session->credits = (kvx_admit){
        .bytes_max = settings->pull_bytes_max,
        .count_max = settings->pulls_max,
        .lets_one_through = true,
    };
    KVX_TRY(kvx_remember_init(&session->tombstones, settings->tombstones_max));
    KVX_TRY(kvx_remember_init(&session->ended, settings->tombstones_max));
    KVX_TRY(books_init(session->books, session->pool));
    return kvx_hello_copy(params->hello, &session->hello);
}

kvx_status kvx_session_create(const kvx_session_params *params, kvx_session **session_out)
{
    kvx_session *session = calloc(1, sizeof(*session));

    KVX_ENSURE(session != NULL, KVX_NO_MEMORY);

    kvx_status status = session_init(session, params);
    if (status != KVX_OK) {
        kvx_session_destroy(&session);
        return status;
    }
    *session_out = session;
    return KVX_OK;
}

static void links_free(kvx_session *session)
{
    size_t position = 0;

    for (kvx_link *link; (link = kvx_map_next(&session->links, &position)) != NULL;) {
        kvx_hello_destroy(&link->remote);
        size_t inner = 0;
        for (kvx_lease *lease; (lease = kvx_map_next(&link->leases, &inner)) != NULL;) {
            if (lease->publication == NULL)
                free(lease);
        }
        kvx_map_fini(&link->leases);
        kvx_map_fini(&link->subscriptions);
        free(link);
    }
    kvx_map_fini(&session->links);
}

/* Publications go first: they take their leases off the links, and timers out of the heap. */
static void objects_free(kvx_session *session)
{
    size_t position = 0;

    kvx_list_foreach (node, &session->publications)
        kvx_publication_destroy(session, KVX_LIST_ENTRY(node, kvx_publication, node));
    for (kvx_sub *sub; (sub = kvx_map_next(&session->subs, &position)) != NULL;) {
        for (uint32_t i = 0; i < KVX_COMPONENT_MAX; i++) {
            free(sub->source[i].runs);
            free(sub->pages[i]);
        }
        free(sub->aux);
        free(sub);
    }
    kvx_map_fini(&session->subs);

    position = 0;
    for (kvx_peer *peer; (peer = kvx_map_next(&session->peers, &position)) != NULL;)
        free(peer);
    kvx_map_fini(&session->peers);

    position = 0;
    for (kvx_room *room; (room = kvx_map_next(&session->rooms, &position)) != NULL;)
        free(room);
    kvx_map_fini(&session->rooms);
}

void kvx_session_destroy(kvx_session **session_inout)
{
    kvx_session *session = session_inout == NULL ? NULL : *session_inout;

    if (session == NULL)
        return;
    objects_free(session);
    links_free(session);
    books_fini(session->books);
    kvx_remember_fini(&session->tombstones);
    kvx_remember_fini(&session->ended);
    kvx_hello_destroy(&session->hello);
    kvx_timers_fini(&session->timers);
    free(session);
    *session_inout = NULL;
}

/* --- time --- */

static void lease_due(kvx_session *session, kvx_lease *lease)
{
    /* Only a waiting lease has a timer: its patience. */
    kvx_lease_fail(session, lease, KVX_EXPIRED);
}

static void due_fire(kvx_session *session, kvx_due *due, uint64_t now)
{
    switch (due->kind) {
    case KVX_OWNER_PEER: kvx_peer_due(session, KVX_CONTAINER_OF(due, kvx_peer, redial)); break;
    case KVX_OWNER_LINK: kvx_link_due(session, KVX_CONTAINER_OF(due, kvx_link, due), now); break;
    case KVX_OWNER_PUBLICATION:
        kvx_publication_check(session, KVX_CONTAINER_OF(due, kvx_publication, due), now);
        break;
    case KVX_OWNER_LEASE: lease_due(session, KVX_CONTAINER_OF(due, kvx_lease, due)); break;
    case KVX_OWNER_SUBSCRIPTION:
        kvx_sub_due(session, KVX_CONTAINER_OF(due, kvx_sub, due), now);
        break;
    case KVX_OWNER_SESSION: break;
    }
}

void kvx_session_tick(kvx_session *session, uint64_t now)
{
    for (;;) {
        kvx_timer *timer = kvx_timers_first(&session->timers);
        if (timer == NULL || timer->at_ns > now)
            return;
        kvx_timers_clear(&session->timers, timer);
        due_fire(session, KVX_CONTAINER_OF(timer, kvx_due, timer), now);
    }
}

uint64_t kvx_session_next_due(const kvx_session *session)
{
    const kvx_timer *timer = kvx_timers_first(&session->timers);

    return timer == NULL ? KVX_NEVER : timer->at_ns;
}

/* --- ending --- */

bool kvx_session_is_drained(const kvx_session *session)
{
    return session->live_count == 0 && session->running_count == 0;
}

static void fail_waiting(kvx_session *session)
{
    size_t position = 0;

    for (kvx_link *link; (link = kvx_map_next(&session->links, &position)) != NULL;) {
        kvx_list_foreach (node, &link->lease_list) {
            kvx_lease *lease = KVX_LIST_ENTRY(node, kvx_lease, on_link);
            if (lease->publication == NULL)
                kvx_lease_fail(session, lease, KVX_GONE);
        }
    }
}

void kvx_session_begin_drain(kvx_session *session)
{
    session->is_draining = true;
    fail_waiting(session);
}

void kvx_session_begin_close(kvx_session *session, uint64_t now)
{
    session->is_closing = true;
    kvx_session_begin_drain(session);
    kvx_list_foreach (node, &session->publications) {
        kvx_publication *publication = KVX_LIST_ENTRY(node, kvx_publication, node);
        if (!publication->is_freed)
            kvx_publication_revoke(session, publication, now);
    }

    size_t position = 0;
    for (kvx_sub *sub; (sub = kvx_map_next(&session->subs, &position)) != NULL;)
        kvx_sub_fail(session, sub, KVX_CANCELLED, "the node is closing", now);
}

/* Ends every link; the map changes at each end, so every walk starts over. */
static void end_links(kvx_session *session, uint64_t now)
{
    const kvx_message bye = { .type = KVX_MESSAGE_BYE };

    for (;;) {
        size_t position = 0;
        kvx_link *link = kvx_map_next(&session->links, &position);
        if (link == NULL)
            return;
        const kvx_link_id id = link->id;
        session->sink.send(session->sink.arg, id, &bye);
        kvx_link_end(session, link, KVX_CLOSED, "we closed", now);
        session->sink.close_link(session->sink.arg, id);
    }
}

void kvx_session_say_bye(kvx_session *session, uint64_t now)
{
    session->is_closing = true; /* no link is dialled again */
    end_links(session, now);
}

kvx_status kvx_session_restart(
        kvx_session *session, const kvx_hello *hello, const kvx_pool *pool, uint64_t now)
{
    kvx_hello *copy = NULL;
    kvx_book books[KVX_COMPONENT_MAX] = { 0 };

    KVX_ENSURE(kvx_session_is_drained(session), KVX_AGAIN);
    KVX_TRY(kvx_hello_copy(hello, &copy));
    const kvx_status status = books_init(books, pool);
    if (status != KVX_OK) {
        kvx_hello_destroy(&copy);
        return status;
    }
    kvx_session_say_bye(session, now);
    kvx_hello_destroy(&session->hello);
    books_fini(session->books);
    session->hello = copy;
    session->pool = pool;
    memcpy(session->books, books, sizeof(books));
    session->is_draining = false;
    session->is_closing = false;

    size_t position = 0;
    for (kvx_peer *peer; (peer = kvx_map_next(&session->peers, &position)) != NULL;) {
        if (!peer->is_accepted && !peer->is_refused)
            kvx_peer_redial(session, peer, now);
    }
    return KVX_OK;
}
