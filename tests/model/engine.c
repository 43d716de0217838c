/* SPDX-License-Identifier: Apache-2.0 */
#include "engine.h"

#include <string.h>

#include "process.h"
#include "watch.h"

static void told(node *n, const char *call, kvx_status status)
{
    WORLD_LOG(n->proc->w, n->proc->name, "%s: %s", call, kvx_status_name(status));
}

static bool chaos_chance(const node *n, uint32_t chance)
{
    world *w = n->proc->w;

    return world_is_chaos(w) && world_chance(w, chance);
}

/* --- pages ------------------------------------------------------------------------------------ */

void engine_page_words(const pub *p, uint32_t k, uint32_t region, uint64_t words[PAGE_WORDS])
{
    words[0] = p->room;
    words[1] = p->stamp;
    words[2] = (uint64_t)region << 32 | k;
    words[3] = ~p->stamp;
}

void engine_page_fill(node *n, kvx_page page, uint8_t value)
{
    for (uint32_t r = 0; r < REGIONS; r++)
        memset(n->memory[r] + page * PAGE_STRIDE, value, PAGE_BYTES);
}

static bool is_free(const node *n, kvx_page page)
{
    return n->pages[page].publications == 0 && n->pages[page].puller == NULL &&
           n->pages[page].taker == NULL;
}

/* Choose free pages by chance; false: there are not so many. */
bool engine_choose_pages(node *n, uint32_t count, kvx_page *pages_out)
{
    kvx_page free_pages[PAGES_MAX];
    uint32_t free_count = 0;

    for (kvx_page i = 0; i < n->page_count; i++) {
        if (is_free(n, i))
            free_pages[free_count++] = i;
    }
    if (free_count < count)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = i + (uint32_t)world_below(n->proc->w, free_count - i);
        pages_out[i] = free_pages[at];
        free_pages[at] = free_pages[i];
    }
    return true;
}

/* --- publishing -------------------------------------------------------------------------------- */

void engine_connect(node *n, uint64_t now, void *unused, uint64_t proc_index)
{
    (void)unused;
    n->now = now;
    kvx_status status = kvx_session_connect(
            n->session, n->proc->w->procs[proc_index].name, n->rank, now, &n->peers[proc_index]);
    told(n, "connect", status);
    node_called(n);
}

void engine_disconnect(node *n, uint64_t now, void *unused, uint64_t proc_index)
{
    world *w = n->proc->w;

    (void)unused;
    n->now = now;
    kvx_status status = kvx_session_disconnect(n->session, n->peers[proc_index], now);
    told(n, "disconnect", status);
    if (status == KVX_OK) {
        n->is_peer_up[proc_index] = false;
        n->peers[proc_index].value = 0;
        proc_command_at(n, w->t + world_span(w, 300 * MS), engine_connect, NULL, proc_index);
    }
    node_called(n);
}

static void engine_give_up(node *n, uint64_t now, void *unused, uint64_t room)
{
    (void)unused;
    n->now = now;
    kvx_status status = kvx_session_reserve(n->session, room, 0, now);
    bool is_due = n->reserved[room % 2] != 0;
    if ((status == KVX_OK) != is_due)
        watch_broken(n->proc->w, "I18", "giving a reservation up: %s", kvx_status_name(status));
    n->reserved[room % 2] = 0;
    node_called(n);
}

void engine_reserve(node *n, uint64_t now, void *unused, uint64_t room)
{
    world *w = n->proc->w;
    uint64_t bytes = (1 + world_below(w, ROOM_PAGES_MAX)) * PAGE_BYTES * REGIONS;

    (void)unused;
    n->now = now;
    if (n->reserved[room % 2] != 0 && world_chance(w, 512))
        bytes = 0;
    kvx_status status = kvx_session_reserve(n->session, room, bytes, now);
    told(n, "reserve", status);
    if (status == KVX_OK) {
        n->reserved[room % 2] = bytes;
        /* what is promised is used or given up in the end */
        if (bytes > 0)
            proc_command_at(n, w->t + world_span(w, 2 * SECOND), engine_publish, NULL, room);
        if (bytes > 0)
            proc_command_at(n, w->t + 2 * SECOND, engine_give_up, NULL, room);
    }
    n->is_room_awaited = n->is_room_awaited || status == KVX_AGAIN;
    node_called(n);
}

