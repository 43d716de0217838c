/* SPDX-License-Identifier: Apache-2.0 */
#include "stats.h"

#include <math.h>
#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* How many values may be left out at each end: the true median lies below the k-th smallest of
 * n values with the chance that fewer than k of n fair coins fall on one side. In logarithms,
 * since half to the power of n is no double for large n. */
static size_t left_out(size_t count)
{
    double log_chance = (double)count * log(0.5); /* of exactly k coins, k = 0 */
    double sum = exp(log_chance);
    size_t k = 0;
    while (sum <= 0.025 && k + 1 < count / 2) {
        log_chance += log((double)(count - k) / (double)(k + 1));
        sum += exp(log_chance);
        k++;
    }
    return k;
}

struct estimate estimate_median(double *values, size_t count)
{
    qsort(values, count, sizeof(*values), compare);
    const size_t k = left_out(count);
    const size_t skipped = k > 0 ? k - 1 : 0;
    const double middle = (values[(count - 1) / 2] + values[count / 2]) / 2;
    return (struct estimate){ middle, values[skipped], values[count - 1 - skipped] };
}
