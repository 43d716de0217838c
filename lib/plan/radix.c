/* SPDX-License-Identifier: Apache-2.0 */
/* Least significant digit first: every pass keeps the order of equal digits. */
#include "plan/plan.h"

static uint32_t digit_of(const kvx_page_pair *pair, uint32_t digit)
{
    return (pair->source >> (digit * KVX_RADIX_BITS)) & (KVX_RADIX_BUCKETS - 1);
}

/* How far a slice goes; takes that from the budget. */
static uint32_t slice_end(const kvx_radix *radix, uint32_t *budget)
{
    const uint32_t left = radix->count - radix->at;
    const uint32_t slice = left < *budget ? left : *budget;

    *budget -= slice;
    return radix->at + slice;
}

static void count_digits(kvx_radix *radix, uint32_t end)
{
    for (; radix->at < end; radix->at++)
        for (uint32_t digit = 0; digit < KVX_RADIX_PASSES; digit++)
            radix->buckets[digit][digit_of(&radix->from[radix->at], digit)]++;
}

/* Turn counts into first positions. False: all pairs have this digit in common. */
static bool buckets_open(kvx_radix *radix, uint32_t *buckets)
{
    uint32_t position = 0;

    for (uint32_t i = 0; i < KVX_RADIX_BUCKETS; i++) {
        const uint32_t count = buckets[i];
        if (count == radix->count)
            return false;
        buckets[i] = position;
        position += count;
    }
    return true;
}

static void move_pairs(kvx_radix *radix, uint32_t end)
{
    const uint32_t digit = radix->pass - 1;

    for (; radix->at < end; radix->at++) {
        const kvx_page_pair *pair = &radix->from[radix->at];
        radix->to[radix->buckets[digit][digit_of(pair, digit)]++] = *pair;
    }
}

static void pass_end(kvx_radix *radix)
{
    kvx_page_pair *sorted = radix->to;

    if (radix->is_open) {
        radix->to = radix->from;
        radix->from = sorted;
    }
    radix->is_open = false;
    radix->at = 0;
    radix->pass++;
}

bool kvx_radix_step(kvx_radix *radix, uint32_t *budget)
{
    while (radix->pass <= KVX_RADIX_PASSES) {
        if (*budget == 0)
            return false;
        if (radix->pass > 0 && !radix->is_open) {
            radix->is_open = buckets_open(radix, radix->buckets[radix->pass - 1]);
            if (!radix->is_open) {
                pass_end(radix);
                continue;
            }
        }
        const uint32_t end = slice_end(radix, budget);
        if (radix->pass == 0)
            count_digits(radix, end);
        else
            move_pairs(radix, end);
        if (end == radix->count)
            pass_end(radix);
    }
    return true;
}
