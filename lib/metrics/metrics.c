/* SPDX-License-Identifier: Apache-2.0 */
#include "metrics/metrics.h"

#include <string.h>

static uint64_t value_load(const _Atomic uint64_t *value)
{
    return atomic_load_explicit(value, memory_order_relaxed);
}

static _Atomic uint64_t *failure_counter(kvx_metrics *metrics, kvx_status cause)
{
    switch (cause) {
    case KVX_EXPIRED: return &metrics->failed_expired;
    case KVX_REVOKED: return &metrics->failed_revoked;
    case KVX_CANCELLED: return &metrics->failed_cancelled;
    case KVX_DEADLINE: return &metrics->failed_deadline;
    case KVX_PEER_LOST:
    case KVX_UNREACHABLE:
    case KVX_CLOSED: return &metrics->failed_peer_lost;
    case KVX_REFUSED:
    case KVX_GONE: return &metrics->failed_refused;
    case KVX_OK:
    case KVX_AGAIN:
    case KVX_INVALID:
    case KVX_NO_SPACE:
    case KVX_BUSY:
    case KVX_NOT_FOUND:
    case KVX_UNSUPPORTED:
    case KVX_READ_FAILED:
    case KVX_PROTOCOL:
    case KVX_MISMATCH:
    case KVX_NO_MEMORY:
    case KVX_IO:
    case KVX_FORKED: break;
    }
    return &metrics->failed_protocol;
}

void kvx_metrics_count_failure(kvx_metrics *metrics, kvx_status cause)
{
    kvx_count(failure_counter(metrics, cause), 1);
}

/* A caller built against an older header has a shorter struct, and gets what it knows. */
kvx_status kvx_metrics_snapshot_take(const kvx_metrics *metrics, kvx_metrics_snapshot *snapshot)
{
    const size_t size = snapshot->struct_size;
    KVX_ENSURE(size != 0 && size <= sizeof(*snapshot), KVX_INVALID);
    kvx_metrics_snapshot full = { .struct_size = size };
#define FIELD_COPY(name, help) full.name = value_load(&metrics->name);
    KVX_COUNTER_LIST(FIELD_COPY)
    KVX_GAUGE_LIST(FIELD_COPY)
#undef FIELD_COPY
    memcpy(snapshot, &full, size);
    return KVX_OK;
}
