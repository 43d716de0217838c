/* SPDX-License-Identifier: Apache-2.0 */
/* Reads, pages and ends. What the messages say is checked in watch_wire.c. */
#include "watch.h"

#include <stdio.h>
#include <string.h>

#include "engine.h"
#include "process.h"

#define LEASES_PER_ROOM_MAX 6

void watch_broken(world *w, const char *rule, const char *format, ...)
{
    va_list list;

    if (w->violation[0] != '\0')
        return;
    int length = snprintf(w->violation, sizeof(w->violation), "%s: ", rule);
    va_start(list, format);
    vsnprintf(w->violation + length, sizeof(w->violation) - (size_t)length, format, list);
    va_end(list);
    WORLD_LOG(w, "!!!", "%s", w->violation);
}

/* --- reads -------------------------------------------------------------------------------------- */

static bool is_terminal(const sub *s)
{
    return s->terminal_count > 0 && !s->is_held;
}

static kvx_page page_of(const node *n, const uint8_t *at, uint32_t *region_out)
{
    for (uint32_t r = 0; r < REGIONS; r++) {
        if (at >= n->memory[r] && at < n->memory[r] + sizeof(n->memory[r])) {
            *region_out = r;
            return (kvx_page)((size_t)(at - n->memory[r]) / PAGE_STRIDE);
        }
    }
    *region_out = REGIONS;
    return 0;
}

static bool is_page_of(const pub *p, kvx_page page)
{
    for (uint32_t k = 0; k < p->page_count; k++) {
        if (p->pages[k] == page)
            return true;
    }
    return false;
}

static void watch_source(const nic_read *r)
{
    world *w = r->reader->proc->w;
    uint64_t last = r->offset + r->length - 1;

    for (uint64_t page = r->offset / PAGE_STRIDE; page <= last / PAGE_STRIDE; page++) {
        if (!is_page_of(r->sub->pub, (kvx_page)page))
            watch_broken(w, "I21", "a read of page %u, which READY did not name", (unsigned)page);
    }
}

void watch_posting(nic_read *r)
{
    node *n = r->reader;
    world *w = n->proc->w;
    sub *s = r->sub;
    uint32_t region;

    if (s == NULL || s->pub == NULL || is_terminal(s)) {
        watch_broken(w, "I13", "a read is posted for no pull");
        return;
    }
    if (r->sampled == KVX_NEVER)
        return; /* stopped for ever before it: it does not happen */
    uint64_t clock = proc_clock_at(n->proc, r->sampled);
    if (s->trust == 0 || clock >= s->trust)
        watch_broken(w, "I13", "a read of nonce %llx is posted %.3f s after trust",
                (unsigned long long)s->nonce, (double)(clock - s->trust) / 1e9);
    for (uint32_t i = 0; i < r->segment_count; i++) {
        kvx_page page = page_of(n, r->segments[i].base, &region);
        if (region == REGIONS || n->pages[page].taker != s)
            watch_broken(w, "I15", "a read into page %u, which belongs to another", page);
    }
    watch_source(r);
}

/* True time, back from now, at which a clock showed something. */
static uint64_t when_was(const proc *p, uint64_t clock)
{
    uint64_t now = proc_clock_at(p, p->w->t);

    if (clock >= now)
        return p->w->t;
    uint64_t ago = now - clock;
    return ago >= p->w->t ? 0 : p->w->t - ago;
}

/* A posted read is on freed pages. Excused: a close hangs, or its process was stopped for longer
 * after trust ended than the fence allows for. */
static void freed_under(const nic_read *r)
{
    world *w = r->reader->proc->w;
    const kvx_settings *s = &w->settings;
    const proc *p = r->reader->proc;
    uint64_t close = s->drain_ns + s->close_ns + s->lease_ns * 3 / 1000 + 20 * MS;

    if (p->is_dead || r->reader->is_over)
        return;
    if (r->ep->is_hung) {
        w->excused_hang++;
        return;
    }
    uint64_t since = when_was(p, r->sub->trust);
    since = since > s->margin_ns ? since - s->margin_ns : 0;
    since = since > r->sampled ? since : r->sampled;
    if (proc_stopped_ns(p, since, w->t) + close >= s->fence_ns) {
        w->excused_stop++;
        return;
    }
    watch_broken(w, "I2", "%s runs and has a posted read (nonce %llx) on freed pages", p->name,
            (unsigned long long)r->sub->nonce);
}

