/* SPDX-License-Identifier: Apache-2.0 */
/* What a series of measurements says. */
#ifndef BENCH_STATS_H
#define BENCH_STATS_H

#include <stddef.h>

/* Median, and the interval that holds the true one with at least 95 %. */
struct estimate {
    double median;
    double low;
    double high;
};

/* Sorts the values. The interval comes from order statistics: it assumes nothing of their
 * distribution, and with fewer than six values it is all of them. */
struct estimate estimate_median(double *values, size_t count);

#endif
