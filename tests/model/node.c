/* SPDX-License-Identifier: Apache-2.0 */
/* A node: session core, pull engine, pool and card, wired as the library wires them. */
#include "process.h"

#include <stdio.h>
#include <string.h>

#include "engine.h"
#include "network.h"
#include "nic.h"
#include "watch.h"

#define TEARDOWN_STEPS 400

static uint64_t fresh_now(node *n)
{
    n->now = proc_sample(n->proc);
    return n->now;
}

/* --- what the session asks for --------------------------------------------------------------- */

static void on_dial(void *arg, uint64_t peer, const char *address)
{
    node *n = arg;

    if (!n->is_over)
        network_dial(n, peer, address);
}

static void on_send(void *arg, kvx_link_id link, const kvx_message *message)
{
    node *n = arg;

    if (!n->is_over)
        network_send(n, link, message);
}

static void on_close_link(void *arg, kvx_link_id link)
{
    node *n = arg;

    if (!n->is_over)
        network_close(n, link);
}

static void on_connect_data(void *arg, kvx_link_id link, const kvx_hello *remote)
{
    node *n = arg;

    kvx_puller_connect(n->puller, link, remote, 0, n->now);
    n->has_step = true;
}

static void on_drop_data(void *arg, kvx_link_id link)
{
    node *n = arg;

    kvx_puller_drop(n->puller, link);
    n->has_step = true;
}

static void on_close_sends(void *arg, uint64_t remote_epoch, uint64_t nonce)
{
    node *n = arg;

    if (!n->is_over)
        nic_close_sends(n, remote_epoch, nonce);
}

/* --- what the pull engine asks and reports ---------------------------------------------------- */

static kvx_status on_take(void *arg, kvx_pull_job *job, uint32_t component, uint32_t first,
        uint32_t count, kvx_page *page_out)
{
    node *n = arg;

    kvx_status status = kvx_session_job_take(n->session, job, component, first, count, page_out);
    sub *s = engine_find(n, job->nonce);
    if (status == KVX_OK && s != NULL)
        watch_taken(s, first, count);
    return status;
}

static kvx_status on_may_post(void *arg, kvx_pull_job *job)
{
    node *n = arg;
    uint64_t sampled = proc_local(n->proc);
    uint64_t now = fresh_now(n);
    sub *s = engine_find(n, job->nonce);

    if (s != NULL)
        s->sampled = sampled;
    if (!n->is_over)
        (void)proc_may_stop(n->proc, n->proc->w->moods.stop_post);
    return kvx_session_job_may_post(n->session, job, now);
}

/* A report: the process may stop after it looked at the clock. */
static uint64_t report_now(node *n)
{
    uint64_t now = fresh_now(n);

    if (!n->is_over)
        (void)proc_may_stop(n->proc, n->proc->w->moods.stop);
    return now;
}

static void on_planned(void *arg, kvx_pull_job *job)
{
    node *n = arg;

    kvx_session_job_planned(n->session, job, report_now(n));
}

static void on_done(void *arg, kvx_pull_job *job, const kvx_pull_stats *stats)
{
    node *n = arg;

    kvx_session_job_done(n->session, job, stats, report_now(n));
}

static void on_failed(void *arg, kvx_pull_job *job, kvx_status status, bool has_page, kvx_page page)
{
    node *n = arg;

    kvx_session_job_failed(n->session, job, status, has_page, page, report_now(n));
}

static void on_quiet(void *arg, kvx_pull_job *job, const kvx_pull_stats *stats)
{
    node *n = arg;

    kvx_session_job_quiet(n->session, job, stats, report_now(n));
}

static void on_held(void *arg, kvx_pull_job *job)
{
    node *n = arg;

    kvx_session_job_held(n->session, job, report_now(n));
}

static void on_data_ready(
        void *arg, kvx_link_id link, kvx_status status, const char *why, const kvx_ep_info *info)
{
    node *n = arg;

    (void)info;
    kvx_session_data_ready(n->session, link, status, why, report_now(n));
}

/* --- making and ending ------------------------------------------------------------------------ */