static bool is_source_freed(const nic_read *r)
{
    const pub *p = r->sub->pub;

    return p != NULL && !p->is_live && !r->owner->is_over && r->owner->life == p->life;
}

void watch_posted(nic_read *r)
{
    if (r->sub != NULL && r->reader->proc->w->set->lane == KVX_READ_ONE_SIDED && is_source_freed(r))
        freed_under(r);
}

void watch_fetch(nic_read *r)
{
    world *w = r->reader->proc->w;

    if (r->sub == NULL || !is_source_freed(r) || r->is_dead)
        return;
    if (w->set->lane == KVX_READ_SERVED)
        watch_broken(w, "I2", "the owner's own send reads a freed page");
    else
        freed_under(r);
}

void watch_landing(nic_read *r, const kvx_segment *segment)
{
    node *n = r->reader;
    world *w = n->proc->w;
    uint32_t region;
    kvx_page page = page_of(n, segment->base, &region);

    if (r->sub == NULL || region == REGIONS)
        watch_broken(w, "I3", "something is written that is no page");
    else if (n->pages[page].taker != r->sub)
        watch_broken(w, "I3", "page %u is written by nonce %llx, but is not its page", page,
                (unsigned long long)r->sub->nonce);
    else if (is_terminal(r->sub))
        watch_broken(w, "I3", "page %u is written after nonce %llx was terminal", page,
                (unsigned long long)r->sub->nonce);
}

void watch_serve(nic_read *r)
{
    node *n = r->owner;
    world *w = n->proc->w;

    for (pub *p = w->pubs; p != NULL; p = p->next) {
        for (lease *l = p->leases; l != NULL; l = l->next) {
            if (p->node != n || p->life != n->life || l->sub != r->sub)
                continue;
            if (l->is_ended || l->is_revoked || n->now >= l->expiry || !p->is_live)
                watch_broken(w, "I8", "nonce %llx is served without a live lease",
                        (unsigned long long)l->nonce);
            return;
        }
    }
    watch_broken(w, "I8", "bytes are served to somebody who has no lease");
}

/* --- publications ---------------------------------------------------------------------------------- */

void watch_publish(pub *p)
{
    for (uint32_t k = 0; k < p->page_count; k++) {
        if (p->node->pages[p->pages[k]].taker != NULL)
            watch_broken(
                    p->node->proc->w, "I15", "page %u is in a pull and is published", p->pages[k]);
    }
}

void watch_taken(sub *s, uint32_t first, uint32_t count)
{
    for (uint32_t i = first; i < first + count && i < s->page_count; i++) {
        page_state *p = &s->node->pages[s->pages[i]];
        if (p->taker != NULL || p->publications > 0)
            watch_broken(s->node->proc->w, "I15", "page %u is given to a second pull", s->pages[i]);
        p->taker = s;
    }
}

static void freed_under_lease(const pub *p)
{
    world *w = p->node->proc->w;

    for (const lease *l = p->leases; l != NULL; l = l->next) {
        if (!l->is_ended && p->node->now < l->expiry + w->settings.fence_ns)
            watch_broken(w, "I12", "room %llu is freed, the lease of nonce %llx lives",
                    (unsigned long long)p->room, (unsigned long long)l->nonce);
    }
}

void watch_freed(pub *p, kvx_status status)
{
    world *w = p->node->proc->w;

    WORLD_LOG(w, p->node->proc->name, "FREED room %llu stamp %llu: %s", (unsigned long long)p->room,
            (unsigned long long)p->stamp, kvx_status_name(status));
    freed_under_lease(p);
    p->is_live = false;
    p->freed = w->t;
    kvx_list_foreach (link, &w->reads) {
        nic_read *r = KVX_LIST_ENTRY(link, nic_read, link);
        if (r->sub == NULL || r->sub->pub != p || !r->is_posted || r->is_fetched)
            continue;
        if (w->set->lane == KVX_READ_ONE_SIDED)
            freed_under(r);
        else if (r->is_serving && !r->is_send_over)
            watch_broken(w, "I2", "pages are freed under the owner's own send");
    }
}

