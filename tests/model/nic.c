/* SPDX-License-Identifier: Apache-2.0 */
#include "nic.h"

#include <string.h>

#include "engine.h"
#include "network.h"
#include "process.h"
#include "watch.h"

static uint64_t data_time(world *w)
{
    const kvx_settings *s = &w->settings;
    uint64_t most[] = { 20 * MS, s->drain_ns * 3, s->fence_ns, s->lease_ns, 3 * s->lease_ns };

    if (w->is_scripted)
        return w->script_delay;
    if (w->moods.is_data_slow && world_is_chaos(w) && world_chance(w, 400))
        return world_span(w, most[world_below(w, sizeof(most) / sizeof(*most))]);
    return 50 * US + world_span(w, 5 * MS);
}

void nic_domain_init(kvx_domain *domain, node *n)
{
    world *w = n->proc->w;

    memset(domain, 0, sizeof(*domain));
    domain->node = n;
    domain->epoch = n->epoch;
    domain->done_last = &domain->done;
    domain->requests_last = &domain->requests;
    domain->window = w->is_scripted ? 16 : 1 + (uint32_t)world_below(w, 8);
    domain->segments_max = w->is_scripted ? 1 : 1 + (uint32_t)world_below(w, 4);
}

bool nic_has_news(const kvx_domain *domain)
{
    return domain->done != NULL || domain->requests != NULL;
}

/* --- how a read ends ---------------------------------------------------------------------------- */

static void read_over(nic_read *r)
{
    kvx_list_remove(&r->link);
    if (r->sub != NULL)
        r->sub->active_reads--;
}

static void complete(nic_read *r, kvx_status status)
{
    kvx_domain *domain = r->ep->domain;

    if (r->is_dead || domain->is_dead)
        return;
    read_over(r);
    r->is_dead = true;
    r->status = status;
    *domain->done_last = r;
    domain->done_last = &r->next_done;
    node_news(r->reader);
}

static void read_kill(nic_read *r)
{
    if (r->is_dead)
        return;
    read_over(r);
    r->is_dead = true;
    r->ep->domain->in_flight--;
}

/* What was not reported when its endpoint is closed never is. */
void nic_forget_done(kvx_ep *ep)
{
    kvx_domain *domain = ep->domain;
    nic_read **at = &domain->done;

    while (*at != NULL) {
        if ((*at)->ep == ep) {
            *at = (*at)->next_done;
            domain->in_flight--;
        } else {
            at = &(*at)->next_done;
        }
    }
    domain->done_last = at;
}

void nic_kill_reads(world *w, const kvx_ep *ep, const node *reader)
{
    kvx_list_foreach (link, &w->reads) {
        nic_read *r = KVX_LIST_ENTRY(link, nic_read, link);
        if (r->ep == ep || r->reader == reader)
            read_kill(r);
    }
}

void nic_domain_died(kvx_domain *domain)
{
    nic_kill_reads(domain->node->proc->w, NULL, domain->node);
    domain->is_dead = true;
    domain->done = NULL;
    domain->requests = NULL;
    domain->sends = NULL;
}

/* --- a read on its way --------------------------------------------------------------------------- */

static bool owner_is_gone(const nic_read *r)
{
    return r->owner == NULL || r->owner->is_over || r->owner->life != r->owner_life ||
           r->owner->epoch != r->owner_epoch;
}

static void land(world *w, void *object, uint64_t unused, uint64_t unused_too)
{
    nic_read *r = object;
    const uint8_t *from = r->data;

    (void)unused;
    (void)unused_too;
    if ((r->is_dead && !w->faults.late_reply) || r->ep->domain->is_dead || r->is_landed)
        return;
    r->is_landed = true;
    for (uint32_t i = 0; i < r->segment_count; i++) {
        watch_landing(r, &r->segments[i]);
        memcpy(r->segments[i].base, from, r->segments[i].length_bytes);
        from += r->segments[i].length_bytes;
    }
    complete(r, KVX_OK);
}

static void fetch_bytes(nic_read *r)
{
    watch_fetch(r);
    r->is_fetched = true;
    memcpy(r->data, r->owner->memory[r->region] + r->offset, r->length);
}

static void fetch(world *w, void *object, uint64_t unused, uint64_t unused_too)
{
    nic_read *r = object;

    (void)unused;
    (void)unused_too;
    if (r->is_dead && !w->faults.late_reply)
        return;
    if (owner_is_gone(r)) {
        complete(r, KVX_PEER_LOST);
        return;
    }
    fetch_bytes(r);
    uint64_t late = world_chance(w, 200) ? data_time(w) : 100 * US;
    world_at(w, w->t + late, land, r, 0, 0);
}

static void refuse(world *w, void *object, uint64_t status, uint64_t unused)
{
    (void)w;
    (void)unused;
    complete(object, (kvx_status)(int64_t)status);
}

static void refuse_later(nic_read *r, kvx_status status)
{
    world *w = r->reader->proc->w;

    world_at(w, w->t + network_delay(w), refuse, r, (uint64_t)(int64_t)status, 0);
}

/* --- served: the owner sends ---------------------------------------------------------------------- */

static void send_over(nic_read *r)
{
    r->is_send_over = true;
    if (!owner_is_gone(r))
        node_news(r->owner);
}

