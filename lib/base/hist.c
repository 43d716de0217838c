/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hist.h"

#define STEP_BITS 5

_Static_assert(KVX_HIST_STEPS == 1 << STEP_BITS, "steps and their bits agree");

/* Values below the step count have a bucket each; above, a bucket is a power of two and the five
 * bits below the leading one. */
static size_t bucket_of(uint64_t value)
{
    if (value < KVX_HIST_STEPS)
        return (size_t)value;
    const unsigned exponent = 63 - (unsigned)__builtin_clzll(value);
    const unsigned shift = exponent - STEP_BITS;
    return (size_t)shift * KVX_HIST_STEPS + (size_t)(value >> shift);
}

/* The largest value that falls into a bucket. */
static uint64_t bucket_end(size_t bucket)
{
    if (bucket < KVX_HIST_STEPS)
        return bucket;
    const size_t shift = bucket / KVX_HIST_STEPS - 1;
    const uint64_t lead = bucket - shift * KVX_HIST_STEPS;
    /* In the last bucket the shift runs over to 0, and 0 - 1 is right. */
    return ((lead + 1) << shift) - 1;
}

static uint64_t add_saturated(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

void kvx_hist_add(kvx_hist *hist, uint64_t value)
{
    hist->buckets[bucket_of(value)]++;
    hist->count++;
    hist->sum = add_saturated(hist->sum, value);
    if (value > hist->max)
        hist->max = value;
}

void kvx_hist_merge(kvx_hist *into, const kvx_hist *from)
{
    for (size_t i = 0; i < KVX_HIST_BUCKETS; i++)
        into->buckets[i] += from->buckets[i];
    into->count += from->count;
    into->sum = add_saturated(into->sum, from->sum);
    if (from->max > into->max)
        into->max = from->max;
}

/* How many values a quantile asks for: 1 ... count. */
static uint64_t rank_of(uint64_t count, double quantile)
{
    if (!(quantile > 0.0))
        return 1;
    if (quantile >= 1.0)
        return count;
    const double exact = quantile * (double)count;
    uint64_t rank = (uint64_t)exact;
    if ((double)rank < exact)
        rank++;
    if (rank == 0)
        return 1;
    return rank < count ? rank : count;
}

uint64_t kvx_hist_quantile(const kvx_hist *hist, double quantile)
{
    if (hist->count == 0)
        return 0;
    const uint64_t rank = rank_of(hist->count, quantile);
    uint64_t seen = 0;
    for (size_t i = 0; i < KVX_HIST_BUCKETS; i++) {
        seen += hist->buckets[i];
        if (seen >= rank) {
            const uint64_t end = bucket_end(i);
            return end < hist->max ? end : hist->max;
        }
    }
    return hist->max;
}

uint64_t kvx_hist_at_most(const kvx_hist *hist, uint64_t limit)
{
    const size_t last = bucket_of(limit);
    uint64_t count = 0;
    for (size_t i = 0; i <= last; i++)
        count += hist->buckets[i];
    return count;
}
