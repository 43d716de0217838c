/* SPDX-License-Identifier: Apache-2.0 */
/* What session, puller and transport want of each other. The sink is called with the lock held,
 * the hooks without it. Each hook samples the clock after it has the lock, so that the sample is
 * not older than what it is about. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "node/node.h"

/* --- the session's sink --- */

static void sink_dial(void *arg, uint64_t peer, const char *address)
{
    kvx_node *node = arg;

    kvx_control_dial(node->control, peer, address);
}

static void sink_send(void *arg, kvx_link_id link, const kvx_message *message)
{
    kvx_node *node = arg;

    kvx_control_send(node->control, link, message);
}

static void sink_close_link(void *arg, kvx_link_id link)
{
    kvx_node *node = arg;

    kvx_control_close_link(node->control, link);
}

static void way_free(kvx_way *way)
{
    kvx_list_remove(&way->in_changed);
    kvx_hello_destroy(&way->remote);
    free(way);
}

/* The hello is copied, because the session may drop it before the progressing thread looks. */
static void sink_connect_data(void *arg, kvx_link_id link, const kvx_hello *remote)
{
    kvx_node *node = arg;
    kvx_way *way = calloc(1, sizeof(*way));

    if (way == NULL)
        goto fail;
    way->link = link;
    way->peer = kvx_control_peer_of(node->control, link);
    if (kvx_hello_copy(remote, &way->remote) != KVX_OK)
        goto fail;
    if (kvx_map_insert(&node->ways, link, way) != KVX_OK)
        goto fail;
    kvx_list_append(&node->ways_changed, &way->in_changed);
    node->has_news = true;
    return;

fail:
    if (way != NULL)
        way_free(way);
    kvx_control_break_link(node->control, link, KVX_NO_MEMORY);
}

static void sink_drop_data(void *arg, kvx_link_id link)
{
    kvx_node *node = arg;
    kvx_way *way = kvx_map_find(&node->ways, link);

    if (way == NULL)
        return;
    if (way->state == KVX_WAY_WANTED) { /* the puller never heard of it */
        (void)kvx_map_remove(&node->ways, link);
        way_free(way);
        return;
    }
    way->state = KVX_WAY_DROPPED;
    if (!kvx_list_is_linked(&way->in_changed))
        kvx_list_append(&node->ways_changed, &way->in_changed);
    node->has_news = true;
}

/* The contract has no call that ends an owner's single operation: the transport ends it when its
 * reader's endpoint dies, and says so with served_end(). Until then the session keeps the pages
 * and tells the engine that they are stuck. */
static void sink_close_sends(void *arg, uint64_t remote_epoch, uint64_t nonce)
{
    (void)arg;
    (void)remote_epoch;
    (void)nonce;
}

kvx_session_sink kvx_node_sink(kvx_node *node)
{
    return (kvx_session_sink){
        .arg = node,
        .dial = sink_dial,
        .send = sink_send,
        .close_link = sink_close_link,
        .connect_data = sink_connect_data,
        .drop_data = sink_drop_data,
        .close_sends = sink_close_sends,
    };
}

/* --- data paths --- */

static void tell_data_ready(kvx_node *node, kvx_link_id link, kvx_status status, const char *why,
        const kvx_ep_info *info)
{
    kvx_node_enter(node);
    kvx_way *way = kvx_map_find(&node->ways, link);
    if (status == KVX_OK && way != NULL && way->state == KVX_WAY_OPENING) {
        way->state = KVX_WAY_OPEN;
        way->info = *info;
    }
    kvx_session_data_ready(node->session, link, status, why, kvx_now());
    kvx_node_leave(node, true);
}

/* Their path that our transport can use. */
static void open_way(kvx_node *node, kvx_link_id link, const kvx_hello *remote)
{
    char why[128];

    for (uint32_t i = 0; i < remote->path_count; i++) {
        if (strcmp(remote->paths[i].transport, node->ops->name) == 0) {
            kvx_puller_connect(node->puller, link, remote, i, kvx_now());
            return;
        }
    }
    (void)snprintf(why, sizeof(why), "transport: ours %s, theirs %s", node->ops->name,
            remote->path_count > 0 ? remote->paths[0].transport : "none");
    tell_data_ready(node, link, KVX_MISMATCH, why, NULL);
}

static bool ways_work_one(kvx_node *node)
{
    kvx_hello *remote = NULL;

    kvx_node_enter(node);
    const bool is_any = !kvx_list_is_empty(&node->ways_changed);
    if (!is_any) {
        kvx_node_leave(node, false);
        return false;
    }
    kvx_way *way = KVX_LIST_ENTRY(node->ways_changed.next, kvx_way, in_changed);
    const kvx_link_id link = way->link;
    kvx_list_remove(&way->in_changed);
    if (way->state == KVX_WAY_DROPPED) {
        (void)kvx_map_remove(&node->ways, link);
        way_free(way);
    } else {
        way->state = KVX_WAY_OPENING;
        remote = way->remote;
        way->remote = NULL;
    }
    kvx_node_leave(node, false);

    if (remote != NULL)
        open_way(node, link, remote);
    else
        kvx_puller_drop(node->puller, link);
    kvx_hello_destroy(&remote);
    return true;
}

