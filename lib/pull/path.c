/* SPDX-License-Identifier: Apache-2.0 */
/* The path to a remote node: connect, probe, import its keys, and the same again on a new
 * endpoint when one had to be closed. */
#include "pull/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#define LATE_RETRY_NS (10 * KVX_NS_PER_MS)

static bool names_match(const kvx_pool *pool, const kvx_region *ours, const kvx_hello *remote,
        const kvx_hello_region *theirs)
{
    return ours->layer == theirs->layer && theirs->component < remote->component_count &&
           strcmp(ours->role, theirs->role) == 0 &&
           strcmp(pool->components[ours->component].name,
                   remote->components[theirs->component].name) == 0;
}

/* Bytes that a remote region spans, as kvx_region_span(); false: its numbers make no sense. */
static bool remote_span(const kvx_hello *remote, const kvx_hello_region *region, uint64_t *span_out)
{
    const uint64_t page_count = remote->components[region->component].page_count;
    uint64_t span;

    if (page_count == 0 || region->page_stride < region->page_bytes)
        return false;
    if (__builtin_mul_overflow(page_count - 1, region->page_stride, &span))
        return false;
    return !__builtin_add_overflow(span, region->page_bytes, span_out);
}

/* Both sides usually list their regions in the same order: the search begins behind the last
 * match. */
static bool region_find(const kvx_pool *pool, const kvx_region *ours, const kvx_hello *remote,
        uint32_t begin, uint32_t *index_out)
{
    for (uint32_t i = 0; i < remote->region_count; i++) {
        const uint32_t index = (uint32_t)(((uint64_t)begin + i) % remote->region_count);
        if (names_match(pool, ours, remote, &remote->regions[index])) {
            *index_out = index;
            return true;
        }
    }
    return false;
}

/* The handshake has matched the layouts; this only looks where the same region is. */
static kvx_status regions_match(const kvx_pool *pool, kvx_pull_path *path)
{
    uint32_t index = UINT32_MAX;
    uint64_t span;

    for (uint32_t i = 0; i < pool->region_count; i++) {
        const kvx_region *ours = &pool->regions[i];
        if (region_find(pool, ours, path->remote, index + 1, &index) &&
                ours->component == path->remote->regions[index].component &&
                ours->page_bytes == path->remote->regions[index].page_bytes &&
                remote_span(path->remote, &path->remote->regions[index], &span)) {
            path->remote_regions[i] = index;
            continue;
        }
        (void)snprintf(path->why, sizeof(path->why),
                "region %s layer %" PRIu32 " of component %s does not match", ours->role,
                ours->layer, pool->components[ours->component].name);
        return KVX_MISMATCH;
    }
    return KVX_OK;
}

static kvx_status remote_check(const kvx_pool *pool, kvx_pull_path *path)
{
    if (path->remote_path < path->remote->path_count &&
            path->remote->paths[path->remote_path].keys != NULL)
        return regions_match(pool, path);
    (void)snprintf(path->why, sizeof(path->why), "it has no path %" PRIu32, path->remote_path);
    return KVX_UNREACHABLE;
}

void kvx_path_free(kvx_pull_path *path)
{
    if (path == NULL)
        return;
    kvx_list_remove(&path->node);
    kvx_hello_destroy(&path->remote);
    free(path->remote_regions);
    free(path->rkeys);
    free(path);
}

static kvx_status path_create(const kvx_puller *puller, kvx_link_id link, const kvx_hello *remote,
        uint32_t remote_path, kvx_pull_path **path_out)
{
    const size_t region_count = puller->pool->region_count;

    kvx_pull_path *path = calloc(1, sizeof(*path));
    KVX_ENSURE(path != NULL, KVX_NO_MEMORY);
    path->link = link;
    path->remote_path = remote_path;
    kvx_list_init(&path->reads);
    path->remote_regions = calloc(region_count, sizeof(*path->remote_regions));
    path->rkeys = calloc(region_count, sizeof(kvx_rkey *));
    if (path->remote_regions == NULL || path->rkeys == NULL ||
            kvx_hello_copy(remote, &path->remote) != KVX_OK)
        goto fail;
    *path_out = path;
    return KVX_OK;

fail:
    kvx_path_free(path);
    return KVX_NO_MEMORY;
}

