/* SPDX-License-Identifier: Apache-2.0 */
/* A task until it is planned: its pages are taken, then planned, component after component, in
 * slices. */
#include "pull/internal.h"

#include <stdlib.h>

#define PLAN_VISITS_PER_PAGE 8 /* what a whole plan is charged, about */

void kvx_task_fail(kvx_pull_task *task, kvx_status status)
{
    if (task->status == KVX_OK)
        task->status = status;
}

void kvx_task_fail_at(kvx_pull_task *task, kvx_status status, kvx_page page)
{
    if (task->status != KVX_OK)
        return;
    task->status = status;
    task->page = page;
    task->has_page = true;
}

/* Returns how many pages were taken; 0: the task failed. */
static uint32_t pages_take(kvx_puller *puller, kvx_pull_task *task, uint32_t count_max)
{
    const uint32_t left = task->job->tables[task->component].page_count - task->taken;
    const uint32_t count = left < count_max ? left : count_max;
    kvx_page page = 0;

    const kvx_status st = puller->hooks.take(
            puller->hooks.arg, task->job, task->component, task->taken, count, &page);
    if (st != KVX_OK) {
        kvx_task_fail_at(task, st, page);
        return 0;
    }
    task->taken += count;
    return count;
}

static kvx_status plan_begin(kvx_puller *puller, kvx_pull_task *task)
{
    const uint32_t component = task->component;
    const kvx_plan_params params = {
        .struct_size = sizeof(params),
        .source = task->job->tables[component].source,
        .source_count = task->job->tables[component].source_count,
        .source_skip = task->job->tables[component].source_skip,
        .destination = task->job->tables[component].destination,
        .page_count = task->job->tables[component].page_count,
        .destination_pool_pages = puller->pool->components[component].page_count,
        .source_pool_pages = task->path->remote->components[component].page_count,
    };
    return kvx_plan_begin(&params, &task->plans[component]);
}

/* Returns the page visits left of the budget. Pages that were taken are in the local pool, so that
 * a page at fault is the owner's, not one to name; the plan logs it. */
static uint32_t plan_slice(kvx_puller *puller, kvx_pull_task *task, uint32_t budget)
{
    kvx_plan **plan = &task->plans[task->component];

    kvx_status st = *plan == NULL ? plan_begin(puller, task) : KVX_OK;
    if (st == KVX_OK)
        st = kvx_plan_step(*plan, budget, NULL);
    if (st == KVX_AGAIN)
        return 0;
    if (st != KVX_OK) {
        kvx_task_fail(task, st);
        return budget;
    }
    const uint64_t visits =
            (uint64_t)task->job->tables[task->component].page_count * PLAN_VISITS_PER_PAGE;
    task->component++;
    task->taken = 0;
    return visits < budget ? budget - (uint32_t)visits : 0;
}

static uint32_t component_slice(kvx_puller *puller, kvx_pull_task *task, uint32_t budget)
{
    const uint32_t page_count = task->job->tables[task->component].page_count;

    if (page_count == 0) {
        task->component++;
        return budget;
    }
    if (task->taken < page_count)
        return budget - pages_take(puller, task, budget);
    return plan_slice(puller, task, budget);
}

uint32_t kvx_task_prepare(kvx_puller *puller, kvx_pull_task *task, uint32_t budget_visits)
{
    while (kvx_task_may_work(task) && task->component < task->job->component_count) {
        if (budget_visits == 0)
            return 0;
        budget_visits = component_slice(puller, task, budget_visits);
    }
    if (!kvx_task_may_work(task) || task->is_planned)
        return budget_visits;
    task->is_planned = true;
    puller->hooks.planned(puller->hooks.arg, task->job);
    return budget_visits;
}

static void reposts_give(kvx_puller *puller, kvx_pull_task *task)
{
    kvx_list_foreach (node, &task->reposts) {
        kvx_window_give(&puller->window, KVX_LIST_ENTRY(node, kvx_pull_slot, node));
    }
}

void kvx_task_free(kvx_puller *puller, kvx_pull_task *task)
{
    reposts_give(puller, task);
    for (uint32_t i = 0; i < KVX_COMPONENT_MAX; i++)
        kvx_plan_destroy(&task->plans[i]);
    if (task->path != NULL) {
        task->path->task_count--;
        puller->is_due |= task->path->is_dropped;
    }
    kvx_list_remove(&task->node);
    task->job->pull = NULL;
    free(task);
}
