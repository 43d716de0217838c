/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/pull_world.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define ADDRESS "here"

static const char *const component_names[WORLD_COMPONENTS_MAX] = { "kv", "state", "index" };

world_shape world_shape_small(void)
{
    return (world_shape){
        .component_count = 2,
        .layer_count = 3,
        .page_count = 64,
        .page_bytes = 24,
        .local_pad = 8,
        .remote_pad = 3,
        .limits = { .read_bytes_max = 1 << 20, .segments_max = 1, .reads_in_flight_max = 256 },
        .settings = { .drain_ns = 100 * KVX_NS_PER_MS,
                .close_ns = KVX_NS_PER_SECOND,
                .window_bytes = 1 << 20,
                .window_reads = 256,
                .read_bytes_max = 1 << 16,
                .peers_max = 16 },
        .seed = 1,
    };
}

static uint32_t region_count(const world *w)
{
    return w->shape.component_count * w->shape.layer_count;
}

static uint64_t page_bytes(const world *w, uint32_t component)
{
    return w->shape.page_bytes + component;
}

/* Regions of the local side, component after component, have their places one after another. */
static uint8_t *local_page(const world *w, uint32_t region, kvx_page page)
{
    return (uint8_t *)w->pool->regions[region].base + page * w->pool->regions[region].page_stride;
}

static void world_take_job_back(world *w, world_job *job);

static world_job *job_of(world *w, const kvx_pull_job *job)
{
    cr_assert(job->nonce > 0 && job->nonce <= w->job_count);
    cr_assert_eq(w->jobs[job->nonce - 1].job, job, "the engine reports a job that ended");
    return &w->jobs[job->nonce - 1];
}

static kvx_status hook_take(void *arg, kvx_pull_job *job, uint32_t component, uint32_t first,
        uint32_t count, kvx_page *page_out)
{
    world *w = arg;
    world_job *mine = job_of(w, job);
    const uint32_t owner = (uint32_t)job->nonce;

    cr_assert(!mine->is_stopped && mine->failed == 0);
    cr_assert(count > 0 && first + count <= job->tables[component].page_count);
    for (uint32_t i = first; i < first + count; i++) {
        const kvx_page page = job->tables[component].destination[i];
        const bool is_outside = page >= w->shape.page_count;
        if (is_outside || w->owners[component][page] != 0) {
            *page_out = page;
            return is_outside ? KVX_INVALID : KVX_BUSY;
        }
        w->owners[component][page] = owner;
    }
    return KVX_OK;
}

static kvx_status hook_may_post(void *arg, kvx_pull_job *job)
{
    world_job *mine = job_of(arg, job);

    cr_assert(!mine->is_stopped && mine->failed == 0, "nothing is posted any more");
    cr_assert_eq(mine->planned, 1);
    mine->asked++;
    mine->waits_for_trust |= mine->may_post == KVX_AGAIN;
    return mine->may_post;
}

static void hook_planned(void *arg, kvx_pull_job *job)
{
    job_of(arg, job)->planned++;
}

static void hook_failed(
        void *arg, kvx_pull_job *job, kvx_status status, bool has_page, kvx_page page)
{
    world_job *mine = job_of(arg, job);

    cr_assert(status != KVX_OK && !mine->is_stopped);
    mine->failed++;
    mine->status = status;
    mine->has_page = has_page;
    mine->page = page;
    cr_assert_eq(mine->failed, 1, "a job fails once");
}

/* The bytes of a page that was pulled are those of its source page in the region of that name. */
static void page_check(
        const world *w, const kvx_pull_job *job, uint32_t region, kvx_page page, uint32_t index)
{
    const uint32_t component = w->pool->regions[region].component;
    const uint32_t remote = region_count(w) - 1 - region;
    const uint64_t stride = w->hello->regions[remote].page_stride;
    const kvx_page_run *run = job->tables[component].source;
    uint32_t at = index + job->tables[component].source_skip;
    scripted_key key;

    for (; at >= run->count; run++)
        at -= run->count;
    memcpy(&key, w->hello->paths[0].keys[remote].data, sizeof(key));
    const uint8_t *wanted = key.base + (run->first + at) * stride;
    cr_assert(memcmp(local_page(w, region, page), wanted, page_bytes(w, component)) == 0,
            "region %u page %u holds its source page %u", region, page, run->first + at);
}

