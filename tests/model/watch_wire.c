/* SPDX-License-Identifier: Apache-2.0 */
/* What the messages say, compared with what the rules allow. Leases and trust are computed a
 * second time here, from the messages and the clocks alone. */
#include "watch.h"

#include "engine.h"
#include "process.h"

static lease *find_lease(const node *n, const end *e, uint64_t nonce)
{
    for (pub *p = n->proc->w->pubs; p != NULL; p = p->next) {
        for (lease *l = p->leases; p->node == n && l != NULL; l = l->next) {
            if (l->end == e && l->nonce == nonce)
                return l;
        }
    }
    return NULL;
}

static pub *newest(const node *n, uint64_t room)
{
    for (pub *p = n->proc->w->pubs; p != NULL; p = p->next) {
        if (p->node == n && p->life == n->life && p->room == room && p->is_live)
            return p;
    }
    return NULL;
}

static sub *asker(const end *e, uint64_t nonce)
{
    node *n = e->other->node;

    return n == NULL || n->proc->is_dead ? NULL : engine_find(n, nonce);
}

/* --- the owner speaks ------------------------------------------------------------------------------ */

static bool is_table_of(const pub *p, const kvx_message *m)
{
    uint32_t k = 0;

    for (uint32_t i = 0; i < m->ready.tables[0].run_count; i++) {
        const kvx_page_run *run = &m->ready.tables[0].runs[i];
        for (uint32_t j = 0; j < run->count; j++, k++) {
            if (k >= p->page_count || p->pages[k] != run->first + j)
                return false;
        }
    }
    return k == p->page_count;
}

/* A slot that somebody has, or had to the end, is not given again. */
static void check_slot(const node *n, const pub *p, const end *e, const sub *s)
{
    world *w = n->proc->w;

    if (p->valid_count[s->reader] > 0)
        watch_broken(w, "I10", "reader %u of room %llu is offered after it was served", s->reader,
                (unsigned long long)p->room);
    for (const lease *l = p->leases; l != NULL; l = l->next) {
        if (l->reader == s->reader && !l->is_ended && !l->is_lost && n->now < l->expiry &&
                l->end != e)
            watch_broken(w, "I10", "reader %u of room %llu is offered to two", s->reader,
                    (unsigned long long)p->room);
    }
}

static void sent_ready(node *n, end *e, const kvx_message *m)
{
    world *w = n->proc->w;
    pub *p = newest(n, m->ready.room);
    sub *s = asker(e, m->ready.nonce);

    if (p == NULL || !is_table_of(p, m) ||
            (p->generation.counter != 0 && p->generation.counter != m->ready.generation.counter)) {
        watch_broken(w, "I21", "READY of room %llu is not its newest publication",
                (unsigned long long)m->ready.room);
        return;
    }
    p->generation = m->ready.generation;
    if (p->is_revoked)
        watch_broken(w, "I11", "READY after the room was revoked");
    if (n->now > p->born_clock + w->settings.publication_age_ns)
        watch_broken(w, "I11", "READY past the age of the publication");
    if (s == NULL)
        return;
    check_slot(n, p, e, s);
    lease *l = world_take(w, sizeof(*l));
    *l = (lease){ .next = p->leases,
        .pub = p,
        .end = e,
        .sub = s,
        .nonce = m->ready.nonce,
        .reader = s->reader,
        .expiry = n->now + m->ready.lease_ms * MS };
    p->leases = l;
}

static void sent_lease(const node *n, const end *e, const kvx_message *m)
{
    world *w = n->proc->w;

    for (uint32_t i = 0; i < m->lease.count; i++) {
        const kvx_lease_item *item = &m->lease.items[i];
        lease *l = find_lease(n, e, item->nonce);
        if (item->status != KVX_OK)
            continue;
        if (l == NULL || l->is_ended || l->is_revoked || n->now >= l->expiry ||
                n->now > l->pub->born_clock + w->settings.publication_age_ns) {
            watch_broken(w, "I11", "nonce %llx is granted what it has no right to",
                    (unsigned long long)item->nonce);
            return;
        }
        l->expiry = n->now + w->settings.lease_ns;
    }
}

