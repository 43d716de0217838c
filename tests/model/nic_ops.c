/* SPDX-License-Identifier: Apache-2.0 */
#include "nic.h"

#include <string.h>

#include "network.h"
#include "process.h"
#include "watch.h"

/* What an address and a key say. */
typedef struct nic_name {
    uint64_t epoch;
    uint64_t length;
    uint32_t proc;
    uint32_t node;
    uint32_t region;
    uint32_t unused;
} nic_name;

static kvx_status nic_open(const kvx_domain_params *params, kvx_domain **domain_out)
{
    (void)params;
    (void)domain_out;
    return KVX_UNSUPPORTED;
}

static void nic_close(kvx_domain *domain)
{
    (void)domain;
}

static void nic_query(const kvx_domain *domain, kvx_domain_limits *limits_out)
{
    *limits_out = (kvx_domain_limits){
        .read_bytes_max = PAGES_MAX * PAGE_STRIDE,
        .segments_max = domain->segments_max,
        .reads_in_flight_max = domain->window,
        .memory_kinds = 1,
    };
}

static kvx_status nic_address(kvx_domain *domain, void *buffer, size_t size, size_t *length_out)
{
    nic_name name = {
        .epoch = domain->epoch, .proc = domain->node->proc->index, .node = domain->node->rank
    };

    KVX_ENSURE(size >= sizeof(name), KVX_NO_SPACE);
    memcpy(buffer, &name, sizeof(name));
    *length_out = sizeof(name);
    return KVX_OK;
}

static kvx_status nic_connect(kvx_domain *domain, const void *address, size_t length, char *why,
        size_t why_size, kvx_ep **ep_out)
{
    world *w = domain->node->proc->w;
    nic_name name;

    KVX_ENSURE(length == sizeof(name), KVX_PROTOCOL);
    memcpy(&name, address, sizeof(name));
    if (domain->is_dead || (world_is_chaos(w) && world_chance(w, 4))) {
        if (why_size > 0)
            why[0] = '\0';
        return KVX_UNREACHABLE;
    }
    kvx_ep *ep = world_take(w, sizeof(*ep));
    uint64_t local = proc_local(domain->node->proc);
    ep->domain = domain;
    ep->remote = &w->procs[name.proc];
    ep->remote_node = name.node;
    ep->remote_epoch = name.epoch;
    ep->ready_at = local == KVX_NEVER ? KVX_NEVER : local + network_delay(w);
    *ep_out = ep;
    return KVX_OK;
}

static kvx_status nic_probe(kvx_ep *ep, char *why, size_t why_size, kvx_ep_info *info_out)
{
    const node *remote = &ep->remote->nodes[ep->remote_node];

    (void)why;
    (void)why_size;
    if (ep->domain->is_dead || remote->is_over || remote->epoch != ep->remote_epoch ||
            ep->remote->w->t < ep->ready_at)
        return KVX_AGAIN;
    memset(info_out, 0, sizeof(*info_out));
    info_out->read_mode = ep->remote->w->set->lane;
    return KVX_OK;
}

static void close_done(world *w, void *object, uint64_t unused, uint64_t unused_too)
{
    kvx_ep *ep = object;

    (void)unused;
    (void)unused_too;
    if (ep->is_closed || ep->domain->is_dead)
        return;
    ep->is_closed = true;
    ep->is_hung = false;
    nic_kill_reads(w, ep, NULL);
    nic_forget_done(ep);
    WORLD_LOG(w, ep->domain->node->proc->name, "endpoint is closed");
    node_news(ep->domain->node);
}

static void close_begin(kvx_ep *ep)
{
    world *w = ep->domain->node->proc->w;
    uint64_t at = proc_local(ep->domain->node->proc);
    uint64_t close_ns = w->settings.close_ns;

    ep->is_closing = true;
    if (at == KVX_NEVER)
        return;
    if (w->is_scripted) {
        ep->is_hung = w->script_hang > close_ns;
        at += w->script_hang + w->script_delay;
    } else if (world_is_chaos(w) && world_chance(w, w->moods.hang)) {
        ep->is_hung = true;
        WORLD_LOG(w, ep->domain->node->proc->name, "endpoint's close HANGS");
        if (world_chance(w, 512))
            return;
        at += close_ns + world_span(w, w->settings.lease_ns);
    } else {
        at += world_span(w, world_chance(w, 256) ? close_ns * 9 / 10 : close_ns / 10);
    }
    world_at(w, at, close_done, ep, 0, 0);
}

