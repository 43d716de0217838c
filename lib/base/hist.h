/* SPDX-License-Identifier: Apache-2.0 */
/* Log-linear histogram of 64-bit values: 32 steps per power of two, so a quantile is at most
 * 1/32 above the true one. */
#ifndef KVX_BASE_HIST_H
#define KVX_BASE_HIST_H

#include <stddef.h>
#include <stdint.h>

#define KVX_HIST_STEPS   32
#define KVX_HIST_BUCKETS ((size_t)KVX_HIST_STEPS * 60)

typedef struct kvx_hist {
    uint64_t buckets[KVX_HIST_BUCKETS];
    uint64_t count;
    uint64_t sum;
    uint64_t max;
} kvx_hist;

/* A zeroed histogram is empty. */
void kvx_hist_add(kvx_hist *hist, uint64_t value);
void kvx_hist_merge(kvx_hist *into, const kvx_hist *from);
/* Smallest bucket end below which at least quantile (0..1) of the values lie, never above max;
 * 0 when empty. */
uint64_t kvx_hist_quantile(const kvx_hist *hist, double quantile);
/* How many values are at most limit, to the histogram's resolution. */
uint64_t kvx_hist_at_most(const kvx_hist *hist, uint64_t limit);

#endif