static kvx_status offer_pages(node *n, const pub *p, uint64_t now)
{
    kvx_page_table table = { p->pages, p->page_count };
    kvx_offer offer = {
        .struct_size = sizeof(offer),
        .room = p->room,
        .tokens = p->page_count * PAGE_TOKENS - (uint32_t)(p->stamp % PAGE_TOKENS),
        .tables = &table,
        .table_count = 1,
        .aux = &p->stamp,
        .aux_bytes = sizeof(p->stamp),
        .user = (void *)(uintptr_t)p->stamp,
    };
    return kvx_session_publish(n->session, &offer, now);
}

static void publish_again(node *n, uint64_t room, uint64_t pause)
{
    world *w = n->proc->w;

    if (world_is_chaos(w))
        proc_command_at(n, w->t + pause, engine_publish, NULL, room);
}

static void forget_pub(world *w, const pub *p)
{
    for (pub **at = &w->pubs; *at != NULL; at = &(*at)->next) {
        if (*at == p) {
            *at = p->next;
            return;
        }
    }
}

static void published(node *n, pub *p, uint64_t now)
{
    world *w = n->proc->w;

    for (uint32_t k = 0; k < p->page_count; k++) {
        n->pages[p->pages[k]].published = p;
        n->pages[p->pages[k]].publications++;
    }
    watch_publish(p);
    if (p->room >= 100)
        n->reserved[p->room % 2] = 0;
    if (kvx_session_room(n->session, p->room, NULL) != KVX_ROOM_PUBLISHED)
        watch_broken(w, "I18", "room %llu is not PUBLISHED", (unsigned long long)p->room);
    WORLD_LOG(w, n->proc->name, "published room %llu as stamp %llu", (unsigned long long)p->room,
            (unsigned long long)p->stamp);
    if (chaos_chance(n, 200) && offer_pages(n, p, now) != KVX_BUSY)
        watch_broken(w, "I18", "room %llu is published twice", (unsigned long long)p->room);
}

static void write_pages(node *n, const pub *p)
{
    for (uint32_t k = 0; k < p->page_count; k++) {
        for (uint32_t r = 0; r < REGIONS; r++) {
            uint64_t words[PAGE_WORDS];
            engine_page_words(p, k, r, words);
            memcpy(n->memory[r] + p->pages[k] * PAGE_STRIDE, words, sizeof(words));
        }
    }
}

/* Sometimes an engine is wrong and offers a page that a pull has. */
static bool steal_page(node *n, pub *p)
{
    for (kvx_page i = 0; i < n->page_count && chaos_chance(n, 100); i++) {
        if (n->pages[i].taker == NULL)
            continue;
        p->pages[0] = i;
        return true;
    }
    return false;
}

void engine_publish(node *n, uint64_t now, void *unused, uint64_t room)
{
    world *w = n->proc->w;
    pub *p = world_take(w, sizeof(*p));

    (void)unused;
    n->now = now;
    *p = (pub){ .next = w->pubs,
        .node = n,
        .life = n->life,
        .room = room,
        .stamp = ++w->stamp_count,
        .born = w->t,
        .born_clock = now,
        .is_live = true,
        .page_count = 1 + (uint32_t)world_below(w, ROOM_PAGES_MAX) };
    if (!engine_choose_pages(n, p->page_count, p->pages)) {
        publish_again(n, room, 100 * MS);
        return;
    }
    if (!steal_page(n, p))
        write_pages(n, p);
    w->pubs = p;
    kvx_status status = offer_pages(n, p, now);
    if (status == KVX_OK) {
        published(n, p, now);
    } else {
        forget_pub(w, p);
        told(n, "publish", status);
        n->is_room_awaited = n->is_room_awaited || status == KVX_AGAIN;
        uint64_t bytes = (uint64_t)p->page_count * PAGE_BYTES * REGIONS;
        if (status == KVX_AGAIN && room >= 100 && bytes <= n->reserved[room % 2])
            watch_broken(w, "I18", "AGAIN in spite of a reservation");
        if (status != KVX_BUSY && status != KVX_AGAIN && status != KVX_CLOSED)
            watch_broken(w, "I18", "publish: %s", kvx_status_name(status));
    }
    node_called(n);
}

static pub *newest_pub(const node *n, uint64_t room)
{
    for (pub *p = n->proc->w->pubs; p != NULL; p = p->next) {
        if (p->node == n && p->life == n->life && p->room == room && p->is_live)
            return p;
    }
    return NULL;
}

void engine_revoke(node *n, uint64_t now, void *unused, uint64_t room)
{
    pub *p = newest_pub(n, room);

    (void)unused;
    n->now = now;
    kvx_status status = kvx_session_revoke(n->session, room, now);
    told(n, "revoke", status);
    if (status == KVX_OK && p != NULL)
        p->is_revoked = true;
    if (status == KVX_OK && p == NULL)
        watch_broken(n->proc->w, "I18", "a room that is not published is revoked");
    if (chaos_chance(n, 128))
        told(n, "revoke again", kvx_session_revoke(n->session, room, now));
    node_called(n);
}

