/* SPDX-License-Identifier: Apache-2.0 */
/* Scattered pages of another process: the library's cma transport against a plain loop that
 * reads the same sorted ranges with 512 entries a call. */
#include "bench.h"
#include "stats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <kvx/kvx.h>
#include <kvx/transport.h>

#define LOOP_ENTRIES 512
/* Of so many pages in a row one is read, on average. */
#define SPREAD 32

/* What the owner's process tells of itself. */
struct introduction {
    pid_t pid;
    char *base;
    size_t address_length;
    size_t key_length;
    uint8_t address[KVX_BLOB_MAX];
    uint8_t key[KVX_BLOB_MAX];
};

struct scatter {
    const struct bench_options *options;
    const kvx_transport_ops *ops;
    struct introduction owner;
    kvx_domain *domain;
    kvx_ep *ep;
    kvx_rkey *rkey;
    uint64_t pool_bytes;
    char *warm;        /* destination that has been written before */
    uint64_t *sources; /* offset of each page, sorted */
    uint64_t *targets;
    kvx_read *reads;
    kvx_segment *segments;
    struct iovec local[LOOP_ENTRIES];
    struct iovec remote[LOOP_ENTRIES];
    uint64_t random;
    uint32_t completed_count;
    uint32_t failed_count;
};

static void completed(void *arg, uint64_t id, kvx_status status)
{
    struct scatter *const scatter = arg;
    (void)id;
    scatter->completed_count++;
    scatter->failed_count += status != KVX_OK;
}

static kvx_status authorize(void *arg, const kvx_served_range *range)
{
    (void)arg;
    (void)range;
    return KVX_OK;
}

static void served_end(void *arg, uint64_t peer, uint64_t cookie)
{
    (void)arg;
    (void)peer;
    (void)cookie;
}

static kvx_domain *domain_open(const kvx_transport_ops *ops, uint64_t identity, void *arg)
{
    kvx_domain *domain = NULL;
    const kvx_domain_params params = {
        .struct_size = sizeof(params),
        .identity = identity,
        .completed = completed,
        .authorize = authorize,
        .served_end = served_end,
        .arg = arg,
    };
    return ops->open(&params, &domain) == KVX_OK ? domain : NULL;
}

static char *pool_map(uint64_t bytes)
{
    void *const base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return base != MAP_FAILED ? base : NULL;
}

/* The owner: registers a pool, tells its address and key, and waits for the end of the pipe. */
static void owner_live(const kvx_transport_ops *ops, uint64_t pool_bytes, int out, int in)
{
    struct introduction self = { .pid = getpid(), .base = pool_map(pool_bytes) };
    kvx_domain *const domain = domain_open(ops, 1, NULL);
    kvx_mr *mr;
    char end;
    if (self.base == NULL || domain == NULL)
        _exit(1);
    for (uint64_t i = 0; i < pool_bytes; i++)
        self.base[i] = (char)(i * UINT64_C(0x9e3779b97f4a7c15) >> 56);
    if (ops->reg(domain, self.base, pool_bytes, KVX_MEMORY_HOST, &mr) != KVX_OK ||
            ops->address(domain, self.address, sizeof(self.address), &self.address_length) !=
                    KVX_OK ||
            ops->pack_key(mr, self.key, sizeof(self.key), &self.key_length) != KVX_OK)
        _exit(1);
    if (write(out, &self, sizeof(self)) == (ssize_t)sizeof(self))
        (void)read(in, &end, 1);
    _exit(0);
}

static pid_t owner_start(struct scatter *scatter, int *end_out)
{
    int tell[2];
    int end[2];
    if (pipe(tell) != 0 || pipe(end) != 0)
        return -1;
    const pid_t pid = fork();
    if (pid == 0) {
        (void)close(tell[0]);
        (void)close(end[1]);
        owner_live(scatter->ops, scatter->pool_bytes, tell[1], end[0]);
    }
    (void)close(tell[1]);
    (void)close(end[0]);
    size_t got = 0;
    ssize_t part = pid > 0;
    while (part > 0 && got < sizeof(scatter->owner)) {
        part = read(tell[0], (char *)&scatter->owner + got, sizeof(scatter->owner) - got);
        got += part > 0 ? (size_t)part : 0;
    }
    (void)close(tell[0]);
    *end_out = end[1];
    return got == sizeof(scatter->owner) ? pid : -1;
}

