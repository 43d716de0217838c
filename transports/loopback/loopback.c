/* SPDX-License-Identifier: Apache-2.0 */
/* Loopback: nodes of one process read each other by memcpy; the reference for the contract.
 * The one symbol seen outside this folder is kvx_transport_loopback. */
#include "loopback/loopback.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "transport/key.h"

#define READS_MAX      8192
#define SEGMENTS_TOTAL 32768
#define SEGMENTS_MAX   1024
#define READ_BYTES_MAX (UINT64_C(1) << 30)

extern const kvx_transport_ops kvx_transport_loopback;

static void loopback_close(kvx_domain *domain)
{
    if (domain == NULL)
        return;
    kvx_loopback_domain_remove(domain);
    kvx_read_pool_fini(&domain->pool);
    free(domain);
}

static kvx_status loopback_open(const kvx_domain_params *params, kvx_domain **domain_out)
{
    kvx_domain *domain = calloc(1, sizeof(*domain));
    KVX_ENSURE(domain != NULL, KVX_NO_MEMORY);
    domain->params = *params;

    kvx_status status = kvx_read_pool_init(&domain->pool, READS_MAX, SEGMENTS_TOTAL);
    if (status != KVX_OK)
        goto fail;
    status = kvx_loopback_domain_add(domain);
    if (status != KVX_OK)
        goto fail;

    *domain_out = domain;
    return KVX_OK;

fail:
    loopback_close(domain);
    return status;
}

static void loopback_query(const kvx_domain *domain, kvx_domain_limits *limits_out)
{
    (void)domain;
    *limits_out = (kvx_domain_limits){
        .read_bytes_max = READ_BYTES_MAX,
        .segments_max = SEGMENTS_MAX,
        .reads_in_flight_max = READS_MAX,
        .memory_kinds = UINT64_C(1) << KVX_MEMORY_HOST,
        .same_process_only = true,
        .same_host_only = true,
    };
}

static kvx_status loopback_reg(kvx_domain *domain, void *base, uint64_t length_bytes,
        kvx_memory_kind kind, kvx_mr **mr_out)
{
    KVX_ENSURE(kind == KVX_MEMORY_HOST, KVX_UNSUPPORTED);
    KVX_ENSURE(base != NULL && length_bytes > 0, KVX_INVALID);

    kvx_mr *mr = calloc(1, sizeof(*mr));
    KVX_ENSURE(mr != NULL, KVX_NO_MEMORY);
    *mr = (kvx_mr){ .domain = domain, .base = base, .length_bytes = length_bytes };
    const kvx_status status = kvx_loopback_mr_add(mr);
    if (status != KVX_OK)
        goto fail;

    *mr_out = mr;
    return KVX_OK;

fail:
    free(mr);
    return status;
}

static void loopback_unreg(kvx_mr *mr)
{
    if (mr == NULL)
        return;
    kvx_loopback_mr_remove(mr);
    free(mr);
}

static kvx_status loopback_pack_key(kvx_mr *mr, void *buffer, size_t size, size_t *length_out)
{
    const kvx_key key = {
        .identity = mr->domain->params.identity,
        .handle = mr->serial,
        .length_bytes = mr->length_bytes,
    };
    return kvx_key_pack(&key, KVX_LOOPBACK_KEY_MAGIC, buffer, size, length_out);
}

static bool range_is_inside(const kvx_ep *ep, const kvx_read *read)
{
    uint64_t end;
    return read->rkey->ep == ep && read->length_bytes > 0 &&
           !__builtin_add_overflow(read->remote_off, read->length_bytes, &end) &&
           end <= read->rkey->length_bytes;
}

static kvx_status loopback_get(
        kvx_ep *ep, const kvx_read *reads, uint32_t count, uint32_t *taken_out)
{
    kvx_read_pool *const pool = &ep->domain->pool;
    KVX_ENSURE(ep->is_proven, KVX_INVALID);
    KVX_ENSURE(!ep->is_dead, KVX_PEER_LOST);

    uint32_t taken = 0;
    kvx_status status = KVX_OK;
    for (; taken < count; taken++) {
        const kvx_read *const read = &reads[taken];
        status = !range_is_inside(ep, read)            ? KVX_INVALID
                 : !kvx_read_pool_has_room(pool, read) ? KVX_AGAIN
                                                       : KVX_OK;
        if (status != KVX_OK)
            break;
        kvx_read_queue_push(pool, &ep->queue, read, read->rkey->serial, read->remote_off);
    }
    KVX_ENSURE(taken > 0 || count == 0, status);
    *taken_out = taken;
    return KVX_OK;
}

