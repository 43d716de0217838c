/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/queue.h"

#include <stdlib.h>

kvx_status kvx_read_pool_init(kvx_read_pool *pool, uint32_t read_count, uint32_t segment_count)
{
    *pool = (kvx_read_pool){ .read_free_count = read_count, .segment_free_count = segment_count };
    kvx_list_init(&pool->turns);
    pool->reads = calloc(read_count, sizeof(*pool->reads));
    pool->segments = calloc(segment_count, sizeof(*pool->segments));
    pool->free_reads = calloc(read_count, sizeof(*pool->free_reads));
    if (pool->reads == NULL || pool->segments == NULL || pool->free_reads == NULL) {
        kvx_read_pool_fini(pool);
        return KVX_NO_MEMORY;
    }
    for (uint32_t i = 0; i < read_count; i++)
        pool->free_reads[i] = read_count - 1 - i;
    for (uint32_t i = 0; i < segment_count; i++)
        pool->segments[i].next = i + 1 < segment_count ? i + 1 : KVX_QUEUE_NONE;
    return KVX_OK;
}

void kvx_read_pool_fini(kvx_read_pool *pool)
{
    free(pool->reads);
    free(pool->segments);
    free(pool->free_reads);
    *pool = (kvx_read_pool){ 0 };
}

kvx_read_queue *kvx_read_pool_turn(kvx_read_pool *pool)
{
    if (kvx_read_pool_is_idle(pool))
        return NULL;
    kvx_list *const node = pool->turns.next;
    kvx_list_remove(node);
    kvx_list_append(&pool->turns, node);
    return KVX_LIST_ENTRY(node, kvx_read_queue, turn);
}

static uint32_t segment_take(kvx_read_pool *pool, const kvx_segment *from)
{
    const uint32_t index = pool->segment_free;
    kvx_queued_segment *const segment = &pool->segments[index];
    pool->segment_free = segment->next;
    pool->segment_free_count--;
    segment->base = from->base;
    segment->left_bytes = from->length_bytes;
    segment->next = KVX_QUEUE_NONE;
    return index;
}

void kvx_queued_read_chain(kvx_read_pool *pool, kvx_queued_read *into, const kvx_read *read)
{
    kvx_queued_segment *last = &into->segment;
    for (uint32_t i = 1; i < read->segment_count; i++) {
        into->last_segment = segment_take(pool, &read->segments[i]);
        last->next = into->last_segment;
        last = &pool->segments[into->last_segment];
    }
}

void kvx_queued_read_unchain(kvx_read_pool *pool, const kvx_queued_read *read)
{
    for (uint32_t i = read->segment.next; i != KVX_QUEUE_NONE; i = pool->segments[i].next)
        pool->segment_free_count++;
    pool->segments[read->last_segment].next = pool->segment_free;
    pool->segment_free = read->segment.next;
}

/* The next segment of the chain becomes the one being filled. */
static void segment_follow(kvx_read_pool *pool, kvx_queued_read *read)
{
    const uint32_t index = read->segment.next;
    kvx_queued_segment *const segment = &pool->segments[index];
    read->segment = *segment;
    segment->next = pool->segment_free;
    pool->segment_free = index;
    pool->segment_free_count++;
}

void kvx_queued_read_advance(kvx_read_pool *pool, kvx_queued_read *read, uint64_t bytes)
{
    read->remote += bytes;
    read->left_bytes -= bytes;
    while (bytes >= read->segment.left_bytes && read->segment.next != KVX_QUEUE_NONE) {
        bytes -= read->segment.left_bytes;
        segment_follow(pool, read);
    }
    read->segment.base += bytes;
    read->segment.left_bytes -= bytes;
}

void kvx_read_queue_clear(kvx_read_pool *pool, kvx_read_queue *queue)
{
    while (!kvx_read_queue_is_empty(queue))
        (void)kvx_read_queue_pop(pool, queue);
}
