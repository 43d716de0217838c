/* SPDX-License-Identifier: Apache-2.0 */
/* Random interleavings: jobs on several links start, lose trust, fail and are stopped while reads
 * stall, fail and come late, endpoints die, closes take time or hang, links are dropped. Whatever
 * happens, each job ends once, done or quiet; what is done has its source's bytes; no page is
 * written that belongs to no job; and no bytes have two reads under way (the world and the
 * transport check all that as it happens). */
#include <criterion/criterion.h>

#include "base/clock.h"

#include "support/seed.h"

#include "unit/pull_world.h"

#define LINKS 3

typedef struct play {
    world *w;
    uint64_t random;
    bool is_dropped[WORLD_LINKS_MAX];
} play;

static uint32_t below(play *p, uint64_t limit)
{
    return (uint32_t)test_random_below(&p->random, limit);
}

static world_shape random_shape(play *p)
{
    world_shape shape = world_shape_small();

    shape.component_count = 1 + below(p, 3);
    shape.layer_count = 1 + below(p, 3);
    shape.page_count = 32;
    shape.page_bytes = 1 + below(p, 40);
    shape.local_pad = below(p, 2) * below(p, 9);
    shape.remote_pad = below(p, 2) * below(p, 9);
    shape.limits.reads_in_flight_max = 1 + below(p, 100);
    shape.settings.window_reads = 1 + below(p, 100);
    shape.settings.window_bytes = 1 + below(p, 3000);
    shape.settings.read_bytes_max = 1 + below(p, 300);
    shape.settings.close_ns = below(p, 300) * KVX_NS_PER_MS;
    shape.seed = test_random(&p->random);
    return shape;
}

static void random_start(play *p)
{
    world *w = p->w;

    if (w->job_count == WORLD_JOBS_MAX)
        return;
    const uint32_t count = below(p, 9);
    const world_pull pull = {
        .link = below(p, LINKS),
        .first = below(p, 33 - 2 * count),
        .stride = 1 + below(p, 2),
        .count = count,
        .skip = below(p, 5),
        .run_pages = 1 + below(p, 6),
    };
    if (below(p, 20) == 0)
        (void)world_job_make(w, &pull);
    else
        (void)world_job_start(w, &pull);
}

static world_job *random_job(play *p)
{
    if (p->w->job_count == 0)
        return NULL;
    world_job *job = &p->w->jobs[below(p, p->w->job_count)];
    return job->job == NULL ? NULL : job;
}

/* What the session would do about jobs. */
static void session_act(play *p)
{
    world_job *job = random_job(p);

    if (job == NULL)
        return;
    const bool must_stop = job->failed > 0 || p->is_dropped[job->job->link];
    if (!job->is_stopped && (must_stop || below(p, 10) == 0)) {
        world_job_stop(p->w, job);
        return;
    }
    if (job->is_stopped)
        return;
    if (below(p, 4) == 0)
        job->may_post = below(p, 2) == 0 ? KVX_AGAIN : KVX_OK;
    else if (below(p, 40) == 0)
        job->may_post = KVX_EXPIRED;
    if (below(p, 2) == 0)
        kvx_puller_resume(p->w->puller, job->job);
}

static void transport_act(play *p)
{
    transport_script *script = p->w->script;

    switch (below(p, 12)) {
    case 0: script->is_stalled = below(p, 2) == 0; break;
    case 1: script->take_max = 1 + below(p, 20); break;
    case 2: script->get_again = below(p, 3); break;
    case 3: script->get_fail = below(p, 6) == 0 ? KVX_PEER_LOST : KVX_OK; break;
    case 4: script->delay_max = 1 + below(p, 30); break;
    case 5:
        script->fail_at = scripted_taken(p->w->domain) + below(p, 60);
        script->fail_status = below(p, 3) == 0 ? KVX_PEER_LOST : KVX_READ_FAILED;
        break;
    case 6: script->connect_status = below(p, 8) == 0 ? KVX_UNREACHABLE : KVX_OK; break;
    case 7: script->probe_again = below(p, 4); break;
    case 8: script->probe_status = below(p, 8) == 0 ? KVX_UNREACHABLE : KVX_OK; break;
    case 9: script->import_status = below(p, 8) == 0 ? KVX_PROTOCOL : KVX_OK; break;
    case 10: script->close_again = below(p, 10); break;
    default: script->close_again = below(p, 8) == 0 ? SCRIPTED_FOR_EVER : 0; break;
    }
}