static void pages_check(const world *w, const kvx_pull_job *job)
{
    for (uint32_t region = 0; region < region_count(w); region++) {
        const uint32_t component = w->pool->regions[region].component;
        for (uint32_t i = 0; i < job->tables[component].page_count; i++)
            page_check(w, job, region, job->tables[component].destination[i], i);
    }
}

static void hook_done(void *arg, kvx_pull_job *job, const kvx_pull_stats *stats)
{
    world *w = arg;
    world_job *mine = job_of(w, job);

    cr_assert(!mine->is_stopped && mine->failed == 0 && mine->planned == 1);
    pages_check(w, job);
    mine->done++;
    mine->stats = *stats;
    world_take_job_back(w, mine);
}

static void hook_quiet(void *arg, kvx_pull_job *job, const kvx_pull_stats *stats)
{
    world_job *mine = job_of(arg, job);

    cr_assert(mine->is_stopped);
    mine->quiet++;
    mine->stats = *stats;
    world_take_job_back(arg, mine);
}

static void hook_held(void *arg, kvx_pull_job *job)
{
    world_job *mine = job_of(arg, job);

    cr_assert(mine->is_stopped);
    mine->held++;
    cr_assert_eq(mine->held, 1, "a job is held once");
}

static void hook_data_ready(
        void *arg, kvx_link_id link, kvx_status status, const char *why, const kvx_ep_info *info)
{
    world *w = arg;

    cr_assert(link < WORLD_LINKS_MAX);
    w->links[link].answers++;
    w->links[link].status = status;
    w->links[link].has_info = info != NULL;
    (void)snprintf(w->links[link].why, sizeof(w->links[link].why), "%s", why);
}

static void on_completed(void *arg, uint64_t id, kvx_status status)
{
    world *w = arg;

    kvx_puller_completed(w->puller, id, status);
}

/* A write into memory whose job ended would be into somebody else's pages. */
static void on_wrote(void *arg, const void *base, uint64_t length_bytes)
{
    const world *w = arg;
    const uint8_t *at = base;

    for (uint32_t r = 0; r < region_count(w); r++) {
        const kvx_region *region = &w->pool->regions[r];
        const uint8_t *begin = region->base;
        const uint8_t *end = begin + region->page_stride * w->shape.page_count;
        if (at < begin || at >= end)
            continue;
        const uint64_t last = (uint64_t)(at - begin) + length_bytes - 1;
        cr_assert(at + length_bytes <= end);
        for (uint64_t page = (uint64_t)(at - begin) / region->page_stride;
                page <= last / region->page_stride; page++)
            cr_assert(w->owners[region->component][page] != 0,
                    "page %u is written and belongs to no pull", (unsigned)page);
        return;
    }
    cr_assert_fail("a write outside of the pool");
}

static void pages_give_back(world *w, const world_job *job)
{
    const uint32_t owner = (uint32_t)(job - w->jobs) + 1;

    for (uint32_t c = 0; c < w->shape.component_count; c++) {
        for (uint32_t page = 0; page < w->shape.page_count; page++) {
            if (w->owners[c][page] == owner)
                w->owners[c][page] = 0;
        }
    }
}

static void job_free(kvx_pull_job *job)
{
    for (uint32_t c = 0; c < job->component_count; c++) {
        free((void *)(uintptr_t)job->tables[c].source);
        free((void *)(uintptr_t)job->tables[c].destination);
    }
    free(job);
}

static void world_take_job_back(world *w, world_job *job)
{
    cr_assert_eq(job->job->pull, NULL);
    cr_assert_eq(job->done + job->quiet, 1, "a job ends once");
    pages_give_back(w, job);
    job_free(job->job);
    job->job = NULL;
}

static void *must_calloc(size_t count, size_t size)
{
    void *memory = calloc(count, size);

    cr_assert(memory != NULL);
    return memory;
}

