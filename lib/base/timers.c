/* SPDX-License-Identifier: Apache-2.0 */
#include "base/timers.h"

#include <stdbool.h>
#include <stdlib.h>

#define CAPACITY_MIN 16

void kvx_timers_fini(kvx_timers *timers)
{
    free(timers->heap);
    *timers = (kvx_timers){ 0 };
}

kvx_status kvx_timers_reserve(kvx_timers *timers)
{
    if (timers->reserved < timers->capacity) {
        timers->reserved++;
        return KVX_OK;
    }
    const size_t capacity = timers->capacity == 0 ? CAPACITY_MIN : timers->capacity * 2;
    KVX_ENSURE(capacity <= SIZE_MAX / sizeof(*timers->heap), KVX_NO_MEMORY);
    kvx_timer **heap = realloc(timers->heap, capacity * sizeof(*heap));
    KVX_ENSURE(heap != NULL, KVX_NO_MEMORY);
    timers->heap = heap;
    timers->capacity = capacity;
    timers->reserved++;
    return KVX_OK;
}

void kvx_timers_unreserve(kvx_timers *timers)
{
    timers->reserved--;
}

static bool is_before(const kvx_timer *a, const kvx_timer *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

static void heap_put(kvx_timers *timers, size_t index, kvx_timer *timer)
{
    timers->heap[index] = timer;
    timer->position = index + 1;
}

/* Put a timer where it belongs, starting at a free place of the heap. */
static void heap_settle(kvx_timers *timers, size_t index, kvx_timer *timer)
{
    while (index > 0 && is_before(timer, timers->heap[(index - 1) / 2])) {
        heap_put(timers, index, timers->heap[(index - 1) / 2]);
        index = (index - 1) / 2;
    }
    for (;;) {
        size_t child = 2 * index + 1;
        if (child >= timers->count)
            break;
        if (child + 1 < timers->count && is_before(timers->heap[child + 1], timers->heap[child]))
            child++;
        if (!is_before(timers->heap[child], timer))
            break;
        heap_put(timers, index, timers->heap[child]);
        index = child;
    }
    heap_put(timers, index, timer);
}

void kvx_timers_set(kvx_timers *timers, kvx_timer *timer, uint64_t at_ns)
{
    if (at_ns == KVX_NEVER) {
        kvx_timers_clear(timers, timer);
        return;
    }
    timer->at_ns = at_ns;
    timer->order = timers->order++;
    if (timer->position == 0) { /* its owner reserved the room */
        timers->heap[timers->count] = timer;
        timer->position = ++timers->count;
    }
    heap_settle(timers, timer->position - 1, timer);
}

void kvx_timers_clear(kvx_timers *timers, kvx_timer *timer)
{
    if (timer->position == 0)
        return;
    const size_t index = timer->position - 1;
    timer->position = 0;
    kvx_timer *last = timers->heap[--timers->count];
    if (last != timer)
        heap_settle(timers, index, last);
}

kvx_timer *kvx_timers_first(const kvx_timers *timers)
{
    return timers->count == 0 ? NULL : timers->heap[0];
}
