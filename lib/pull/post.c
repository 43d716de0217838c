/* SPDX-License-Identifier: Apache-2.0 */
/* Posting: reads are emitted region by region into a batch, as far as the window allows, and what
 * the transport does not take goes back to where it came from. */
#include "pull/internal.h"

#include <inttypes.h>

#include "base/log.h"

static kvx_plan_geometry region_geometry(
        const kvx_puller *puller, const kvx_pull_path *path, uint32_t region)
{
    const uint32_t remote = path->remote_regions[region];

    return (kvx_plan_geometry){
        .page_bytes = puller->pool->regions[region].page_bytes,
        .source_stride = path->remote->regions[remote].page_stride,
        .destination_stride = puller->pool->regions[region].page_stride,
        .read_bytes_max = puller->read_bytes_max,
    };
}

/* Emit one read and move the position behind it; false: all are emitted. */
static bool position_emit(const kvx_puller *puller, const kvx_pull_task *task,
        kvx_pull_position *position, kvx_plan_read *read_out)
{
    while (position->region < puller->pool->region_count) {
        const kvx_plan *plan = task->plans[puller->pool->regions[position->region].component];
        if (plan != NULL) {
            const kvx_plan_geometry geometry = region_geometry(puller, task->path, position->region);
            if (kvx_plan_emit(plan, &geometry, &position->cursor, read_out, 1) == 1)
                return true;
        }
        *position = (kvx_pull_position){ .region = position->region + 1 };
    }
    return false;
}

static void batch_add(kvx_puller *puller, kvx_pull_slot *slot)
{
    kvx_pull_batch *batch = &puller->batch;
    const uint32_t i = batch->count++;
    char *base = puller->pool->regions[slot->region].base;

    batch->slots[i] = slot;
    batch->bytes += slot->length_bytes;
    batch->segments[i] = (kvx_segment){
        .base = base + slot->local_off,
        .length_bytes = slot->length_bytes,
    };
    batch->reads[i] = (kvx_read){
        .id = slot->id,
        .cookie = slot->task->job->nonce,
        .rkey = slot->task->path->rkeys[slot->region],
        .remote_off = slot->remote_off,
        .length_bytes = slot->length_bytes,
        .segments = &batch->segments[i],
        .segment_count = 1,
    };
}

/* Whether the window and the batch take that many bytes more. No read is longer than the window,
 * so one that waits will fit. */
static bool batch_has_room(kvx_puller *puller, uint64_t length_bytes)
{
    const kvx_pull_window *window = &puller->window;
    const bool fits = length_bytes <= window->bytes_max - window->bytes - puller->batch.bytes;

    puller->is_full |= !fits;
    return fits;
}

static bool batch_add_repost(kvx_puller *puller, kvx_pull_task *task)
{
    if (kvx_list_is_empty(&task->reposts))
        return false;
    kvx_pull_slot *slot = KVX_LIST_ENTRY(task->reposts.next, kvx_pull_slot, node);
    if (!batch_has_room(puller, slot->length_bytes))
        return false;
    kvx_list_remove(&slot->node);
    kvx_window_renew(&puller->window, slot);
    batch_add(puller, slot);
    puller->batch.repost_count++;
    return true;
}

static bool batch_add_next(kvx_puller *puller, kvx_pull_task *task)
{
    kvx_pull_position position = task->position;
    kvx_plan_read read;

    if (!position_emit(puller, task, &position, &read)) {
        task->position = position;
        return false;
    }
    if (!batch_has_room(puller, read.length_bytes))
        return false;
    kvx_pull_slot *slot = kvx_window_take(&puller->window);
    if (slot == NULL) {
        puller->is_full = true;
        return false;
    }
    slot->task = task;
    slot->region = position.region;
    slot->page = read.destination;
    slot->remote_off = read.source_off;
    slot->local_off = read.destination_off;
    slot->length_bytes = read.length_bytes;
    puller->batch.before[puller->batch.count] = task->position;
    batch_add(puller, slot);
    task->position = position;
    return true;
}

static void batch_fill(kvx_puller *puller, kvx_pull_task *task)
{
    kvx_pull_batch *batch = &puller->batch;

    batch->count = 0;
    batch->repost_count = 0;
    batch->bytes = 0;
    while (batch->count < KVX_PULL_BATCH && batch_add_repost(puller, task))
        ;
    if (!kvx_list_is_empty(&task->reposts))
        return;
    while (batch->count < KVX_PULL_BATCH && batch_add_next(puller, task))
        ;
}

/* Put back what was not taken, the last first, so that the order stays. */
static void batch_return(kvx_puller *puller, kvx_pull_task *task, uint32_t taken)
{
    kvx_pull_batch *batch = &puller->batch;

    for (uint32_t i = batch->count; i-- > taken;) {
        if (i < batch->repost_count) {
            kvx_list_append(task->reposts.next, &batch->slots[i]->node);
        } else {
            task->position = batch->before[i];
            kvx_window_give(&puller->window, batch->slots[i]);
        }
    }
}

static kvx_status batch_get(kvx_puller *puller, kvx_pull_task *task, uint32_t *taken_out)
{
    const kvx_pull_batch *batch = &puller->batch;
    const kvx_status st = puller->hooks.may_post(puller->hooks.arg, task->job);

    if (st != KVX_OK) {
        task->is_parked = st == KVX_AGAIN;
        task->is_barred = st != KVX_AGAIN;
        return KVX_OK;
    }
    uint32_t taken = 0;
    KVX_TRY(puller->ops->get(task->path->ep, batch->reads, batch->count, &taken));
    puller->is_full |= taken < batch->count;
    *taken_out = taken;
    return KVX_OK;
}

static void post_fail(kvx_puller *puller, kvx_pull_task *task, kvx_status status)
{
    if (status == KVX_AGAIN) {
        puller->is_full = true;
        return;
    }
    if (status == KVX_PEER_LOST) {
        task->path->is_dead = true;
        puller->is_due = true;
    }
    kvx_log(KVX_LOG_ERROR, "pull %016" PRIx64 ": reads cannot be posted on link %" PRIu64 ": %s",
            task->job->nonce, task->path->link, kvx_status_text(status));
    kvx_task_fail(task, status);
}

bool kvx_task_is_emitted(const kvx_puller *puller, const kvx_pull_task *task)
{
    return task->is_planned && kvx_list_is_empty(&task->reposts) &&
           task->position.region == puller->pool->region_count;
}

bool kvx_task_wants_post(const kvx_puller *puller, const kvx_pull_task *task)
{
    const kvx_pull_path *path = task->path;

    return kvx_task_may_work(task) && task->is_planned && !task->is_parked &&
           path->state == KVX_PATH_OPEN && !path->is_dead && !path->is_dropped &&
           !kvx_task_is_emitted(puller, task);
}

void kvx_task_post(kvx_puller *puller, kvx_pull_task *task)
{
    uint32_t taken = 0;

    if (!kvx_task_wants_post(puller, task))
        return;
    batch_fill(puller, task);
    if (puller->batch.count == 0)
        return;
    const kvx_status st = batch_get(puller, task, &taken);
    if (st != KVX_OK)
        post_fail(puller, task, st);
    for (uint32_t i = 0; i < taken; i++)
        kvx_slot_post(puller, puller->batch.slots[i]);
    batch_return(puller, task, taken);
}
