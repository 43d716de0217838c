/* SPDX-License-Identifier: Apache-2.0 */
/* kvx-bench: measures the library against plain code that does the same. */
#include "bench.h"

#include <popt.h>
#include <stdio.h>
#include <string.h>

#include <kvx/kvx.h>

static const struct bench benches[] = {
    { "cma", "scattered pages by the cma transport, against a loop of process_vm_readv", true,
            cma_scatter_run },
    { "latency", "publish to usable between two processes, without the bytes", false, latency_run },
};

#define BENCH_COUNT (sizeof(benches) / sizeof(benches[0]))

static struct bench_options options = {
    .pages = 1024,
    .page_bytes = 4096,
    .pairs = 101,
    .seed = 1,
};

static const struct poptOption table[] = {
    { "pages", 0, POPT_ARG_INT | POPT_ARGFLAG_SHOW_DEFAULT, &options.pages, 0,
            "pages in one transfer, 1 to 8192", "N" },
    { "bytes", 0, POPT_ARG_INT | POPT_ARGFLAG_SHOW_DEFAULT, &options.page_bytes, 0,
            "bytes of a page, 1 to 1048576", "N" },
    { "pairs", 0, POPT_ARG_INT | POPT_ARGFLAG_SHOW_DEFAULT, &options.pairs, 0,
            "interleaved pairs of measurements, 15 to 100000", "N" },
    { "seed", 0, POPT_ARG_INT | POPT_ARGFLAG_SHOW_DEFAULT, &options.seed, 0,
            "seed of the choice of pages", "N" },
    { "json", 0, POPT_ARG_NONE, &options.json, 0, "print one JSON object", NULL },
    POPT_AUTOHELP POPT_TABLEEND,
};

static void log_to_stderr(void *arg, kvx_log_level level, const char *line)
{
    (void)arg;
    (void)level;
    (void)fprintf(stderr, "kvx-bench: %s\n", line);
}

static const struct bench *bench_find(const char *name)
{
    for (size_t i = 0; name != NULL && i < BENCH_COUNT; i++) {
        if (strcmp(benches[i].name, name) == 0)
            return &benches[i];
    }
    return NULL;
}

static void benches_list(FILE *out)
{
    (void)fprintf(out, "Benchmarks:\n");
    for (size_t i = 0; i < BENCH_COUNT; i++)
        (void)fprintf(out, "  %-10s %s\n", benches[i].name, benches[i].help);
}

static bool option_is_in(const char *name, int value, int min, int max)
{
    if (value >= min && value <= max)
        return true;
    (void)fprintf(stderr, "kvx-bench: --%s %d is not within %d to %d\n", name, value, min, max);
    return false;
}

static bool options_are_good(void)
{
    return option_is_in("pages", options.pages, 1, 8192) &&
           option_is_in("bytes", options.page_bytes, 1, 1 << 20) &&
           option_is_in("pairs", options.pairs, 15, 100000);
}

static void print_json(const struct bench_row *rows, size_t count)
{
    (void)printf("{\"rows\":[");
    for (size_t i = 0; i < count; i++) {
        const struct bench_row *const row = &rows[i];
        (void)printf("%s{\"benchmark\":\"%s\",\"variant\":\"%s\",\"unit\":\"%s\","
                     "\"value\":%.3f,\"base\":%.3f,\"ratio\":%.4f,\"ratio_low\":%.4f,"
                     "\"ratio_high\":%.4f,\"pairs\":%zu,\"pages\":%d,\"page_bytes\":%d}",
                i > 0 ? "," : "", row->name, row->variant, row->unit, row->value, row->base,
                row->ratio, row->ratio_low, row->ratio_high, row->pairs, options.pages,
                options.page_bytes);
    }
    (void)printf("]}\n");
}

static void print_table(const struct bench *bench, const struct bench_row *rows, size_t count)
{
    if (bench->moves_pages)
        (void)printf("%d pages of %d bytes\n", options.pages, options.page_bytes);
    (void)printf("%-10s %-16s %12s %12s %8s   %-18s %6s\n", "benchmark", "variant", "library",
            "plain", "ratio", "95 % interval", "pairs");
    for (size_t i = 0; i < count; i++) {
        const struct bench_row *const row = &rows[i];
        (void)printf("%-10s %-16s %9.1f %s %9.1f %s %8.3f   %.3f ... %.3f    %6zu\n", row->name,
                row->variant, row->value, row->unit, row->base, row->unit, row->ratio,
                row->ratio_low, row->ratio_high, row->pairs);
    }
}

static int bench_run(const struct bench *bench)
{
    struct bench_row rows[BENCH_ROWS_MAX];
    const size_t count = bench->run(&options, rows);
    if (count == 0)
        return 1;
    if (options.json)
        print_json(rows, count);
    else
        print_table(bench, rows, count);
    return 0;
}

int main(int argc, const char **argv)
{
    kvx_log_set(log_to_stderr, NULL, KVX_LOG_WARN);
    poptContext context = poptGetContext("kvx-bench", argc, argv, table, 0);
    poptSetOtherOptionHelp(context, "[OPTION...] cma|latency");

    int status = 2;
    const int parsed = poptGetNextOpt(context);
    const char *const name = poptGetArg(context);
    const struct bench *const bench = bench_find(name);
    if (parsed < -1) {
        (void)fprintf(stderr, "kvx-bench: %s: %s\n", poptBadOption(context, POPT_BADOPTION_NOALIAS),
                poptStrerror(parsed));
    } else if (bench == NULL) {
        (void)fprintf(stderr, "kvx-bench: %s%s\n", name != NULL ? "no such benchmark: " : "",
                name != NULL ? name : "name a benchmark");
        benches_list(stderr);
    } else if (options_are_good()) {
        status = bench_run(bench);
    }
    poptFreeContext(context);
    return status;
}