void kvx_node_ways_work(kvx_node *node)
{
    while (ways_work_one(node))
        continue;
}

void kvx_node_ways_fini(kvx_node *node)
{
    size_t position = 0;

    for (kvx_way *way; (way = kvx_map_next(&node->ways, &position)) != NULL;)
        way_free(way);
    kvx_map_fini(&node->ways);
}

/* --- the puller's hooks --- */

static kvx_status hook_take(void *arg, kvx_pull_job *job, uint32_t component, uint32_t first,
        uint32_t count, kvx_page *page_out)
{
    kvx_node *node = arg;

    kvx_node_enter(node);
    const kvx_status status =
            kvx_session_job_take(node->session, job, component, first, count, page_out);
    kvx_node_leave(node, false);
    return status;
}

static kvx_status hook_may_post(void *arg, kvx_pull_job *job)
{
    kvx_node *node = arg;

    kvx_node_enter(node);
    const kvx_status status = kvx_session_job_may_post(node->session, job, kvx_now());
    kvx_node_leave(node, status != KVX_OK);
    return status;
}

static void hook_planned(void *arg, kvx_pull_job *job)
{
    kvx_node *node = arg;

    kvx_node_enter(node);
    kvx_session_job_planned(node->session, job, kvx_now());
    kvx_node_leave(node, false);
}

static void hook_done(void *arg, kvx_pull_job *job, const kvx_pull_stats *stats)
{
    kvx_node *node = arg;

    kvx_node_enter(node);
    kvx_session_job_done(node->session, job, stats, kvx_now());
    kvx_node_leave(node, true);
}

static void hook_failed(
        void *arg, kvx_pull_job *job, kvx_status status, bool has_page, kvx_page page)
{
    kvx_node *node = arg;

    kvx_node_enter(node);
    kvx_session_job_failed(node->session, job, status, has_page, page, kvx_now());
    kvx_node_leave(node, true);
}

static void hook_quiet(void *arg, kvx_pull_job *job, const kvx_pull_stats *stats)
{
    kvx_node *node = arg;

    kvx_node_enter(node);
    kvx_session_job_quiet(node->session, job, stats, kvx_now());
    kvx_node_leave(node, true);
}

static void hook_held(void *arg, kvx_pull_job *job)
{
    kvx_node *node = arg;

    kvx_node_enter(node);
    kvx_session_job_held(node->session, job, kvx_now());
    kvx_node_leave(node, true);
}

static void hook_data_ready(
        void *arg, kvx_link_id link, kvx_status status, const char *why, const kvx_ep_info *info)
{
    tell_data_ready(arg, link, status, why, info);
}

kvx_puller_hooks kvx_node_puller_hooks(kvx_node *node)
{
    return (kvx_puller_hooks){
        .arg = node,
        .take = hook_take,
        .may_post = hook_may_post,
        .planned = hook_planned,
        .done = hook_done,
        .failed = hook_failed,
        .quiet = hook_quiet,
        .held = hook_held,
        .data_ready = hook_data_ready,
    };
}

/* --- the transport's calls --- */

static const char *domain_setting(void *arg, const char *key)
{
    const kvx_node *node = arg;

    return kvx_config_transport_setting(node->config, node->ops->name, key);
}

static void domain_completed(void *arg, uint64_t id, kvx_status status)
{
    kvx_node *node = arg;

    kvx_puller_completed(node->puller, id, status);
}

static kvx_status domain_authorize(void *arg, const kvx_served_range *range)
{
    kvx_node *node = arg;

    kvx_node_enter(node);
    const kvx_status status =
            kvx_session_serve_begin(node->session, range->peer, range->cookie, kvx_now());
    kvx_node_leave(node, false);
    return status;
}

static void domain_served_end(void *arg, uint64_t peer, uint64_t cookie)
{
    kvx_node *node = arg;

    kvx_node_enter(node);
    kvx_session_serve_end(node->session, peer, cookie, kvx_now());
    kvx_node_leave(node, true);
}

void kvx_node_domain_params(kvx_node *node, uint64_t epoch, kvx_domain_params *params_out)
{
    *params_out = (kvx_domain_params){
        .struct_size = sizeof(*params_out),
        .identity = epoch,
        .bind = node->bind,
        .setting = domain_setting,
        .completed = domain_completed,
        .authorize = domain_authorize,
        .served_end = domain_served_end,
        .arg = node,
    };
}