void node_describe(
        node *n, kvx_hello *hello_out, uint8_t *blobs, kvx_blob *keys, kvx_hello_region *regions)
{
    static const char *const roles[REGIONS] = { "k", "v" };

    memset(hello_out, 0, sizeof(*hello_out));
    hello_out->version_min = KVX_WIRE_VERSION_MIN;
    hello_out->version_max = KVX_WIRE_VERSION_MAX;
    hello_out->epoch = n->epoch;
    hello_out->rank = n->rank;
    hello_out->ranks = n->proc->node_count;
    snprintf(hello_out->compat, sizeof(hello_out->compat), "%s",
            n->proc->w->compat == NULL ? "model" : n->proc->w->compat);
    hello_out->component_count = 1;
    snprintf(hello_out->components[0].name, KVX_NAME_MAX, "kv");
    snprintf(hello_out->components[0].axis, KVX_NAME_MAX, "token");
    hello_out->components[0].page_tokens = PAGE_TOKENS;
    hello_out->components[0].page_count = n->page_count;
    hello_out->region_count = REGIONS;
    hello_out->regions = regions;
    for (uint32_t i = 0; i < REGIONS; i++) {
        regions[i] = (kvx_hello_region){ .page_bytes = PAGE_BYTES, .page_stride = PAGE_STRIDE };
        snprintf(regions[i].role, KVX_NAME_MAX, "%s", roles[i]);
    }
    kvx_hello_path *path = &hello_out->paths[0];
    hello_out->path_count = 1;
    snprintf(path->transport, KVX_NAME_MAX, "%s", nic_ops.name);
    path->keys = keys;
    size_t length = 0;
    if (nic_ops.address(&n->domain, blobs, KVX_BLOB_MAX, &length) == KVX_OK)
        path->address = (kvx_blob){ blobs, (uint32_t)length };
    for (uint32_t i = 0; i < REGIONS; i++) {
        uint8_t *at = blobs + 64 * (i + 1);
        if (nic_ops.pack_key(n->pool->mrs[i], at, 64, &length) == KVX_OK)
            keys[i] = (kvx_blob){ at, (uint32_t)length };
    }
}

static kvx_status make_pool(node *n)
{
    kvx_component component = { "kv", PAGE_TOKENS, n->page_count, "token" };
    kvx_region regions[REGIONS];

    for (uint32_t i = 0; i < REGIONS; i++) {
        regions[i] = (kvx_region){ 0, i == 0 ? "k" : "v", 0, n->memory[i], PAGE_BYTES, PAGE_STRIDE,
            KVX_MEMORY_HOST };
    }
    kvx_layout layout = { &component, 1, regions, REGIONS };
    KVX_TRY(kvx_pool_create(&layout, &n->pool));
    return kvx_pool_attach(n->pool, &nic_ops, &n->domain);
}

static kvx_status make_puller(node *n)
{
    kvx_puller_params params = {
        .settings = &n->proc->w->settings,
        .ops = &nic_ops,
        .domain = &n->domain,
        .pool = n->pool,
        .metrics = &n->metrics,
        .hooks = { n, on_take, on_may_post, on_planned, on_done, on_failed, on_quiet, on_held,
                on_data_ready },
    };
    return kvx_puller_create(&params, &n->puller);
}

static kvx_status make_session(node *n, uint64_t nonce_seed)
{
    uint8_t blobs[KVX_BLOB_MAX];
    kvx_blob keys[REGIONS];
    kvx_hello_region regions[REGIONS];
    kvx_hello hello;

    node_describe(n, &hello, blobs, keys, regions);
    kvx_session_params params = {
        .settings = &n->proc->w->settings,
        .hello = &hello,
        .pool = n->pool,
        .metrics = &n->metrics,
        .nonce_seed = nonce_seed,
        .sink = { n, on_dial, on_send, on_close_link, on_connect_data, on_drop_data,
                on_close_sends },
    };
    return kvx_session_create(&params, &n->session);
}

void node_create(node *n, proc *p, uint32_t rank, uint32_t pages, uint64_t nonce_seed)
{
    uint64_t life = n->life;
    world *w = p->w;

    memset(n, 0, sizeof(*n));
    n->proc = p;
    n->rank = rank;
    n->life = life + 1;
    n->epoch = UINT64_C(0xe0000000) + ++w->epoch_count;
    n->page_count = pages;
    memset(n->memory, 0x55, sizeof(n->memory));
    nic_domain_init(&n->domain, n);
    n->now = proc_clock(p);
    if (make_pool(n) != KVX_OK || make_puller(n) != KVX_OK || make_session(n, nonce_seed) != KVX_OK)
        watch_broken(w, "I19", "%s: a node cannot be made", p->name);
}

static void hand_orders(node *n, uint64_t now)
{
    kvx_job_order order;
    kvx_pull_job *job;

    while ((job = kvx_session_next_job(n->session, &order)) != NULL) {
        n->has_step = true;
        switch (order) {
        case KVX_JOB_START: kvx_puller_start(n->puller, job, now); break;
        case KVX_JOB_STOP: kvx_puller_stop(n->puller, job, now); break;
        case KVX_JOB_TRUST: kvx_puller_resume(n->puller, job); break;
        }
    }
}

static void lose_links(node *n, uint64_t now)
{
    for (end *e = n->proc->ends; e != NULL; e = e->next) {
        if (e->node == n && !e->is_closed)
            kvx_session_link_lost(n->session, e->link, KVX_PEER_LOST, now);
    }
}