static void local_create(world *w)
{
    kvx_component components[WORLD_COMPONENTS_MAX];
    kvx_region regions[WORLD_COMPONENTS_MAX * 16];
    uint64_t at = 0;

    cr_assert(w->shape.layer_count <= 16);
    w->local_bytes = region_count(w) * w->shape.page_count *
                     (w->shape.page_bytes + w->shape.component_count + w->shape.local_pad);
    w->local = must_calloc(w->local_bytes, 1);
    for (uint32_t c = 0; c < w->shape.component_count; c++) {
        components[c] = (kvx_component){ component_names[c], 16, w->shape.page_count, "token" };
        w->owners[c] = must_calloc(w->shape.page_count, sizeof(*w->owners[c]));
        for (uint32_t layer = 0; layer < w->shape.layer_count; layer++) {
            const uint64_t stride = page_bytes(w, c) + w->shape.local_pad;
            regions[c * w->shape.layer_count + layer] = (kvx_region){
                .component = c,
                .role = "k",
                .layer = layer,
                .base = w->local + at,
                .page_bytes = page_bytes(w, c),
                .page_stride = stride,
            };
            at += stride * w->shape.page_count;
        }
    }
    const kvx_layout layout = { components, w->shape.component_count, regions, region_count(w) };
    cr_assert_eq(kvx_pool_create(&layout, &w->pool), KVX_OK);
}

static void remote_region_create(world *w, uint32_t index, uint64_t *at, uint8_t *keys)
{
    const uint32_t local = region_count(w) - 1 - index; /* in the opposite order */
    const uint32_t component = w->pool->regions[local].component;
    kvx_hello_region *region = &w->hello->regions[index];

    region->component = component;
    region->layer = w->pool->regions[local].layer;
    (void)snprintf(region->role, sizeof(region->role), "k");
    region->page_bytes = page_bytes(w, component);
    region->page_stride = region->page_bytes + w->shape.remote_pad;
    const scripted_key key = {
        .base = w->remote + *at,
        .length_bytes = region->page_stride * (w->shape.page_count - 1) + region->page_bytes,
    };
    memcpy(keys + index * sizeof(key), &key, sizeof(key));
    w->hello->paths[0].keys[index] = (kvx_blob){ keys + index * sizeof(key), sizeof(key) };
    *at += region->page_stride * w->shape.page_count;
}

static void remote_create(world *w)
{
    uint64_t at = 0;

    w->remote_bytes = region_count(w) * w->shape.page_count *
                      (w->shape.page_bytes + w->shape.component_count + w->shape.remote_pad);
    w->remote = must_calloc(w->remote_bytes, 1);
    for (uint64_t i = 0; i < w->remote_bytes; i++)
        w->remote[i] = (uint8_t)(i * 2654435761u >> 13);
    kvx_hello *hello = w->hello = must_calloc(1, sizeof(*hello));
    hello->component_count = w->shape.component_count;
    for (uint32_t c = 0; c < hello->component_count; c++) {
        (void)snprintf(hello->components[c].name, KVX_NAME_MAX, "%s", component_names[c]);
        hello->components[c].page_count = w->shape.page_count;
    }
    hello->region_count = region_count(w);
    hello->regions = must_calloc(hello->region_count, sizeof(*hello->regions));
    hello->path_count = 1;
    hello->paths[0].address = (kvx_blob){ (const uint8_t *)ADDRESS, sizeof(ADDRESS) };
    hello->paths[0].keys = must_calloc(hello->region_count, sizeof(kvx_blob));
    hello->storage = must_calloc(hello->region_count, sizeof(scripted_key));
    for (uint32_t i = 0; i < hello->region_count; i++)
        remote_region_create(w, i, &at, hello->storage);
}

static void engine_create(world *w)
{
    const scripted_params transport = {
        .limits = w->shape.limits,
        .seed = w->shape.seed,
        .completed = on_completed,
        .wrote = on_wrote,
        .arg = w,
    };
    w->domain = scripted_create(&transport);
    w->script = scripted_script(w->domain);
    const kvx_puller_params params = {
        .settings = &w->shape.settings,
        .ops = scripted_ops(),
        .domain = w->domain,
        .pool = w->pool,
        .metrics = w->metrics,
        .hooks = { w, hook_take, hook_may_post, hook_planned, hook_done, hook_failed, hook_quiet,
                hook_held, hook_data_ready },
    };
    cr_assert_eq(kvx_puller_create(&params, &w->puller), KVX_OK);
}

