/* SPDX-License-Identifier: Apache-2.0 */
/* A table of benchmarks behind one program. */
#ifndef BENCH_H
#define BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bench_options {
    int pages;      /* in one transfer */
    int page_bytes; /* bytes of a page */
    int pairs;      /* interleaved measurements */
    int seed;       /* of the choice of pages */
    int json;       /* print one object instead of a table */
};

/* One line of a result; printed by the program. */
struct bench_row {
    const char *name;
    const char *variant;
    const char *unit;
    double value; /* median of what is measured, in unit */
    double base;  /* median of what it is compared with */
    double ratio; /* median of the ratios of the pairs, with its 95 % interval */
    double ratio_low;
    double ratio_high;
    size_t pairs;
};

#define BENCH_ROWS_MAX 16

struct bench {
    const char *name;
    const char *help;
    bool moves_pages; /* takes --pages, --bytes and --seed */
    /* Fills up to BENCH_ROWS_MAX rows; returns how many, 0 on failure, which was printed. */
    size_t (*run)(const struct bench_options *options, struct bench_row *rows_out);
};

size_t cma_scatter_run(const struct bench_options *options, struct bench_row *rows_out);
size_t latency_run(const struct bench_options *options, struct bench_row *rows_out);

#endif