void node_destroy(node *n)
{
    kvx_event ignored;

    if (n->is_over)
        return;
    n->is_over = true;
    nic_domain_died(&n->domain);
    uint64_t now = n->now;
    lose_links(n, now);
    kvx_session_begin_close(n->session, now);
    kvx_session_say_bye(n->session, now);
    for (uint32_t i = 0; i < TEARDOWN_STEPS && !kvx_puller_is_idle(n->puller); i++) {
        now += 50 * MS;
        hand_orders(n, now);
        (void)kvx_puller_step(n->puller, now);
        kvx_session_tick(n->session, now);
    }
    if (!kvx_puller_is_idle(n->puller)) {
        watch_broken(n->proc->w, "I19", "%s: its pull engine does not become idle", n->proc->name);
        return; /* leaks, and says why */
    }
    while (kvx_session_poll(n->session, &ignored))
        continue;
    kvx_puller_destroy(&n->puller);
    kvx_session_destroy(&n->session);
    kvx_pool_destroy(&n->pool);
}

/* --- a node's turns --------------------------------------------------------------------------- */

void node_news(node *n)
{
    n->has_step = true;
    proc_wake(n->proc);
}

static void poll_late(world *w, void *object, uint64_t life, uint64_t unused)
{
    node *n = object;

    (void)w;
    (void)unused;
    if (n->life != life || n->is_over)
        return;
    n->has_poll = true;
    proc_wake(n->proc);
}

void node_poll(node *n)
{
    kvx_event event;

    n->has_poll = false;
    memset(&event, 0, sizeof(event));
    while (kvx_session_poll(n->session, &event)) {
        engine_event(n, &event);
        memset(&event, 0, sizeof(event));
    }
}

void node_called(node *n)
{
    proc *p = n->proc;

    n->has_orders = true;
    engine_joint_step(n);
    if (kvx_session_has_event(n->session)) {
        if (proc_local(p) > p->w->t)
            n->has_poll = true;
        else if (world_is_chaos(p->w) && p->w->moods.is_engine_slow && world_chance(p->w, 256))
            world_at(p->w, p->w->t + world_span(p->w, 20 * MS), poll_late, n, n->life, 0);
        else
            node_poll(n);
    }
    watch_step(n);
}

static void mark_suspects(node *n)
{
    for (kvx_link_id link; kvx_session_next_suspect(n->session, &link);) {
        end *e = network_find(n, link);
        if (e != NULL)
            e->is_suspect = true;
    }
}

void node_tick(node *n, uint64_t now)
{
    n->has_tick = false;
    n->now = now;
    n->is_ticking = true;
    kvx_session_tick(n->session, now);
    n->is_ticking = false;
    mark_suspects(n);
    node_called(n);
    node_reregister(n, now);
}

static void step_again(world *w, void *object, uint64_t life, uint64_t unused)
{
    node *n = object;

    (void)w;
    (void)unused;
    if (n->life == life && !n->is_over)
        node_news(n);
}

void node_step(node *n, uint64_t now)
{
    proc *p = n->proc;

    n->now = now;
    n->has_orders = false;
    hand_orders(n, now);
    if (!n->has_step && kvx_puller_next_due(n->puller) > now)
        return;
    n->has_step = false;
    bool has_more = kvx_puller_step(n->puller, now);
    if (has_more)
        world_at(p->w, proc_local(p) + 2 * US + world_span(p->w, 20 * US), step_again, n, n->life,
                0);
    node_called(n);
    node_reregister(n, now);
}

/* --- another pool ----------------------------------------------------------------------------- */

static void take_new_pool(node *n, uint64_t now)
{
    uint8_t blobs[KVX_BLOB_MAX];
    kvx_blob keys[REGIONS];
    kvx_hello_region regions[REGIONS];
    kvx_hello hello;
    world *w = n->proc->w;

    node_poll(n);
    kvx_puller_destroy(&n->puller);
    kvx_pool_destroy(&n->pool);
    for (pub *p = w->pubs; p != NULL; p = p->next) {
        if (p->node == n && p->life == n->life && p->is_live)
            watch_freed(p, KVX_CLOSED);
    }
    memset(n->memory, 0x66, sizeof(n->memory));
    n->epoch = UINT64_C(0xe0000000) + ++w->epoch_count;
    nic_domain_init(&n->domain, n);
    if (make_pool(n) != KVX_OK || make_puller(n) != KVX_OK) {
        watch_broken(w, "I19", "%s: a new pool cannot be made", n->proc->name);
        return;
    }
    node_describe(n, &hello, blobs, keys, regions);
    n->is_closing = false;
    WORLD_LOG(w, n->proc->name, "has a new pool, epoch %llx", (unsigned long long)n->epoch);
    if (kvx_session_restart(n->session, &hello, n->pool, now) != KVX_OK)
        watch_broken(w, "I19", "%s: the session does not restart", n->proc->name);
    node_called(n);
}

void node_reregister(node *n, uint64_t now)
{
    if (!n->is_closing || n->is_over || proc_local(n->proc) > n->proc->w->t)
        return;
    if (!kvx_session_is_drained(n->session))
        return;
    kvx_session_say_bye(n->session, now);
    n->has_step = true;
    if (kvx_puller_is_idle(n->puller))
        take_new_pool(n, now);
}