static kvx_status nic_disconnect(kvx_ep *ep)
{
    world *w = ep->domain->node->proc->w;

    if (ep->keys != 0)
        watch_broken(w, "I19", "an endpoint is closed before its keys are forgotten");
    if (ep->domain->is_dead) {
        nic_kill_reads(w, ep, NULL);
        return KVX_OK;
    }
    if (!ep->is_closing)
        close_begin(ep);
    return ep->is_closed ? KVX_OK : KVX_AGAIN;
}

static kvx_status nic_reg(kvx_domain *domain, void *base, uint64_t length_bytes,
        kvx_memory_kind kind, kvx_mr **mr_out)
{
    kvx_mr *mr = world_take(domain->node->proc->w, sizeof(*mr));

    (void)kind;
    *mr = (kvx_mr){ domain, base, length_bytes, domain->regions++ };
    *mr_out = mr;
    return KVX_OK;
}

static void nic_unreg(kvx_mr *mr)
{
    (void)mr;
}

static kvx_status nic_pack_key(kvx_mr *mr, void *buffer, size_t size, size_t *length_out)
{
    nic_name name = { .epoch = mr->domain->epoch, .length = mr->length, .region = mr->region };

    KVX_ENSURE(size >= sizeof(name), KVX_NO_SPACE);
    memcpy(buffer, &name, sizeof(name));
    *length_out = sizeof(name);
    return KVX_OK;
}

static kvx_status nic_import_key(
        kvx_ep *ep, const void *key, size_t key_length, uint64_t length_bytes, kvx_rkey **rkey_out)
{
    nic_name name;

    KVX_ENSURE(key_length == sizeof(name), KVX_PROTOCOL);
    memcpy(&name, key, sizeof(name));
    KVX_ENSURE(name.length == length_bytes, KVX_INVALID);
    kvx_rkey *rkey = world_take(ep->domain->node->proc->w, sizeof(*rkey));
    *rkey = (kvx_rkey){ ep, name.region, name.length };
    ep->keys++;
    *rkey_out = rkey;
    return KVX_OK;
}

static void nic_forget_key(kvx_rkey *rkey)
{
    if (rkey != NULL)
        rkey->ep->keys--;
}

static kvx_status nic_get(kvx_ep *ep, const kvx_read *reads, uint32_t count, uint32_t *taken_out)
{
    world *w = ep->domain->node->proc->w;
    uint32_t taken = 0;

    if (ep->is_closing)
        watch_broken(w, "I19", "a read is posted on an endpoint that closes");
    if (ep->domain->is_dead)
        return KVX_PEER_LOST;
    while (taken < count && ep->domain->in_flight < ep->domain->window) {
        const kvx_read *wanted = &reads[taken];
        if (wanted->segment_count > SEGMENTS_MAX ||
                wanted->remote_off + wanted->length_bytes > wanted->rkey->length)
            return KVX_INVALID; /* nothing in this world asks for it */
        nic_post(ep, wanted);
        taken++;
        if (world_is_chaos(w) && world_chance(w, 256))
            break;
    }
    if (taken == 0)
        return KVX_AGAIN;
    *taken_out = taken;
    return KVX_OK;
}

static bool nic_progress(kvx_domain *domain)
{
    node *n = domain->node;

    if (domain->is_dead)
        return false;
    nic_report_sends(domain);
    while (domain->requests != NULL) {
        nic_read *r = domain->requests;
        domain->requests = r->next_request;
        if (domain->requests == NULL)
            domain->requests_last = &domain->requests;
        if (!r->is_dead)
            nic_serve(n, r);
    }
    for (uint32_t i = 0; i < 4 && domain->done != NULL; i++) {
        nic_read *r = domain->done;
        domain->done = r->next_done;
        if (domain->done == NULL)
            domain->done_last = &domain->done;
        domain->in_flight--;
        kvx_puller_completed(n->puller, r->id, r->status);
    }
    return nic_has_news(domain);
}

static int nic_event_fd(kvx_domain *domain)
{
    (void)domain;
    return -1;
}

static kvx_status nic_arm(kvx_domain *domain)
{
    (void)domain;
    return KVX_OK;
}

const kvx_transport_ops nic_ops = {
    .size = sizeof(kvx_transport_ops),
    .name = "simulated",
    .help = "reads that run whatever the processes do",
    .open = nic_open,
    .close = nic_close,
    .query = nic_query,
    .address = nic_address,
    .connect = nic_connect,
    .probe = nic_probe,
    .disconnect = nic_disconnect,
    .reg = nic_reg,
    .unreg = nic_unreg,
    .pack_key = nic_pack_key,
    .import_key = nic_import_key,
    .forget_key = nic_forget_key,
    .get = nic_get,
    .progress = nic_progress,
    .event_fd = nic_event_fd,
    .arm = nic_arm,
};