/* Copy up to budget_bytes of a read. */
static uint64_t read_copy(
        kvx_read_pool *pool, kvx_queued_read *read, const kvx_mr *mr, uint64_t budget_bytes)
{
    uint64_t copied = 0;
    while (read->left_bytes > 0 && copied < budget_bytes) {
        const uint64_t budget = budget_bytes - copied;
        const uint64_t left = read->segment.left_bytes;
        const uint64_t bytes = left < budget ? left : budget;
        memcpy(read->segment.base, mr->base + read->remote, bytes);
        kvx_queued_read_advance(pool, read, bytes);
        copied += bytes;
    }
    return copied;
}

static void end_first(kvx_domain *domain, kvx_ep *ep, kvx_status status)
{
    domain->ended[domain->ended_count].id = kvx_read_queue_pop(&domain->pool, &ep->queue);
    domain->ended[domain->ended_count].status = status;
    domain->ended_count++;
}

/* A step of one endpoint, while the registry stands still. A registration that its owner has
 * ended fails the reads of it; an owner that has closed ends the endpoint. */
static void ep_step(kvx_domain *domain, kvx_ep *ep)
{
    uint64_t budget_bytes = KVX_LOOPBACK_STEP_BYTES;
    if (!kvx_loopback_domain_is_live(ep->peer))
        ep->is_dead = true;

    while (!kvx_read_queue_is_empty(&ep->queue) && budget_bytes > 0 &&
            domain->ended_count < KVX_LOOPBACK_STEP_READS) {
        kvx_queued_read *const read = kvx_read_queue_first(&domain->pool, &ep->queue);
        const kvx_mr *const mr = kvx_loopback_mr_find(read->handle);
        if (ep->is_dead || mr == NULL) {
            end_first(domain, ep, ep->is_dead ? KVX_PEER_LOST : KVX_READ_FAILED);
            continue;
        }
        budget_bytes -= read_copy(&domain->pool, read, mr, budget_bytes);
        if (read->left_bytes == 0)
            end_first(domain, ep, KVX_OK);
    }
}

static bool loopback_progress(kvx_domain *domain)
{
    kvx_read_queue *const queue = kvx_read_pool_turn(&domain->pool);
    if (queue == NULL)
        return false;
    domain->ended_count = 0;
    kvx_loopback_find_begin();
    ep_step(domain, KVX_CONTAINER_OF(queue, kvx_ep, queue));
    kvx_loopback_find_end();

    for (uint32_t i = 0; i < domain->ended_count; i++)
        domain->params.completed(domain->params.arg, domain->ended[i].id, domain->ended[i].status);
    return !kvx_read_pool_is_idle(&domain->pool);
}

/* Whoever has reads in flight progresses without waiting, so nothing ever needs waking. */
static int loopback_event_fd(kvx_domain *domain)
{
    (void)domain;
    return -1;
}

static kvx_status loopback_arm(kvx_domain *domain)
{
    return kvx_read_pool_is_idle(&domain->pool) ? KVX_OK : KVX_AGAIN;
}

const kvx_transport_ops kvx_transport_loopback = {
    .size = sizeof(kvx_transport_ops),
    .name = "loopback",
    .help = "between nodes of one process, by memcpy",
    .open = loopback_open,
    .close = loopback_close,
    .query = loopback_query,
    .address = kvx_loopback_address,
    .connect = kvx_loopback_connect,
    .probe = kvx_loopback_probe,
    .disconnect = kvx_loopback_disconnect,
    .reg = loopback_reg,
    .unreg = loopback_unreg,
    .pack_key = loopback_pack_key,
    .import_key = kvx_loopback_import_key,
    .forget_key = kvx_loopback_forget_key,
    .get = loopback_get,
    .progress = loopback_progress,
    .event_fd = loopback_event_fd,
    .arm = loopback_arm,
};