static bool scatter_connect(struct scatter *scatter)
{
    const kvx_transport_ops *const ops = scatter->ops;
    const struct introduction *const owner = &scatter->owner;
    kvx_ep_info info;
    char why[256] = "";
    scatter->domain = domain_open(ops, 2, scatter);
    if (scatter->domain == NULL)
        return false;
    return ops->connect(scatter->domain, owner->address, owner->address_length, why, sizeof(why),
                   &scatter->ep) == KVX_OK &&
           ops->probe(scatter->ep, why, sizeof(why), &info) == KVX_OK &&
           ops->import_key(scatter->ep, owner->key, owner->key_length, scatter->pool_bytes,
                   &scatter->rkey) == KVX_OK;
}

static uint64_t random_next(struct scatter *scatter)
{
    scatter->random += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t value = scatter->random;
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

/* One page somewhere in each stretch of SPREAD, never next to that of the stretch before:
 * sorted at the source, shuffled at the target. */
static void draw(struct scatter *scatter)
{
    const uint64_t page_bytes = (uint64_t)scatter->options->page_bytes;
    const uint32_t count = (uint32_t)scatter->options->pages;
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t source = random_next(scatter) % (SPREAD - 1);
        const uint64_t target = random_next(scatter) % (SPREAD - 1);
        const uint32_t other = (uint32_t)(random_next(scatter) % (i + 1));
        scatter->sources[i] = ((uint64_t)i * SPREAD + source) * page_bytes;
        scatter->targets[i] = scatter->targets[other];
        scatter->targets[other] = ((uint64_t)i * SPREAD + target) * page_bytes;
    }
}