static void send_step(world *w, void *object, uint64_t unused, uint64_t unused_too)
{
    nic_read *r = object;

    (void)unused;
    (void)unused_too;
    if (r->is_send_over)
        return;
    if (owner_is_gone(r)) {
        complete(r, KVX_PEER_LOST);
        return;
    }
    if (r->ep->domain->is_dead) {
        send_over(r);
        return;
    }
    if (!proc_is_running(r->reader->proc) || !proc_is_running(r->owner->proc)) {
        world_at(w, w->t + 40 * MS, send_step, r, 0, 0); /* its window is full */
        return;
    }
    fetch_bytes(r);
    send_over(r);
    world_at(w, w->t + network_delay(w), land, r, 0, 0);
}

static void send_closed(world *w, void *object, uint64_t unused, uint64_t unused_too)
{
    nic_read *r = object;

    (void)w;
    (void)unused;
    (void)unused_too;
    if (r->is_send_over)
        return;
    send_over(r);
    refuse_later(r, KVX_READ_FAILED);
}

void nic_close_sends(node *n, uint64_t remote_epoch, uint64_t nonce)
{
    world *w = n->proc->w;
    uint64_t at = proc_local(n->proc);

    WORLD_LOG(w, n->proc->name, "closes sends of nonce %llx", (unsigned long long)nonce);
    if (world_is_chaos(w) && world_chance(w, w->moods.hang))
        return;
    for (nic_read *r = n->domain.sends; r != NULL && at != KVX_NEVER; r = r->next_request) {
        if (r->reader->epoch == remote_epoch && r->sub != NULL && r->sub->nonce == nonce)
            world_at(w, at + world_span(w, w->settings.close_ns / 2), send_closed, r, 0, 0);
    }
}

void nic_serve(node *n, nic_read *r)
{
    world *w = n->proc->w;
    uint64_t now = proc_sample(n->proc);

    n->now = now;
    (void)proc_may_stop(n->proc, w->moods.stop_owner);
    kvx_status status = kvx_session_serve_begin(
            n->session, r->reader->epoch, r->sub == NULL ? 0 : r->sub->nonce, now);
    if (status != KVX_OK) {
        refuse_later(r, KVX_REFUSED);
        return;
    }
    watch_serve(r);
    r->is_serving = true;
    r->next_request = n->domain.sends;
    n->domain.sends = r;
    uint64_t at = proc_local(n->proc);
    if (at != KVX_NEVER)
        world_at(w, at + data_time(w), send_step, r, 0, 0);
}

static void request_arrives(world *w, void *object, uint64_t unused, uint64_t unused_too)
{
    nic_read *r = object;

    (void)w;
    (void)unused;
    (void)unused_too;
    if (r->is_dead)
        return;
    if (owner_is_gone(r)) {
        complete(r, KVX_PEER_LOST);
        return;
    }
    r->next_request = NULL;
    *r->owner->domain.requests_last = r;
    r->owner->domain.requests_last = &r->next_request;
    node_news(r->owner);
}

void nic_report_sends(kvx_domain *domain)
{
    node *n = domain->node;
    nic_read **at = &domain->sends;

    while (*at != NULL) {
        nic_read *r = *at;
        if (!r->is_send_over) {
            at = &r->next_request;
            continue;
        }
        *at = r->next_request;
        r->is_serving = false;
        n->now = proc_sample(n->proc);
        kvx_session_serve_end(
                n->session, r->reader->epoch, r->sub == NULL ? 0 : r->sub->nonce, n->now);
    }
}

/* --- posting --------------------------------------------------------------------------------------- */

static void posted(world *w, void *object, uint64_t unused, uint64_t unused_too)
{
    nic_read *r = object;

    (void)unused;
    (void)unused_too;
    if (r->is_dead)
        return;
    r->is_posted = true;
    r->posted = w->t;
    watch_posted(r);
    if (w->set->lane == KVX_READ_SERVED)
        world_at(w, w->t + network_delay(w), request_arrives, r, 0, 0);
    else
        world_at(w, w->t + data_time(w), fetch, r, 0, 0);
}

static nic_read *read_make(kvx_ep *ep, const kvx_read *wanted)
{
    node *n = ep->domain->node;
    nic_read *r = world_take(n->proc->w, sizeof(*r));

    r->id = wanted->id;
    r->ep = ep;
    r->reader = n;
    r->sub = engine_find(n, wanted->cookie);
    r->owner = &ep->remote->nodes[ep->remote_node];
    r->owner_epoch = ep->remote_epoch;
    r->owner_life = r->owner->epoch == ep->remote_epoch ? r->owner->life : 0;
    r->region = wanted->rkey->region;
    r->offset = wanted->remote_off;
    r->length = wanted->length_bytes;
    r->segment_count = wanted->segment_count;
    memcpy(r->segments, wanted->segments, wanted->segment_count * sizeof(*r->segments));
    r->sampled = r->sub == NULL ? n->proc->w->t : r->sub->sampled;
    return r;
}

void nic_post(kvx_ep *ep, const kvx_read *wanted)
{
    nic_read *r = read_make(ep, wanted);
    world *w = r->reader->proc->w;
    uint64_t at = proc_local(r->reader->proc);

    r->ep->domain->in_flight++;
    if (r->sub != NULL)
        r->sub->active_reads++;
    kvx_list_append(&w->reads, &r->link);
    watch_posting(r);
    if (at <= w->t)
        posted(w, r, 0, 0);
    else
        world_at(w, at, posted, r, 0, 0);
    if (r->sub != NULL && world_is_chaos(w) && world_chance(w, w->moods.cut_pull))
        network_cut(r->sub->end->conn, world_chance(w, 400));
}
