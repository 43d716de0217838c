/* SPDX-License-Identifier: Apache-2.0 */
/* Closing an endpoint. Until disconnect() has returned KVX_OK its reads may still write, so none
 * of them is given up or posted again before; a close that hangs gives them up without that word,
 * and then their tasks stay stuck until it comes. */
#include "pull/internal.h"

#include <inttypes.h>

#include "base/log.h"

static void keys_forget(kvx_puller *puller, kvx_pull_path *path)
{
    for (uint32_t i = 0; i < puller->pool->region_count; i++) {
        if (path->rkeys[i] == NULL)
            continue;
        puller->ops->forget_key(path->rkeys[i]);
        path->rkeys[i] = NULL;
    }
}

/* Nothing writes for them any more: tasks that go on post them again. */
static void reads_return(kvx_puller *puller, kvx_pull_path *path)
{
    kvx_list_foreach (node, &path->reads) {
        kvx_pull_slot *slot = KVX_LIST_ENTRY(node, kvx_pull_slot, node);
        kvx_pull_task *task = slot->task;
        kvx_slot_unpost(puller, slot);
        if (kvx_task_may_work(task))
            kvx_list_append(&task->reposts, &slot->node);
        else
            kvx_window_give(&puller->window, slot);
    }
}

/* Take the reads out of the window, which other paths need, without knowing what becomes of
 * them. */
static void reads_give_up(kvx_puller *puller, kvx_pull_path *path)
{
    kvx_list_foreach (node, &path->reads) {
        kvx_pull_slot *slot = KVX_LIST_ENTRY(node, kvx_pull_slot, node);
        slot->task->is_stuck = true;
        kvx_task_fail(slot->task, KVX_READ_FAILED);
        kvx_slot_unpost(puller, slot);
        kvx_window_give(&puller->window, slot);
    }
}

void kvx_path_fail_tasks(kvx_puller *puller, const kvx_pull_path *path, kvx_status status)
{
    kvx_list_foreach (node, &puller->tasks) {
        kvx_pull_task *task = KVX_LIST_ENTRY(node, kvx_pull_task, node);
        if (task->path == path)
            kvx_task_fail(task, status);
    }
}

static void close_complete(kvx_puller *puller, kvx_pull_path *path, uint64_t now)
{
    path->ep = NULL;
    path->is_dead = false;
    path->is_late = false;
    reads_return(puller, path);
    kvx_list_foreach (node, &puller->tasks) {
        kvx_pull_task *task = KVX_LIST_ENTRY(node, kvx_pull_task, node);
        if (task->path == path)
            task->is_stuck = false;
    }
    if (path->status == KVX_OK) {
        kvx_path_want(puller, path, now);
        return;
    }
    path->state = KVX_PATH_BROKEN;
    puller->is_due = true;
    kvx_path_fail_tasks(puller, path, path->status);
}

static void close_judge(kvx_puller *puller, kvx_pull_path *path, uint64_t now)
{
    if (path->is_late || now < path->close_since_ns + puller->settings.close_ns)
        return;
    path->is_late = true;
    puller->is_due = true;
    kvx_log(KVX_LOG_ERROR,
            "link %" PRIu64 ": closing its endpoint takes longer than %" PRIu64
            " ms, the pages of its reads are held",
            path->link, puller->settings.close_ns / KVX_NS_PER_MS);
    reads_give_up(puller, path);
    kvx_path_fail_tasks(puller, path, KVX_UNREACHABLE);
}

void kvx_path_close_step(kvx_puller *puller, kvx_pull_path *path, uint64_t now)
{
    if (path->ep == NULL || puller->ops->disconnect(path->ep) == KVX_OK)
        close_complete(puller, path, now);
    else
        close_judge(puller, path, now);
}

void kvx_path_close(kvx_puller *puller, kvx_pull_path *path, uint64_t now)
{
    path->state = KVX_PATH_CLOSING;
    path->close_since_ns = now;
    keys_forget(puller, path);
    kvx_path_close_step(puller, path, now);
}