/* There is no memory for a path: keep at least the word that is owed. */
static void link_refuse(kvx_puller *puller, kvx_link_id link)
{
    kvx_log(KVX_LOG_ERROR, "link %" PRIu64 ": no memory for its data path", link);
    if (puller->refused_link_count < puller->settings.peers_max)
        puller->refused_links[puller->refused_link_count++] = link;
}

void kvx_path_want(kvx_puller *puller, kvx_pull_path *path, uint64_t now)
{
    path->state = KVX_PATH_WANTED;
    path->status = KVX_OK;
    path->probe_until_ns = now + KVX_PULL_PROBE_NS;
    path->why[0] = '\0';
    puller->is_due = true;
}

void kvx_puller_connect(kvx_puller *puller, kvx_link_id link, const kvx_hello *remote,
        uint32_t path_index, uint64_t now)
{
    kvx_pull_path *path = NULL;

    puller->is_due = true;
    if (path_create(puller, link, remote, path_index, &path) != KVX_OK) {
        link_refuse(puller, link);
        return;
    }
    kvx_list_append(&puller->paths, &path->node);
    kvx_path_want(puller, path, now);
}

static kvx_pull_path *path_find(const kvx_puller *puller, kvx_link_id link)
{
    kvx_list_foreach (node, &puller->paths) {
        kvx_pull_path *path = KVX_LIST_ENTRY(node, kvx_pull_path, node);
        if (path->link == link)
            return path;
    }
    return NULL;
}

/* A path that broke after it was proven gets another try for each new task. */
static void path_retry(kvx_puller *puller, kvx_pull_path *path, uint64_t now)
{
    if (!path->was_ready || path->status == KVX_OK)
        return;
    if (path->state == KVX_PATH_BROKEN)
        kvx_path_want(puller, path, now);
    else if (path->state == KVX_PATH_CLOSING)
        path->status = KVX_OK;
}

kvx_pull_path *kvx_path_find_for(kvx_puller *puller, kvx_pull_task *task, uint64_t now)
{
    kvx_pull_path *path = path_find(puller, task->job->link);

    if (path == NULL || path->is_dropped) {
        kvx_task_fail(task, KVX_PEER_LOST);
        return NULL;
    }
    path_retry(puller, path, now);
    if (path->is_late)
        kvx_task_fail(task, KVX_UNREACHABLE);
    else if (path->state == KVX_PATH_BROKEN)
        kvx_task_fail(task, path->status);
    return path;
}

void kvx_puller_drop(kvx_puller *puller, kvx_link_id link)
{
    kvx_pull_path *path = path_find(puller, link);

    puller->is_due = true;
    if (path != NULL)
        path->is_dropped = true;
    for (uint32_t i = puller->refused_link_count; i-- > 0;) {
        if (puller->refused_links[i] == link)
            puller->refused_links[i] = puller->refused_links[--puller->refused_link_count];
    }
}

static void path_answer(
        kvx_puller *puller, kvx_pull_path *path, kvx_status status, const kvx_ep_info *info)
{
    if (path->is_answered || path->is_dropped)
        return;
    path->is_answered = true;
    path->was_ready = status == KVX_OK;
    puller->hooks.data_ready(puller->hooks.arg, path->link, status, path->why, info);
}

/* It cannot be opened. Nothing is posted on it: who waits for it is told before its endpoint is
 * closed. */
static void path_fail(kvx_puller *puller, kvx_pull_path *path, kvx_status status, uint64_t now)
{
    path->status = status;
    if (path->why[0] == '\0')
        (void)snprintf(path->why, sizeof(path->why), "%s", kvx_status_text(status));
    kvx_log(KVX_LOG_WARN, "link %" PRIu64 ": no data path: %s", path->link, path->why);
    path_answer(puller, path, status, NULL);
    kvx_path_fail_tasks(puller, path, status);
    kvx_path_close(puller, path, now);
}