static void link_act(play *p)
{
    const kvx_link_id link = below(p, LINKS);

    if (p->is_dropped[link] || below(p, 80) != 0)
        return;
    p->is_dropped[link] = true;
    kvx_puller_drop(p->w->puller, link);
}

static void random_act(play *p)
{
    switch (below(p, 8)) {
    case 0: random_start(p); break;
    case 1:
    case 2: session_act(p); break;
    case 3: transport_act(p); break;
    case 4: link_act(p); break;
    default:
        p->w->now += below(p, 4) == 0 ? test_random_below(&p->random, 80 * KVX_NS_PER_MS) : 0;
        (void)world_step(p->w);
        break;
    }
}

static bool any_live(const world *w)
{
    for (uint32_t i = 0; i < w->job_count; i++) {
        if (w->jobs[i].job != NULL)
            return true;
    }
    return false;
}

/* Let some finish, stop the others, and let hung closes end. */
static void play_end(play *p)
{
    world *w = p->w;
    const transport_script calm = { .take_max = UINT32_MAX, .delay_max = 1 };

    if (below(p, 2) == 0)
        *w->script = calm;
    for (uint32_t i = 0; i < w->job_count; i++) {
        world_job *job = &w->jobs[i];
        if (job->job == NULL || job->is_stopped)
            continue;
        if (below(p, 2) == 0)
            world_job_stop(w, job);
        if (below(p, 3) == 0)
            (void)world_step(w);
    }
    world_run_until(w, w->now + 2 * KVX_NS_PER_SECOND);
    *w->script = calm;
    world_run_until(w, w->now + 2 * KVX_NS_PER_SECOND);
    for (uint32_t i = 0; i < w->job_count; i++) {
        if (w->jobs[i].job != NULL && !w->jobs[i].is_stopped)
            world_job_stop(w, &w->jobs[i]);
    }
    world_run_until(w, w->now + 2 * KVX_NS_PER_SECOND);
}

static void jobs_check(const world *w)
{
    for (uint32_t i = 0; i < w->job_count; i++) {
        const world_job *job = &w->jobs[i];
        cr_assert_eq(
                job->done + job->quiet, 1, "job %u ended %u + %u times", i, job->done, job->quiet);
        cr_assert(job->held == 0 || job->quiet == 1);
    }
}

Test(pull_random, every_job_ends_once_and_nothing_writes_its_pages_after_that)
{
    const uint64_t rounds = test_rounds(400);
    uint64_t counts[4] = { 0 };

    for (uint64_t round = 0; round < rounds; round++) {
        play p = { .random = test_seed() + round };
        const world_shape shape = random_shape(&p);
        p.w = world_create(&shape, LINKS);
        const uint32_t acts = below(&p, 1500);
        for (uint32_t i = 0; i < acts; i++)
            random_act(&p);
        play_end(&p);
        cr_assert(!any_live(p.w), "round %u", (unsigned)round);
        jobs_check(p.w);
        for (uint32_t i = 0; i < p.w->job_count; i++) {
            counts[0] += p.w->jobs[i].done;
            counts[1] += p.w->jobs[i].quiet;
            counts[2] += p.w->jobs[i].held;
        }
        counts[3] += world_metric(&p.w->metrics->endpoint_closes);
        world_destroy(p.w);
    }
    cr_log_info("%lu done, %lu quiet, %lu held, %lu closes", (unsigned long)counts[0],
            (unsigned long)counts[1], (unsigned long)counts[2], (unsigned long)counts[3]);
    for (uint32_t i = 0; i < 4 && rounds >= 100; i++)
        cr_assert(counts[i] > 0, "the test reaches each end");
}