static double now_us(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* The plain loop. Returns microseconds, below 0 on failure. */
static double run_loop(struct scatter *scatter, char *into)
{
    const size_t page_bytes = (size_t)scatter->options->page_bytes;
    const uint32_t total = (uint32_t)scatter->options->pages;
    const double start = now_us();
    for (uint32_t done = 0; done < total;) {
        const uint32_t left = total - done;
        const uint32_t count = left < LOOP_ENTRIES ? left : LOOP_ENTRIES;
        for (uint32_t i = 0; i < count; i++) {
            scatter->local[i] = (struct iovec){ into + scatter->targets[done + i], page_bytes };
            scatter->remote[i] =
                    (struct iovec){ scatter->owner.base + scatter->sources[done + i], page_bytes };
        }
        const ssize_t got = process_vm_readv(
                scatter->owner.pid, scatter->local, count, scatter->remote, count, 0);
        if (got != (ssize_t)(count * page_bytes))
            return -1;
        done += count;
    }
    return now_us() - start;
}

/* The library, as an engine would call it: reads ready, then get and progress. */
static double run_library(struct scatter *scatter, char *into)
{
    const uint64_t page_bytes = (uint64_t)scatter->options->page_bytes;
    const uint32_t total = (uint32_t)scatter->options->pages;
    for (uint32_t i = 0; i < total; i++) {
        scatter->segments[i] = (kvx_segment){ into + scatter->targets[i], page_bytes };
        scatter->reads[i] = (kvx_read){
            .id = i,
            .rkey = scatter->rkey,
            .remote_off = scatter->sources[i],
            .length_bytes = page_bytes,
            .segments = &scatter->segments[i],
            .segment_count = 1,
        };
    }
    scatter->completed_count = 0;
    scatter->failed_count = 0;
    const double start = now_us();
    for (uint32_t posted = 0; scatter->completed_count < total;) {
        uint32_t taken;
        if (posted < total && scatter->ops->get(scatter->ep, scatter->reads + posted,
                                      total - posted, &taken) == KVX_OK)
            posted += taken;
        if (!scatter->ops->progress(scatter->domain) && posted == total)
            break;
    }
    const double end = now_us();
    const bool is_good = scatter->completed_count == total && scatter->failed_count == 0;
    return is_good ? end - start : -1;
}

typedef double (*run_fn)(struct scatter *scatter, char *into);

/* Time one way, into the warm pool or into one that was never touched. */
static double measure(struct scatter *scatter, run_fn run, bool is_warm)
{
    if (is_warm)
        return run(scatter, scatter->warm);
    char *const fresh = pool_map(scatter->pool_bytes);
    if (fresh == NULL)
        return -1;
    const double us = run(scatter, fresh);
    (void)munmap(fresh, scatter->pool_bytes);
    return us;
}

/* Untimed passes that bring the caches to the state they then stay in; with fewer, whoever is
 * timed first pays for the second pass too, which was twice as slow as the third. */
static bool settle(struct scatter *scatter)
{
    bool is_good = true;
    for (int pass = 0; pass < 3; pass++)
        is_good = is_good && run_loop(scatter, scatter->warm) >= 0;
    return is_good;
}

/* Interleaved pairs over fresh choices of pages; who goes first alternates. */
static bool compare(struct scatter *scatter, bool is_warm, struct bench_row *row_out)
{
    const size_t pairs = (size_t)scatter->options->pairs;
    double *const library = calloc(3 * pairs, sizeof(*library));
    double *const loop = library + pairs;
    double *const ratio = loop + pairs;
    bool is_good = library != NULL;
    for (size_t i = 0; i < pairs && is_good; i++) {
        draw(scatter);
        is_good = settle(scatter);
        if (i % 2 == 0)
            library[i] = measure(scatter, run_library, is_warm);
        loop[i] = measure(scatter, run_loop, is_warm);
        if (i % 2 != 0)
            library[i] = measure(scatter, run_library, is_warm);
        ratio[i] = library[i] / loop[i];
        is_good = is_good && library[i] > 0 && loop[i] > 0;
    }
    if (is_good) {
        const struct estimate of_ratio = estimate_median(ratio, pairs);
        *row_out = (struct bench_row){
            .name = "cma",
            .variant = is_warm ? "warm" : "never touched",
            .unit = "us",
            .value = estimate_median(library, pairs).median,
            .base = estimate_median(loop, pairs).median,
            .ratio = of_ratio.median,
            .ratio_low = of_ratio.low,
            .ratio_high = of_ratio.high,
            .pairs = pairs,
        };
    }
    free(library);
    return is_good;
}

static bool scatter_init(struct scatter *scatter, const struct bench_options *options)
{
    const size_t pages = (size_t)options->pages;
    *scatter = (struct scatter){
        .options = options,
        .ops = kvx_transport_find("cma"),
        .pool_bytes = (uint64_t)pages * SPREAD * (uint64_t)options->page_bytes,
        .random = (uint64_t)options->seed,
    };
    if (scatter->ops == NULL)
        return false;
    scatter->warm = pool_map(scatter->pool_bytes);
    scatter->sources = calloc(pages, sizeof(*scatter->sources));
    scatter->targets = calloc(pages, sizeof(*scatter->targets));
    scatter->reads = calloc(pages, sizeof(*scatter->reads));
    scatter->segments = calloc(pages, sizeof(*scatter->segments));
    if (scatter->warm == NULL || scatter->sources == NULL || scatter->targets == NULL ||
            scatter->reads == NULL || scatter->segments == NULL)
        return false;
    return true;
}

static void scatter_fini(struct scatter *scatter)
{
    if (scatter->rkey != NULL)
        scatter->ops->forget_key(scatter->rkey);
    if (scatter->ep != NULL)
        (void)scatter->ops->disconnect(scatter->ep);
    if (scatter->domain != NULL)
        scatter->ops->close(scatter->domain);
    if (scatter->warm != NULL)
        (void)munmap(scatter->warm, scatter->pool_bytes);
    free(scatter->sources);
    free(scatter->targets);
    free(scatter->reads);
    free(scatter->segments);
}

/* Both variants, once the owner lives. */
static size_t scatter_measure(struct scatter *scatter, struct bench_row *rows_out)
{
    memset(scatter->warm, 1, scatter->pool_bytes);
    if (!scatter_connect(scatter))
        return 0;
    const bool is_good =
            compare(scatter, true, &rows_out[0]) && compare(scatter, false, &rows_out[1]);
    return is_good ? 2 : 0;
}

size_t cma_scatter_run(const struct bench_options *options, struct bench_row *rows_out)
{
    struct scatter scatter;
    size_t count = 0;
    if (scatter_init(&scatter, options)) {
        int end = -1;
        const pid_t owner = owner_start(&scatter, &end);
        if (owner > 0)
            count = scatter_measure(&scatter, rows_out);
        (void)close(end);
        if (owner > 0)
            (void)waitpid(owner, NULL, 0);
    }
    scatter_fini(&scatter);
    if (count == 0)
        (void)fprintf(stderr, "kvx-bench: cma could not be measured here\n");
    return count;
}
