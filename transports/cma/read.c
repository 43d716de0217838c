/* SPDX-License-Identifier: Apache-2.0 */
#include "cma/cma.h"

#include "base/log.h"

/* Reads of a lost peer that one progress call ends. */
#define LOST_STEP_READS 1024

static bool range_is_inside(const kvx_ep *ep, const kvx_read *read)
{
    uint64_t end;
    return read->rkey->ep == ep && read->length_bytes > 0 &&
           !__builtin_add_overflow(read->remote_off, read->length_bytes, &end) &&
           end <= read->rkey->length_bytes;
}

/* Queues only: the kernel copies in progress(), where many reads share a call. */
kvx_status kvx_cma_get(kvx_ep *ep, const kvx_read *reads, uint32_t count, uint32_t *taken_out)
{
    kvx_read_pool *const pool = &ep->domain->pool;
    KVX_ENSURE(ep->is_proven, KVX_INVALID);
    KVX_ENSURE(!ep->is_dead, KVX_PEER_LOST);

    uint32_t taken = 0;
    kvx_status status = KVX_OK;
    for (; taken < count; taken++) {
        const kvx_read *const read = &reads[taken];
        if (!range_is_inside(ep, read))
            status = KVX_INVALID;
        else if (!kvx_read_pool_has_room(pool, read))
            status = KVX_AGAIN;
        if (status != KVX_OK)
            break;
        kvx_read_queue_push(pool, &ep->queue, read, 0, read->rkey->base + read->remote_off);
    }
    KVX_ENSURE(taken > 0 || count == 0, status);
    *taken_out = taken;
    return KVX_OK;
}

/* Append a range to one side of a call. The kernel's cost is per entry, so a neighbour of the
 * last range joins it. Returns false when the side is full. */
static bool side_append(
        struct iovec *side, uint32_t *count, uint32_t count_max, char *base, uint64_t bytes)
{
    if (*count > 0) {
        struct iovec *const last = &side[*count - 1];
        if ((char *)last->iov_base + last->iov_len == base) {
            last->iov_len += bytes;
            return true;
        }
    }
    if (*count == count_max)
        return false;
    side[*count] = (struct iovec){ .iov_base = base, .iov_len = bytes };
    ++*count;
    return true;
}

/* Append as much of a segment as fits, read from remote; returns how many bytes. */
static uint64_t call_add_segment(const kvx_domain *domain, kvx_cma_call *call,
        const kvx_queued_segment *segment, char *remote)
{
    const uint32_t entries = domain->call_entries;
    const uint64_t room = domain->call_bytes - call->length_bytes;
    const uint64_t bytes = segment->left_bytes < room ? segment->left_bytes : room;
    if (bytes == 0 || call->local_count == entries ||
            !side_append(call->remote, &call->remote_count, entries, remote, bytes))
        return 0;
    (void)side_append(call->local, &call->local_count, entries, segment->base, bytes);
    call->length_bytes += bytes;
    return bytes;
}

/* Append as much of a read as fits; returns how many bytes. */
static uint64_t call_add_read(
        const kvx_domain *domain, kvx_cma_call *call, const kvx_queued_read *read)
{
    char *const remote = (char *)(uintptr_t)read->remote;
    const kvx_queued_segment *segment = &read->segment;
    uint64_t added = call_add_segment(domain, call, segment, remote);
    uint64_t part = added;
    while (part == segment->left_bytes && segment->next != KVX_QUEUE_NONE) {
        segment = &domain->pool.segments[segment->next];
        part = call_add_segment(domain, call, segment, remote + added);
        added += part;
    }
    return added;
}

/* Fill a call with the oldest reads of a queue, in order. */
static void call_fill(kvx_domain *domain, const kvx_ep *ep)
{
    kvx_cma_call *const call = &domain->call;
    call->local_count = 0;
    call->remote_count = 0;
    call->read_count = 0;
    call->length_bytes = 0;
    for (uint32_t i = ep->queue.first; i != KVX_QUEUE_NONE; i = domain->pool.reads[i].next) {
        const kvx_queued_read *const read = &domain->pool.reads[i];
        const uint64_t added = call_add_read(domain, call, read);
        call->read_count += added > 0;
        if (added < read->left_bytes || ep->is_cautious)
            break;
    }
}

static void end_first(kvx_domain *domain, kvx_ep *ep, kvx_status status)
{
    const uint64_t id = kvx_read_queue_pop(&domain->pool, &ep->queue);
    domain->params.completed(domain->params.arg, id, status);
}

/* The leading bytes of the call are in place: end the reads they complete. */
static void credit(kvx_domain *domain, kvx_ep *ep, uint64_t bytes)
{
    while (bytes > 0) {
        kvx_queued_read *const read = kvx_read_queue_first(&domain->pool, &ep->queue);
        if (bytes < read->left_bytes) {
            kvx_queued_read_advance(&domain->pool, read, bytes);
            return;
        }
        bytes -= read->left_bytes;
        end_first(domain, ep, KVX_OK);
    }
}

/* Nothing was copied, and the peer is itself. The oldest read is to blame if it was alone;
 * otherwise an impossible local address of any read fails the call, so it is tried alone. */
static void fail_or_try_alone(kvx_domain *domain, kvx_ep *ep)
{
    if (domain->call.read_count > 1) {
        ep->is_cautious = true;
        return;
    }
    const kvx_queued_read *const read = kvx_read_queue_first(&domain->pool, &ep->queue);
    kvx_log(KVX_LOG_ERROR, "cma: read %llu of pid %d failed at address %#llx",
            (unsigned long long)read->id, (int)ep->peer.process.pid,
            (unsigned long long)read->remote);
    ep->is_cautious = false;
    end_first(domain, ep, KVX_READ_FAILED);
}

static void lose_peer(kvx_ep *ep, kvx_cma_outcome outcome)
{
    const char *reason = outcome == KVX_CMA_GONE ? "the process has ended"
                         : outcome == KVX_CMA_FORBIDDEN
                                 ? "the kernel forbids reading it now"
                                 : "the process is another one now, or its node has closed";
    kvx_log(KVX_LOG_WARN, "cma: pid %d is lost: %s", (int)ep->peer.process.pid, reason);
    ep->is_dead = true;
}

static void ep_step(kvx_domain *domain, kvx_ep *ep)
{
    call_fill(domain, ep);
    uint64_t bytes = 0;
    const kvx_cma_outcome outcome = kvx_cma_call_run(ep, &domain->call, &bytes);
    switch (outcome) {
    case KVX_CMA_PROVEN:
        ep->is_cautious = false;
        credit(domain, ep, bytes);
        break;
    case KVX_CMA_BAD_MEMORY: fail_or_try_alone(domain, ep); break;
    case KVX_CMA_FORBIDDEN:
    case KVX_CMA_OTHER:
    case KVX_CMA_GONE: lose_peer(ep, outcome); break;
    }
}

static void dead_step(kvx_domain *domain, kvx_ep *ep)
{
    for (uint32_t i = 0; i < LOST_STEP_READS && !kvx_read_queue_is_empty(&ep->queue); i++)
        end_first(domain, ep, KVX_PEER_LOST);
}

bool kvx_cma_progress(kvx_domain *domain)
{
    kvx_read_queue *const queue = kvx_read_pool_turn(&domain->pool);
    if (queue == NULL)
        return false;
    kvx_ep *const ep = KVX_CONTAINER_OF(queue, kvx_ep, queue);
    if (!ep->is_dead)
        ep_step(domain, ep);
    if (ep->is_dead)
        dead_step(domain, ep);
    return !kvx_read_pool_is_idle(&domain->pool);
}