static void sent_released(const node *n, const end *e, const kvx_message *m)
{
    world *w = n->proc->w;
    lease *l = find_lease(n, e, m->released.nonce);
    bool is_due = l != NULL && !l->is_ended && n->now < l->expiry;

    if (m->released.status != KVX_OK) {
        if (l != NULL) {
            l->is_ended = true; /* too late, but all is read */
            l->pub->was_ended = true;
        }
        if (is_due)
            watch_broken(w, "I11", "nonce %llx is not valid (%s), but its lease lives",
                    (unsigned long long)l->nonce, kvx_status_name(m->released.status));
        return;
    }
    if (!is_due) {
        watch_broken(w, "I11", "nonce %llx is called valid and is not",
                (unsigned long long)m->released.nonce);
        return;
    }
    l->is_ended = true;
    l->pub->was_ended = true;
    l->sub->valid_sent++;
    if (++l->pub->valid_count[l->reader] > 1)
        watch_broken(w, "I10", "reader %u of room %llu is valid twice", l->reader,
                (unsigned long long)l->pub->room);
}

static bool is_same_wish(const sub *s, const sub *other)
{
    return other->room == s->room && other->node->rank == s->node->rank &&
           other->wish->peer == s->wish->peer;
}

/* Nobody else ever asked this owner for the room, and it always asked for the same slot. */
static bool is_sole(const sub *s, const node *owner)
{
    world *w = owner->proc->w;

    for (uint32_t i = 0; i < w->proc_count; i++) {
        for (uint32_t r = 0; r < w->procs[i].node_count; r++) {
            for (const sub *other = w->procs[i].nodes[r].subs; other != NULL; other = other->next) {
                if (is_same_wish(s, other) &&
                        (other->node != s->node || other->readers != s->readers))
                    return false;
            }
        }
    }
    return s->readers == 1;
}

/* Its own earlier leases are lost with their links or ended; none keeps it out. */
static bool may_come_again(const node *n, const pub *p)
{
    const lease *last = p->leases;

    if (p->was_ended || p->is_revoked || n->is_closing)
        return false;
    if (n->now + MS >= p->born_clock + n->proc->w->settings.publication_age_ns)
        return false;
    if (last == NULL)
        return n->now + MS < p->born_clock + n->proc->w->settings.hold_ns;
    for (const lease *l = p->leases; l != NULL; l = l->next) {
        if (!l->is_lost)
            return false;
    }
    return n->now < last->expiry + n->proc->w->settings.fence_ns;
}

static void sent_failed(const node *n, const end *e, const kvx_message *m)
{
    const sub *s = asker(e, m->released.nonce);

    if (s == NULL || s->end != e->other || find_lease(n, e, m->released.nonce) != NULL)
        return;
    const pub *p = newest(n, s->room);
    if (p != NULL && may_come_again(n, p) && is_sole(s, n))
        watch_broken(n->proc->w, "I9", "the sole reader of room %llu is sent away (%s)",
                (unsigned long long)s->room, kvx_status_name(m->released.status));
}

static void sent_revoke(const node *n, const end *e, const kvx_message *m)
{
    lease *l = find_lease(n, e, m->about.nonce);

    if (l != NULL)
        l->is_revoked = true;
}

/* --- the reader speaks ------------------------------------------------------------------------------ */

static void check_quiet(const node *n, const sub *s, const char *what)
{
    world *w = n->proc->w;

    kvx_list_foreach (link, &w->reads) {
        const nic_read *r = KVX_LIST_ENTRY(link, nic_read, link);
        if (r->sub == s && !r->ep->is_hung)
            watch_broken(w, "I14", "%s of nonce %llx while its reads run", what,
                    (unsigned long long)s->nonce);
    }
}

static void sent_about(node *n, const kvx_message *m)
{
    sub *s = engine_find(n, m->about.nonce);

    if (s == NULL)
        return;
    check_quiet(n, s, kvx_message_name(m->type));
    if (m->type != KVX_MESSAGE_RELEASE)
        return;
    s->is_release_sent = true;
    if (s->joint != NULL && s->joint->bytes_in < s->joint->count)
        watch_broken(n->proc->w, "I16", "RELEASE before the bytes of all ranks are in");
}