/* --- subscriptions ---------------------------------------------------------------------------------- */

static void check_bytes(const sub *s, const pub *p, uint32_t i)
{
    world *w = s->node->proc->w;
    uint64_t words[PAGE_WORDS];

    for (uint32_t r = 0; r < REGIONS; r++) {
        engine_page_words(p, i + s->skip, r, words);
        const uint8_t *at = s->node->memory[r] + s->pages[i] * PAGE_STRIDE;
        if (memcmp(at, words, sizeof(words)) != 0)
            watch_broken(w, "I1", "PULLED page %u of room %llu has bytes that are not its own",
                    i + s->skip, (unsigned long long)s->room);
    }
}

void watch_pulled(sub *s)
{
    world *w = s->node->proc->w;

    if (s->pub == NULL || s->state != SUB_PULL) {
        watch_broken(w, "I18", "PULLED without READY or pull");
        return;
    }
    if (w->settings.lease_confirm == KVX_CONFIRM_OWNER && s->valid_seen == 0)
        watch_broken(w, "I6", "PULLED of nonce %llx without RELEASED valid",
                (unsigned long long)s->nonce);
    for (uint32_t i = 0; s->joint != NULL && i < s->joint->count; i++) {
        if (s->joint->subs[i]->valid_seen == 0 && w->settings.lease_confirm == KVX_CONFIRM_OWNER)
            watch_broken(w, "I16", "PULLED of rank %u, but rank %u was not confirmed", s->rank, i);
    }
    if (s->active_reads > 0)
        watch_broken(w, "I3", "PULLED while a read is under way");
    if (s->skip < s->pub->page_count && s->page_count != s->pub->page_count - s->skip)
        watch_broken(w, "I1", "PULLED %u pages", s->page_count);
    for (uint32_t i = 0; i < s->page_count && s->skip < s->pub->page_count; i++)
        check_bytes(s, s->pub, i);
}

void watch_terminal(sub *s)
{
    world *w = s->node->proc->w;

    if (++s->terminal_count > 1)
        watch_broken(w, "I5", "nonce %llx ends twice", (unsigned long long)s->nonce);
    if (s->is_held)
        return;
    kvx_list_foreach (link, &w->reads) {
        const nic_read *r = KVX_LIST_ENTRY(link, nic_read, link);
        if (r->sub == s)
            watch_broken(w, "I3", "nonce %llx is terminal while a read of it is posted",
                    (unsigned long long)s->nonce);
    }
}

/* --- all the time ------------------------------------------------------------------------------------ */

static uint64_t gauge(const _Atomic uint64_t *value)
{
    return atomic_load_explicit(value, memory_order_relaxed);
}

void watch_step(node *n)
{
    world *w = n->proc->w;
    const kvx_metrics *m = &n->metrics;

    if (gauge(&m->protocol_errors) > 0)
        watch_broken(w, "I19", "%s calls something a protocol error", n->proc->name);
    if (gauge(&m->leases) > LEASES_PER_ROOM_MAX * gauge(&m->parked_rooms))
        watch_broken(w, "I7", "%s has %llu leases", n->proc->name,
                (unsigned long long)gauge(&m->leases));
    if (gauge(&m->waiting_subscriptions) > w->settings.waiting_max)
        watch_broken(w, "I7", "%s has too many early subscriptions", n->proc->name);
}

static bool is_lasting(const proc *p)
{
    return !p->is_dead && !(p->is_stopped && p->local == KVX_NEVER);
}