static void path_connect(kvx_puller *puller, kvx_pull_path *path, uint64_t now)
{
    kvx_status st = path->is_dropped ? KVX_PEER_LOST : remote_check(puller->pool, path);

    if (st == KVX_OK) {
        const kvx_blob *address = &path->remote->paths[path->remote_path].address;
        st = puller->ops->connect(puller->domain, address->data, address->size, path->why,
                sizeof(path->why), &path->ep);
    }
    if (st != KVX_OK) {
        path_fail(puller, path, st, now);
        return;
    }
    path->state = KVX_PATH_PROBING;
    puller->is_due = true;
}

static kvx_status keys_import(kvx_puller *puller, kvx_pull_path *path)
{
    for (uint32_t i = 0; i < puller->pool->region_count; i++) {
        const uint32_t remote = path->remote_regions[i];
        const kvx_blob *key = &path->remote->paths[path->remote_path].keys[remote];
        uint64_t span = 0;

        KVX_ENSURE(remote_span(path->remote, &path->remote->regions[remote], &span), KVX_MISMATCH);
        KVX_TRY(puller->ops->import_key(path->ep, key->data, key->size, span, &path->rkeys[i]));
    }
    return KVX_OK;
}

static void path_probe(kvx_puller *puller, kvx_pull_path *path, uint64_t now)
{
    kvx_ep_info info = { 0 };

    kvx_status st = puller->ops->probe(path->ep, path->why, sizeof(path->why), &info);
    if (st == KVX_AGAIN) {
        if (now < path->probe_until_ns)
            return;
        (void)snprintf(path->why, sizeof(path->why), "its data path did not answer within 1 s");
        st = KVX_PEER_LOST; /* it may only have been stopped: worth another try */
    } else if (st == KVX_OK) {
        path->why[0] = '\0';
        st = keys_import(puller, path);
    }
    if (st != KVX_OK) {
        path_fail(puller, path, st, now);
        return;
    }
    path->state = KVX_PATH_OPEN;
    path_answer(puller, path, KVX_OK, &info);
}

/* Nobody needs it any more. */
static void path_end(kvx_puller *puller, kvx_pull_path *path, uint64_t now)
{
    if (path->ep == NULL)
        kvx_path_free(path);
    else if (path->state == KVX_PATH_CLOSING)
        kvx_path_close_step(puller, path, now);
    else
        kvx_path_close(puller, path, now);
}

static void path_step(kvx_puller *puller, kvx_pull_path *path, uint64_t now)
{
    if (path->is_dropped && path->task_count == 0) {
        path_end(puller, path, now);
        return;
    }
    switch (path->state) {
    case KVX_PATH_WANTED: path_connect(puller, path, now); break;
    case KVX_PATH_PROBING: path_probe(puller, path, now); break;
    case KVX_PATH_CLOSING: kvx_path_close_step(puller, path, now); break;
    case KVX_PATH_OPEN:
        if (path->is_dead && kvx_list_is_empty(&path->reads))
            kvx_path_close(puller, path, now);
        break;
    case KVX_PATH_BROKEN: break;
    }
}

void kvx_paths_step(kvx_puller *puller, uint64_t now)
{
    while (puller->refused_link_count > 0) {
        const kvx_link_id link = puller->refused_links[--puller->refused_link_count];
        puller->hooks.data_ready(
                puller->hooks.arg, link, KVX_NO_MEMORY, kvx_status_text(KVX_NO_MEMORY), NULL);
    }
    kvx_list_foreach (node, &puller->paths) {
        path_step(puller, KVX_LIST_ENTRY(node, kvx_pull_path, node), now);
    }
}

uint64_t kvx_path_due(const kvx_pull_path *path, uint64_t now)
{
    if (path->state == KVX_PATH_PROBING)
        return now + KVX_PULL_RETRY_NS;
    if (path->state == KVX_PATH_CLOSING)
        return now + (path->is_late ? LATE_RETRY_NS : KVX_PULL_RETRY_NS);
    return KVX_NEVER;
}