void watch_sent(node *n, end *e, const kvx_message *m)
{
    world *w = n->proc->w;

    if (m->type != KVX_MESSAGE_PING && m->type != KVX_MESSAGE_PONG)
        WORLD_LOG(w, n->proc->name, "-> %s %s", e->other->proc->name, watch_describe(m, false));
    if (w->on_sent != NULL)
        w->on_sent(n, m);
    switch ((unsigned)m->type) {
    case KVX_MESSAGE_PING: e->sent_at[m->ping.sequence % 256] = proc_clock(n->proc); break;
    case KVX_MESSAGE_RENEW: e->sent_at[m->renew.sequence % 256] = proc_clock(n->proc); break;
    case KVX_MESSAGE_SUBSCRIBE:
        if (n->subscribing != NULL) {
            n->subscribing->nonce = m->subscribe.nonce;
            n->subscribing->end = e;
        }
        break;
    case KVX_MESSAGE_RELEASE:
    case KVX_MESSAGE_ABORT:
    case KVX_MESSAGE_DRAINED: sent_about(n, m); break;
    case KVX_MESSAGE_READY: sent_ready(n, e, m); break;
    case KVX_MESSAGE_LEASE: sent_lease(n, e, m); break;
    case KVX_MESSAGE_RELEASED: sent_released(n, e, m); break;
    case KVX_MESSAGE_REVOKE: sent_revoke(n, e, m); break;
    case KVX_MESSAGE_FAILED: sent_failed(n, e, m); break;
    case KVX_MESSAGE_BYE: e->has_said_bye = true; break;
    default: break;
    }
}

/* --- what arrives ------------------------------------------------------------------------------------ */

static void trust(sub *s, const end *e, uint64_t sequence)
{
    const kvx_settings *set = &s->node->proc->w->settings;
    uint64_t sent = e->sent_at[sequence % 256];
    uint64_t until = sent + set->lease_ns - set->margin_ns - set->lease_ns / 1000;

    if (sent != 0 && until > s->trust)
        s->trust = until;
}

static void ready_arrived(node *n, const end *e, const kvx_message *m)
{
    sub *s = engine_find(n, m->ready.nonce);

    if (s == NULL || s->end != e || s->pub != NULL)
        return;
    for (pub *p = n->proc->w->pubs; p != NULL && s->pub == NULL; p = p->next) {
        if (p->generation.counter == m->ready.generation.counter &&
                p->generation.epoch == m->ready.generation.epoch)
            s->pub = p;
    }
    s->generation = m->ready.generation;
    if (s->state == SUB_WAIT)
        s->state = SUB_READY;
    if (m->ready.echo != 0)
        trust(s, e, m->ready.echo);
}

static void lease_arrived(node *n, const end *e, const kvx_message *m)
{
    for (uint32_t i = 0; i < m->lease.count; i++) {
        kvx_lease_item item = kvx_wire_lease_at(m->lease.view, i);
        sub *s = engine_find(n, item.nonce);
        if (s != NULL && s->end == e && item.status == KVX_OK)
            trust(s, e, m->lease.sequence);
    }
}

static void released_arrived(node *n, const end *e, const kvx_message *m)
{
    sub *s = engine_find(n, m->released.nonce);

    if (s != NULL && s->end == e && m->released.status == KVX_OK)
        s->valid_seen++;
}

static void ended_arrived(const node *n, const end *e, const kvx_message *m)
{
    lease *l = find_lease(n, e, m->about.nonce);

    if (l == NULL || (m->type == KVX_MESSAGE_DRAINED && !l->is_revoked))
        return;
    l->is_ended = true;
    l->pub->was_ended = true;
}

void watch_arrived(node *n, end *e, const kvx_message *m)
{
    if (m->type != KVX_MESSAGE_PING && m->type != KVX_MESSAGE_PONG)
        WORLD_LOG(n->proc->w, n->proc->name, "<- %s %s", e->other->proc->name,
                watch_describe(m, true));
    switch ((unsigned)m->type) {
    case KVX_MESSAGE_READY: ready_arrived(n, e, m); break;
    case KVX_MESSAGE_LEASE: lease_arrived(n, e, m); break;
    case KVX_MESSAGE_RELEASED: released_arrived(n, e, m); break;
    case KVX_MESSAGE_ABORT:
    case KVX_MESSAGE_DRAINED: ended_arrived(n, e, m); break;
    default: break;
    }
}

void watch_link_closed(end *e)
{
    const node *n = e->node;
    world *w = e->proc->w;

    if (n == NULL)
        return;
    for (pub *p = w->pubs; p != NULL; p = p->next) {
        for (lease *l = p->leases; l != NULL; l = l->next)
            l->is_lost = l->is_lost || l->end == e;
    }
    if (n->is_ticking && e->is_up && !e->has_said_bye)
        watch_broken(w, "I20", "%s calls a link silent and did not ask for it to be read",
                n->proc->name);
}
