/* SPDX-License-Identifier: Apache-2.0 */
/* Reads that were accepted and have not ended, for transports that do them in progress(): one
 * fixed pool for a domain, one queue for an endpoint, endpoints take turns. Nothing here
 * allocates after init. */
#ifndef KVX_TRANSPORT_QUEUE_H
#define KVX_TRANSPORT_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "base/list.h"
#include "kvx/transport.h"

#define KVX_QUEUE_NONE UINT32_MAX

typedef struct kvx_queued_segment {
    char *base;          /* where the next byte goes */
    uint64_t left_bytes; /* never 0 */
    uint32_t next;
} kvx_queued_segment;

/* One cache line: most reads of scattered pages have one segment, which is kept here. */
typedef struct kvx_queued_read {
    uint64_t id;
    uint64_t handle;            /* the transport's: which remote registration */
    uint64_t remote;            /* where the next byte comes from */
    uint64_t left_bytes;        /* 0: done */
    kvx_queued_segment segment; /* the one being filled; next is the head of the chain of the rest */
    uint32_t last_segment;      /* of that chain */
    uint32_t next;
} kvx_queued_read;

typedef struct kvx_read_pool {
    kvx_queued_read *reads;
    kvx_queued_segment *segments;
    uint32_t *free_reads;  /* stack of indices */
    uint32_t segment_free; /* head of the free chain */
    uint32_t read_free_count;
    uint32_t segment_free_count;
    kvx_list turns; /* of kvx_read_queue.turn, queues that are not empty */
} kvx_read_pool;

/* A zeroed queue is empty. */
typedef struct kvx_read_queue {
    kvx_list turn;
    uint32_t first; /* meaningful while turn is linked */
    uint32_t last;
} kvx_read_queue;

KVX_CHECKED kvx_status kvx_read_pool_init(
        kvx_read_pool *pool, uint32_t read_count, uint32_t segment_count);
/* A zeroed pool is fine. */
void kvx_read_pool_fini(kvx_read_pool *pool);

/* Whether a read would fit. */
static inline bool kvx_read_pool_has_room(const kvx_read_pool *pool, const kvx_read *read)
{
    return pool->read_free_count > 0 && pool->segment_free_count >= read->segment_count - 1;
}

static inline bool kvx_read_pool_is_idle(const kvx_read_pool *pool)
{
    return kvx_list_is_empty(&pool->turns);
}

static inline bool kvx_read_queue_is_empty(const kvx_read_queue *queue)
{
    return !kvx_list_is_linked(&queue->turn);
}

/* The queue whose turn it is, which goes to the end of the line; NULL: all are empty. */
kvx_read_queue *kvx_read_pool_turn(kvx_read_pool *pool);

/* For push: copy the segments after the first into a chain. */
void kvx_queued_read_chain(kvx_read_pool *pool, kvx_queued_read *into, const kvx_read *read);
/* For pop: give back the chain that a read still has. */
void kvx_queued_read_unchain(kvx_read_pool *pool, const kvx_queued_read *read);

/* For push: take a free read. The bytes that were copied since it was used have pushed it out
 * of the cache, so the one that is due some pushes later is fetched now. */
static inline uint32_t kvx_read_pool_take(kvx_read_pool *pool)
{
    const uint32_t count = --pool->read_free_count;
    if (count >= 8)
        __builtin_prefetch(&pool->reads[pool->free_reads[count - 8]], 1);
    return pool->free_reads[count];
}

/* Append a copy of a read that fits. Cost: O(segments). */
static inline void kvx_read_queue_push(kvx_read_pool *pool, kvx_read_queue *queue,
        const kvx_read *read, uint64_t handle, uint64_t remote)
{
    const uint32_t index = kvx_read_pool_take(pool);
    kvx_queued_read *const queued = &pool->reads[index];
    queued->id = read->id;
    queued->handle = handle;
    queued->remote = remote;
    queued->left_bytes = read->length_bytes;
    queued->segment.base = (char *)read->segments[0].base;
    queued->segment.left_bytes = read->segments[0].length_bytes;
    queued->segment.next = KVX_QUEUE_NONE;
    queued->next = KVX_QUEUE_NONE;
    if (read->segment_count > 1)
        kvx_queued_read_chain(pool, queued, read);

    if (kvx_read_queue_is_empty(queue)) {
        queue->first = index;
        kvx_list_append(&pool->turns, &queue->turn);
    } else {
        pool->reads[queue->last].next = index;
    }
    queue->last = index;
}

/* The oldest read of a queue that is not empty. */
static inline kvx_queued_read *kvx_read_queue_first(
        const kvx_read_pool *pool, const kvx_read_queue *queue)
{
    return &pool->reads[queue->first];
}

/* Bytes of a read, at most left_bytes, have arrived. Cost: O(segments filled). */
void kvx_queued_read_advance(kvx_read_pool *pool, kvx_queued_read *read, uint64_t bytes);

/* End the oldest read and return its id. */
static inline uint64_t kvx_read_queue_pop(kvx_read_pool *pool, kvx_read_queue *queue)
{
    const uint32_t index = queue->first;
    const kvx_queued_read *const read = &pool->reads[index];
    if (read->segment.next != KVX_QUEUE_NONE)
        kvx_queued_read_unchain(pool, read);
    if (read->next == KVX_QUEUE_NONE)
        kvx_list_remove(&queue->turn);
    else
        queue->first = read->next;
    pool->free_reads[pool->read_free_count++] = index;
    return read->id;
}

/* End all reads. Cost: O(reads). */
void kvx_read_queue_clear(kvx_read_pool *pool, kvx_read_queue *queue);

#endif
