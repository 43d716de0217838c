/* SPDX-License-Identifier: Apache-2.0 */
/* The engine itself: what is asked of it, and its steps. */
#include "pull/internal.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t at_least_one(uint64_t value)
{
    return value == 0 ? 1 : value;
}

static kvx_status puller_size(kvx_puller *puller)
{
    const kvx_settings *settings = &puller->settings;
    kvx_domain_limits limits = { 0 };

    puller->ops->query(puller->domain, &limits);
    const uint64_t window_bytes = at_least_one(settings->window_bytes);
    puller->read_bytes_max = at_least_one(
            smaller(smaller(settings->read_bytes_max, limits.read_bytes_max), window_bytes));
    const uint64_t slot_count =
            at_least_one(smaller(settings->window_reads, limits.reads_in_flight_max));
    puller->refused_links =
            calloc(at_least_one(settings->peers_max), sizeof(*puller->refused_links));
    KVX_ENSURE(puller->refused_links != NULL, KVX_NO_MEMORY);
    return kvx_window_init(&puller->window, (uint32_t)slot_count, window_bytes);
}

kvx_status kvx_puller_create(const kvx_puller_params *params, kvx_puller **puller_out)
{
    kvx_puller *puller = calloc(1, sizeof(*puller));
    KVX_ENSURE(puller != NULL, KVX_NO_MEMORY);

    puller->settings = *params->settings;
    puller->ops = params->ops;
    puller->domain = params->domain;
    puller->pool = params->pool;
    puller->metrics = params->metrics;
    puller->hooks = params->hooks;
    puller->due_ns = KVX_NEVER;
    kvx_list_init(&puller->paths);
    kvx_list_init(&puller->tasks);
    const kvx_status st = puller_size(puller);
    if (st != KVX_OK)
        goto fail;
    *puller_out = puller;
    return KVX_OK;

fail:
    kvx_puller_destroy(&puller);
    return st;
}

void kvx_puller_destroy(kvx_puller **puller_inout)
{
    kvx_puller *puller = *puller_inout;

    if (puller == NULL)
        return;
    kvx_list_foreach (task, &puller->tasks) {
        kvx_task_free(puller, KVX_LIST_ENTRY(task, kvx_pull_task, node));
    }
    kvx_list_foreach (path, &puller->paths) {
        kvx_path_free(KVX_LIST_ENTRY(path, kvx_pull_path, node));
    }
    kvx_window_fini(&puller->window);
    free(puller->refused_links);
    free(puller);
    *puller_inout = NULL;
}

static void job_chain(kvx_pull_job **chain, kvx_pull_job *job)
{
    job->pull = *chain;
    *chain = job;
}

static kvx_pull_job *chain_next(const kvx_pull_job *job)
{
    return job->pull;
}

/* Take a job out of a chain; false: it is not in it. */
static bool job_unchain(kvx_pull_job **chain, kvx_pull_job *job)
{
    kvx_pull_job *before = NULL;

    for (kvx_pull_job *at = *chain; at != NULL; before = at, at = chain_next(at)) {
        if (at != job)
            continue;
        if (before == NULL)
            *chain = chain_next(job);
        else
            before->pull = job->pull;
        job->pull = NULL;
        return true;
    }
    return false;
}

void kvx_puller_start(kvx_puller *puller, kvx_pull_job *job, uint64_t now)
{
    puller->is_due = true;
    kvx_pull_task *task = calloc(1, sizeof(*task));
    if (task == NULL) {
        kvx_log(KVX_LOG_ERROR, "pull %016" PRIx64 ": no memory to begin it", job->nonce);
        job_chain(&puller->refused, job);
        return;
    }
    task->job = job;
    job->pull = task;
    kvx_list_init(&task->reposts);
    kvx_list_append(&puller->tasks, &task->node);
    task->path = kvx_path_find_for(puller, task, now);
    if (task->path != NULL)
        task->path->task_count++;
    if (job->component_count > puller->pool->component_count)
        kvx_task_fail(task, KVX_INVALID);
}

void kvx_puller_stop(kvx_puller *puller, kvx_pull_job *job, uint64_t now)
{
    puller->is_due = true;
    if (job_unchain(&puller->unbegun, job) || job_unchain(&puller->refused, job) ||
            job->pull == NULL) {
        job_chain(&puller->unbegun, job);
        return;
    }
    kvx_pull_task *task = job->pull;
    if (task->is_stopped)
        return;
    task->is_stopped = true;
    task->drain_until_ns = now + puller->settings.drain_ns;
}

