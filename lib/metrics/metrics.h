/* SPDX-License-Identifier: Apache-2.0 */
/* A node's counters. Written by whoever works for the node, read from any thread: counters are
 * relaxed atomics (no order is needed between them), histograms are under the node's lock. */
#ifndef KVX_METRICS_METRICS_H
#define KVX_METRICS_METRICS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "base/hist.h"
#include "kvx/metrics.h"

typedef struct kvx_metrics {
#define KVX_METRICS_FIELD(name, help) _Atomic uint64_t name;
    KVX_COUNTER_LIST(KVX_METRICS_FIELD)
    KVX_GAUGE_LIST(KVX_METRICS_FIELD)
#undef KVX_METRICS_FIELD
#define KVX_METRICS_FIELD(name, help) kvx_hist name;
    KVX_HIST_LIST(KVX_METRICS_FIELD)
#undef KVX_METRICS_FIELD
} kvx_metrics;

static inline void kvx_count(_Atomic uint64_t *counter, uint64_t amount)
{
    (void)atomic_fetch_add_explicit(counter, amount, memory_order_relaxed);
}

static inline void kvx_uncount(_Atomic uint64_t *gauge, uint64_t amount)
{
    (void)atomic_fetch_sub_explicit(gauge, amount, memory_order_relaxed);
}

/* Count a failure under its cause. */
void kvx_metrics_count_failure(kvx_metrics *metrics, kvx_status cause);

/* KVX_INVALID: snapshot->struct_size is 0 or larger than ours. */
KVX_CHECKED kvx_status kvx_metrics_snapshot_take(
        const kvx_metrics *metrics, kvx_metrics_snapshot *snapshot);

/* Prometheus text with the given label list inside the braces (`rank="0"`); returns the bytes
 * that the whole text needs, writes at most size with a terminating zero. */
size_t kvx_metrics_render(const kvx_metrics *metrics, const char *labels, char *buffer, size_t size);

#endif