world *world_create(const world_shape *shape, uint32_t link_count)
{
    world *w = must_calloc(1, sizeof(*w));

    w->shape = *shape;
    w->now = 5 * KVX_NS_PER_SECOND;
    w->metrics = must_calloc(1, sizeof(*w->metrics));
    local_create(w);
    remote_create(w);
    engine_create(w);
    for (uint32_t link = 0; link < link_count; link++)
        world_connect(w, link);
    world_run(w, 10);
    for (uint32_t link = 0; link < link_count; link++)
        cr_assert(w->links[link].answers == 1 && w->links[link].status == KVX_OK);
    return w;
}

void world_destroy(world *w)
{
    for (uint32_t link = 0; link < WORLD_LINKS_MAX; link++)
        kvx_puller_drop(w->puller, link);
    world_run(w, 100);
    cr_assert(kvx_puller_is_idle(w->puller));
    cr_assert_eq(kvx_puller_next_due(w->puller), KVX_NEVER);
    cr_assert_eq(world_metric(&w->metrics->reads_in_flight), 0);
    cr_assert_eq(world_metric(&w->metrics->bytes_in_flight), 0);
    kvx_puller_destroy(&w->puller);
    cr_assert(w->puller == NULL);
    scripted_destroy(w->domain);
    kvx_pool_destroy(&w->pool);
    kvx_hello_destroy(&w->hello);
    for (uint32_t c = 0; c < WORLD_COMPONENTS_MAX; c++)
        free(w->owners[c]);
    free(w->local);
    free(w->remote);
    free(w->metrics);
    free(w);
}

void world_connect(world *w, kvx_link_id link)
{
    kvx_puller_connect(w->puller, link, w->hello, 0, w->now);
}

bool world_step(world *w)
{
    return kvx_puller_step(w->puller, w->now);
}

void world_run(world *w, uint32_t steps)
{
    while (steps-- > 0 && (world_step(w) || kvx_puller_next_due(w->puller) <= w->now))
        ;
}

void world_run_until(world *w, uint64_t until)
{
    for (;;) {
        const bool has_more = world_step(w);
        const uint64_t due = kvx_puller_next_due(w->puller);
        if (has_more || due <= w->now)
            continue;
        if (due >= until)
            break;
        w->now = due;
    }
    w->now = until;
    (void)world_step(w);
}

static void table_make(const world *w, kvx_pull_job *job, uint32_t c, const world_pull *pull)
{
    const uint32_t source_pages = pull->count + pull->skip;
    const uint32_t run_pages = pull->run_pages == 0 ? 1 : pull->run_pages;
    kvx_page *pages = must_calloc(pull->count + 1, sizeof(*pages));
    kvx_page_run *runs = must_calloc(source_pages + 1, sizeof(*runs));
    uint32_t run_count = 0;
    uint32_t at = w->shape.page_count; /* runs from the end of the remote pool to its front */

    for (uint32_t i = 0; i < pull->count; i++)
        pages[i] = pull->first + i * pull->stride;
    for (uint32_t left = source_pages; left > 0;) {
        const uint32_t count = left < run_pages ? left : run_pages;
        cr_assert(at >= count);
        at -= count;
        runs[run_count++] = (kvx_page_run){ .first = at, .count = count };
        left -= count;
    }
    job->tables[c].source = runs;
    job->tables[c].source_count = run_count;
    job->tables[c].source_skip = pull->skip;
    job->tables[c].destination = pages;
    job->tables[c].page_count = pull->count;
}

world_job *world_job_make(world *w, const world_pull *pull)
{
    cr_assert(w->job_count < WORLD_JOBS_MAX);
    world_job *mine = &w->jobs[w->job_count++];
    kvx_pull_job *job = must_calloc(1, sizeof(*job));

    job->nonce = w->job_count;
    job->link = pull->link;
    job->component_count = w->shape.component_count;
    for (uint32_t c = 0; c < job->component_count; c++)
        table_make(w, job, c, pull);
    mine->job = job;
    return mine;
}

world_job *world_job_start(world *w, const world_pull *pull)
{
    world_job *job = world_job_make(w, pull);

    kvx_puller_start(w->puller, job->job, w->now);
    return job;
}

void world_job_stop(world *w, world_job *job)
{
    job->is_stopped = true;
    kvx_puller_stop(w->puller, job->job, w->now);
}

uint64_t world_metric(const _Atomic uint64_t *metric)
{
    return atomic_load(metric);
}
