/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of tasks: done, failed, held, quiet. A job is not touched after it was reported
 * done or quiet. */
#include "pull/internal.h"

#include <inttypes.h>

#include "base/log.h"

/* Pages of a job, counted once per region. */
static uint64_t pages_count(const kvx_puller *puller, const kvx_pull_job *job)
{
    uint64_t pages = 0;

    for (uint32_t i = 0; i < puller->pool->region_count; i++) {
        const uint32_t component = puller->pool->regions[i].component;
        if (component < job->component_count)
            pages += job->tables[component].page_count;
    }
    return pages;
}

static void task_done(kvx_puller *puller, kvx_pull_task *task)
{
    kvx_pull_job *job = task->job;
    kvx_pull_stats stats = task->stats;

    stats.pages = pages_count(puller, job);
    kvx_count(&puller->metrics->pages_read, stats.pages);
    kvx_task_free(puller, task);
    puller->hooks.done(puller->hooks.arg, job, &stats);
}

static void task_quiet(kvx_puller *puller, kvx_pull_task *task)
{
    kvx_pull_job *job = task->job;
    const kvx_pull_stats stats = task->stats;

    kvx_task_free(puller, task);
    puller->hooks.quiet(puller->hooks.arg, job, &stats);
}

static void task_held(kvx_puller *puller, kvx_pull_task *task)
{
    task->is_held_told = true;
    kvx_count(&puller->metrics->pages_held, 1);
    puller->hooks.held(puller->hooks.arg, task->job);
}

static void stopped_settle(kvx_puller *puller, kvx_pull_task *task)
{
    if (!task->is_stuck && task->reads == 0)
        task_quiet(puller, task);
    else if (task->is_stuck && !task->is_held_told)
        task_held(puller, task);
}

static void task_settle(kvx_puller *puller, kvx_pull_task *task)
{
    if (task->is_stopped) {
        stopped_settle(puller, task);
        return;
    }
    if (task->status != KVX_OK && !task->is_failure_told) {
        task->is_failure_told = true;
        puller->hooks.failed(puller->hooks.arg, task->job, task->status, task->has_page, task->page);
        return;
    }
    if (kvx_task_may_work(task) && task->reads == 0 && kvx_task_is_emitted(puller, task))
        task_done(puller, task);
}

static bool drain_is_over(const kvx_pull_task *task, uint64_t now)
{
    return task->is_stopped && task->reads > 0 && task->path->state == KVX_PATH_OPEN &&
           now >= task->drain_until_ns;
}

static void drain_end(kvx_puller *puller, kvx_pull_task *task, uint64_t now)
{
    kvx_log(KVX_LOG_WARN,
            "pull %016" PRIx64 ": %" PRIu32 " reads did not end within %" PRIu64
            " ms, closing the endpoint of link %" PRIu64,
            task->job->nonce, task->reads, puller->settings.drain_ns / KVX_NS_PER_MS,
            task->path->link);
    kvx_count(&puller->metrics->endpoint_closes, 1);
    puller->is_due = true;
    kvx_path_close(puller, task->path, now);
}

void kvx_tasks_settle(kvx_puller *puller, uint64_t now)
{
    kvx_list_foreach (node, &puller->tasks) {
        task_settle(puller, KVX_LIST_ENTRY(node, kvx_pull_task, node));
    }
    kvx_list_foreach (other, &puller->tasks) {
        kvx_pull_task *task = KVX_LIST_ENTRY(other, kvx_pull_task, node);
        if (drain_is_over(task, now))
            drain_end(puller, task, now);
    }
}