void engine_abort_room(node *n, uint64_t now, void *unused, uint64_t room)
{
    pub *p = newest_pub(n, room);

    (void)unused;
    n->now = now;
    kvx_status status = kvx_session_abort(n->session, room, now);
    told(n, "abort", status);
    if (status == KVX_OK && p != NULL)
        p->is_revoked = true;
    else if (status == KVX_OK && room >= 100)
        n->reserved[room % 2] = 0;
    node_called(n);
}

void engine_reregister(node *n, uint64_t now, void *unused, uint64_t unused_too)
{
    world *w = n->proc->w;

    (void)unused;
    (void)unused_too;
    n->now = now;
    told(n, "re-registers its pool", KVX_OK);
    n->is_closing = true;
    kvx_session_begin_close(n->session, now);
    for (pub *p = w->pubs; p != NULL; p = p->next) {
        if (p->node != n || p->life != n->life || !p->is_live)
            continue;
        p->is_revoked = true;
        if (w->faults.reregister_early) {
            watch_freed(p, KVX_CLOSED);
            p->is_live = true; /* its event is still to come */
            for (uint32_t k = 0; k < p->page_count; k++)
                engine_page_fill(n, p->pages[k], 0x66);
        }
    }
    node_called(n);
}

static void on_released(node *n, const kvx_event *event)
{
    world *w = n->proc->w;
    pub *p = w->pubs;

    while (p != NULL && (p->node != n || p->stamp != (uintptr_t)event->user))
        p = p->next;
    if (p == NULL || !p->is_live) {
        watch_broken(w, "I18", "RELEASED of a room that is not published");
        return;
    }
    watch_freed(p, event->status);
    for (uint32_t k = 0; k < p->page_count; k++) {
        n->pages[p->pages[k]].publications--;
        n->pages[p->pages[k]].published = NULL;
        engine_page_fill(n, p->pages[k], 0xde);
    }
    if (chaos_chance(n, w->moods.republish))
        publish_again(n, p->room, world_span(w, 30 * MS));
    if (n->is_room_awaited && world_is_chaos(w))
        publish_again(n, p->room, SECOND);
}

static void on_stuck(const node *n, const kvx_event *event)
{
    for (pub *p = n->proc->w->pubs; p != NULL; p = p->next) {
        if (p->node == n && p->stamp == (uintptr_t)event->user)
            p->is_stuck = true;
    }
}

/* --- events ------------------------------------------------------------------------------------ */

static void on_peer(node *n, const kvx_event *event)
{
    for (uint32_t i = 0; i < PROCS_MAX; i++) {
        if (!event->is_accepted && n->peers[i].value != 0 && n->peers[i].value == event->peer.value)
            n->is_peer_up[i] = event->kind == KVX_EVENT_PEER_UP;
    }
}

static const char *event_name(kvx_event_kind kind)
{
    static const char *const names[] = { "NONE", "PEER_UP", "PEER_LOST", "READY", "PULLED",
        "FAILED", "PAGES_QUIET", "RELEASED", "PAGES_STUCK", "ROOM", "CREDIT" };

    return (unsigned)kind < sizeof(names) / sizeof(*names) ? names[kind] : "?";
}

void engine_event(node *n, const kvx_event *event)
{
    world *w = n->proc->w;

    WORLD_LOG(w, n->proc->name, "event %s room %llu sub %llx %s %s", event_name(event->kind),
            (unsigned long long)event->room, (unsigned long long)event->subscription.value,
            kvx_status_name(event->status), event->text);
    switch (event->kind) {
    case KVX_EVENT_PEER_UP:
    case KVX_EVENT_PEER_LOST: on_peer(n, event); break;
    case KVX_EVENT_READY:
    case KVX_EVENT_PULLED:
    case KVX_EVENT_FAILED:
    case KVX_EVENT_PAGES_QUIET: engine_sub_event(n, event); break;
    case KVX_EVENT_RELEASED: on_released(n, event); break;
    case KVX_EVENT_PAGES_STUCK: on_stuck(n, event); break;
    case KVX_EVENT_ROOM: n->is_room_awaited = false; break;
    case KVX_EVENT_CREDIT: engine_credit(n); break;
    case KVX_EVENT_NONE: break;
    }
    if (w->on_event != NULL)
        w->on_event(n, event);
}