void kvx_puller_resume(kvx_puller *puller, kvx_pull_job *job)
{
    /* A job that has no task waits for nothing, and its pointer is a link of a chain. */
    for (const kvx_pull_job *at = puller->refused; at != NULL; at = chain_next(at)) {
        if (at == job)
            return;
    }
    for (const kvx_pull_job *at = puller->unbegun; at != NULL; at = chain_next(at)) {
        if (at == job)
            return;
    }
    kvx_pull_task *task = job->pull;
    if (task == NULL)
        return;
    task->is_parked = false;
    puller->is_due = true;
}

void kvx_puller_completed(kvx_puller *puller, uint64_t read_id, kvx_status status)
{
    kvx_pull_slot *slot = kvx_window_find(&puller->window, read_id);

    if (slot == NULL)
        return;
    kvx_pull_task *task = slot->task;
    puller->is_drained = true;
    kvx_slot_unpost(puller, slot);
    if (status == KVX_OK) {
        task->stats.reads++;
        task->stats.bytes += slot->length_bytes;
        kvx_count(&puller->metrics->reads, 1);
        kvx_count(&puller->metrics->bytes_read, slot->length_bytes);
    } else {
        kvx_log(KVX_LOG_WARN, "pull %016" PRIx64 ": reading page %" PRIu32 " failed: %s",
                task->job->nonce, slot->page, kvx_status_text(status));
        task->path->is_dead |= status == KVX_PEER_LOST;
        kvx_task_fail_at(task, status, slot->page);
    }
    puller->is_due |= task->path->is_dead;
    kvx_window_give(&puller->window, slot);
}

static void orphans_report(kvx_puller *puller)
{
    const kvx_pull_stats none = { 0 };

    while (puller->refused != NULL) {
        kvx_pull_job *job = puller->refused;
        (void)job_unchain(&puller->refused, job);
        puller->hooks.failed(puller->hooks.arg, job, KVX_NO_MEMORY, false, 0);
    }
    while (puller->unbegun != NULL) {
        kvx_pull_job *job = puller->unbegun;
        (void)job_unchain(&puller->unbegun, job);
        puller->hooks.quiet(puller->hooks.arg, job, &none);
    }
}

/* Each task in turn; the first is the last of the next step. */
static void tasks_work(kvx_puller *puller)
{
    uint32_t budget_visits = KVX_PULL_PLAN_VISITS;
    kvx_list *first = puller->tasks.next;

    if (kvx_list_is_empty(&puller->tasks))
        return;
    kvx_list_foreach (node, &puller->tasks) {
        kvx_pull_task *task = KVX_LIST_ENTRY(node, kvx_pull_task, node);
        budget_visits = kvx_task_prepare(puller, task, budget_visits);
        kvx_task_post(puller, task);
    }
    kvx_list_remove(first);
    kvx_list_append(&puller->tasks, first);
}

/* What a window keeps back goes on when reads end, which the domain tells. */
static bool work_is_left(const kvx_puller *puller)
{
    const bool has_room = !puller->is_full || puller->is_drained;

    kvx_list_foreach (node, &puller->tasks) {
        const kvx_pull_task *task = KVX_LIST_ENTRY(node, kvx_pull_task, node);
        if (kvx_task_may_work(task) && !task->is_planned)
            return true;
        if (has_room && kvx_task_wants_post(puller, task))
            return true;
    }
    return false;
}

static uint64_t due_find(const kvx_puller *puller, uint64_t now)
{
    uint64_t due_ns = KVX_NEVER;

    if (puller->is_full && puller->window.posted == 0)
        due_ns = now + KVX_PULL_RETRY_NS;
    kvx_list_foreach (path, &puller->paths) {
        due_ns = smaller(due_ns, kvx_path_due(KVX_LIST_ENTRY(path, kvx_pull_path, node), now));
    }
    kvx_list_foreach (node, &puller->tasks) {
        const kvx_pull_task *task = KVX_LIST_ENTRY(node, kvx_pull_task, node);
        if (task->is_stopped && task->reads > 0 && task->path->state == KVX_PATH_OPEN)
            due_ns = smaller(due_ns, task->drain_until_ns);
    }
    return due_ns;
}

bool kvx_puller_step(kvx_puller *puller, uint64_t now)
{
    puller->is_due = false;
    puller->is_full = false;
    puller->is_drained = false;
    orphans_report(puller);
    kvx_paths_step(puller, now);
    tasks_work(puller);
    puller->is_due |= puller->ops->progress(puller->domain);
    kvx_tasks_settle(puller, now);
    puller->is_due |= work_is_left(puller);
    puller->due_ns = due_find(puller, now);
    return puller->is_due;
}

uint64_t kvx_puller_next_due(const kvx_puller *puller)
{
    return puller->is_due ? 0 : puller->due_ns;
}

bool kvx_puller_is_idle(const kvx_puller *puller)
{
    return kvx_list_is_empty(&puller->tasks) && kvx_list_is_empty(&puller->paths) &&
           puller->refused == NULL && puller->unbegun == NULL && puller->refused_link_count == 0;
}
