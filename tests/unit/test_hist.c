/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hist.h"
#include "support/seed.h"

static kvx_hist hist;
static kvx_hist other;
static kvx_hist both;

static void clear(void)
{
    memset(&hist, 0, sizeof(hist));
    memset(&other, 0, sizeof(other));
    memset(&both, 0, sizeof(both));
}

/* Values of all sizes, small ones as often as large ones. */
static uint64_t random_value(uint64_t *random)
{
    return test_random(random) >> test_random_below(random, 64);
}

Test(hist, an_empty_one_says_zero, .init = clear)
{
    cr_expect_eq(kvx_hist_quantile(&hist, 0.5), 0);
    cr_expect_eq(kvx_hist_at_most(&hist, UINT64_MAX), 0);
}

Test(hist, small_values_are_exact, .init = clear)
{
    for (uint64_t value = 0; value < 32; value++)
        kvx_hist_add(&hist, value);
    cr_expect_eq(kvx_hist_quantile(&hist, 0.0), 0);
    cr_expect_eq(kvx_hist_quantile(&hist, 0.5), 15);
    cr_expect_eq(kvx_hist_quantile(&hist, 1.0), 31);
    cr_expect_eq(kvx_hist_at_most(&hist, 9), 10);
    cr_expect_eq(hist.sum, 31 * 32 / 2);
    cr_expect_eq(hist.count, 32);
}

Test(hist, quantiles_outside_zero_to_one_are_the_ends, .init = clear)
{
    kvx_hist_add(&hist, 1);
    kvx_hist_add(&hist, 2);
    cr_expect_eq(kvx_hist_quantile(&hist, -1.0), 1);
    cr_expect_eq(kvx_hist_quantile(&hist, 2.0), 2);
    cr_expect_eq(kvx_hist_quantile(&hist, (double)NAN), 1);
}

Test(hist, the_largest_value_has_a_bucket, .init = clear)
{
    kvx_hist_add(&hist, UINT64_MAX);
    kvx_hist_add(&hist, UINT64_MAX);
    cr_expect_eq(hist.buckets[KVX_HIST_BUCKETS - 1], 2);
    cr_expect_eq(kvx_hist_quantile(&hist, 0.5), UINT64_MAX);
    cr_expect_eq(hist.sum, UINT64_MAX);
}

Test(hist, a_quantile_is_never_above_the_largest_value, .init = clear)
{
    kvx_hist_add(&hist, 1000001);
    cr_expect_eq(kvx_hist_quantile(&hist, 0.99), 1000001);
}

static int by_value(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a;
    const uint64_t y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

Test(hist, a_quantile_is_at_most_one_32nd_above_the_true_one)
{
    static uint64_t values[1000];
    uint64_t random = test_seed();
    for (uint64_t round = 0; round < test_rounds(100); round++) {
        const size_t count = 1 + test_random_below(&random, 1000);
        clear();
        for (size_t i = 0; i < count; i++) {
            values[i] = random_value(&random);
            kvx_hist_add(&hist, values[i]);
        }
        qsort(values, count, sizeof(values[0]), by_value);
        for (size_t rank = 1; rank <= count; rank++) {
            /* Half a rank below, so that rounding cannot reach the next one. */
            const double quantile = ((double)rank - 0.5) / (double)count;
            const uint64_t truth = values[rank - 1];
            const uint64_t told = kvx_hist_quantile(&hist, quantile);
            cr_assert_geq(told, truth);
            cr_assert_leq(told - truth, truth / 32);
        }
    }
}

Test(hist, merging_equals_adding_to_one)
{
    uint64_t random = test_seed();
    for (uint64_t round = 0; round < test_rounds(100); round++) {
        clear();
        for (int i = 0; i < 300; i++) {
            const uint64_t value = random_value(&random);
            kvx_hist_add(test_random_below(&random, 2) == 0 ? &hist : &other, value);
            kvx_hist_add(&both, value);
        }
        kvx_hist_merge(&hist, &other);
        cr_assert_eq(memcmp(&hist, &both, sizeof(hist)), 0);
    }
}

Test(hist, at_most_counts_every_value_that_is)
{
    uint64_t random = test_seed();
    for (uint64_t round = 0; round < test_rounds(100); round++) {
        const uint64_t limit = random_value(&random);
        uint64_t surely = 0;
        uint64_t maybe = 0;
        clear();
        for (int i = 0; i < 300; i++) {
            const uint64_t value = random_value(&random);
            kvx_hist_add(&hist, value);
            surely += value <= limit;
            maybe += value <= limit || value - limit <= limit / 32;
        }
        cr_assert_geq(kvx_hist_at_most(&hist, limit), surely);
        cr_assert_leq(kvx_hist_at_most(&hist, limit), maybe);
    }
}