static bool is_node_over(const node *n)
{
    if (gauge(&n->metrics.parked_rooms) + gauge(&n->metrics.subscriptions) +
                    gauge(&n->metrics.waiting_subscriptions) + gauge(&n->metrics.leases) +
                    gauge(&n->metrics.reserved_bytes) >
            0)
        return false;
    for (const sub *s = n->subs; s != NULL; s = s->next) {
        if (s->terminal_count == 0)
            return false;
    }
    return !n->has_poll && !kvx_session_has_event(n->session);
}

bool watch_is_all_over(world *w)
{
    if (w->happened % 8 != 0)
        return false;
    for (uint32_t i = 0; i < w->proc_count; i++) {
        const proc *p = &w->procs[i];
        if (!is_lasting(p))
            continue;
        if (p->is_stopped || p->commands != NULL)
            return false;
        for (uint32_t r = 0; r < p->node_count; r++) {
            if (!p->nodes[r].is_over && !is_node_over(&p->nodes[r]))
                return false;
        }
    }
    return true;
}

/* --- at the end ---------------------------------------------------------------------------------------- */

static bool end_of_owner(world *w, const node *n)
{
    bool is_stuck = false;

    for (const pub *p = w->pubs; p != NULL; p = p->next) {
        if (p->node != n || p->life != n->life || !p->is_live)
            continue;
        is_stuck = true;
        if (!p->is_stuck)
            watch_broken(w, "I4", "room %llu is not freed %.1f s after it was published",
                    (unsigned long long)p->room, (double)(w->t - p->born) / 1e9);
    }
    return is_stuck;
}

static bool end_of_reader(world *w, const node *n)
{
    bool is_held = false;

    for (const sub *s = n->subs; s != NULL; s = s->next) {
        is_held = is_held || s->is_held;
        if (s->terminal_count != 1)
            watch_broken(w, "I5", "nonce %llx has not ended %.1f s after it was subscribed",
                    (unsigned long long)s->nonce, (double)(w->t - s->born) / 1e9);
        bool is_odd = s->joint != NULL && s->joint->subs[0]->terminal_count == 1 &&
                      (s->joint->subs[0]->status == KVX_OK) != (s->status == KVX_OK);
        if (is_odd)
            watch_broken(w, "I16", "the ranks of room %llu do not end alike",
                    (unsigned long long)s->room);
    }
    return is_held;
}

static void end_of_gauges(world *w, const node *n, bool is_stuck, bool is_held)
{
    const kvx_metrics *m = &n->metrics;
    const struct {
        const char *name;
        uint64_t value;
    } gauges[] = {
        { "parked_rooms", is_stuck ? 0 : gauge(&m->parked_rooms) },
        { "parked_bytes", is_stuck ? 0 : gauge(&m->parked_bytes) },
        { "leases", is_stuck ? 0 : gauge(&m->leases) },
        { "reserved_bytes", gauge(&m->reserved_bytes) },
        { "waiting_subscriptions", gauge(&m->waiting_subscriptions) },
        { "subscriptions", is_held ? 0 : gauge(&m->subscriptions) },
        { "reads_in_flight", is_held ? 0 : gauge(&m->reads_in_flight) },
        { "bytes_in_flight", is_held ? 0 : gauge(&m->bytes_in_flight) },
    };

    for (uint32_t i = 0; i < sizeof(gauges) / sizeof(*gauges); i++) {
        if (gauges[i].value != 0)
            watch_broken(w, "I17", "%s of %s is %llu at the end", gauges[i].name, n->proc->name,
                    (unsigned long long)gauges[i].value);
    }
    if (n->is_room_awaited && !is_stuck)
        watch_broken(w, "I18", "%s said AGAIN, but ROOM never came", n->proc->name);
}

void watch_end(world *w)
{
    for (uint32_t i = 0; i < w->proc_count; i++) {
        const proc *p = &w->procs[i];
        if (!proc_is_running(p))
            continue;
        for (uint32_t r = 0; r < p->node_count; r++) {
            const node *n = &p->nodes[r];
            if (n->is_over)
                continue;
            bool is_stuck = end_of_owner(w, n);
            bool is_held = end_of_reader(w, n);
            end_of_gauges(w, n, is_stuck, is_held);
        }
    }
}
