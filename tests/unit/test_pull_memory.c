/* SPDX-License-Identifier: Apache-2.0 */
/* Each allocation of the engine fails in turn, and each job and link still gets its word. */
#include <criterion/criterion.h>

#include "support/alloc_fail.h"

#include "unit/pull_world.h"

static const world_pull ten_pages = { .first = 0, .stride = 2, .count = 10, .run_pages = 4 };

static kvx_status engine_make(world *w, kvx_puller **puller_out)
{
    const kvx_puller_params params = {
        .settings = &w->shape.settings,
        .ops = scripted_ops(),
        .domain = w->domain,
        .pool = w->pool,
        .metrics = w->metrics,
    };
    return kvx_puller_create(&params, puller_out);
}

Test(pull_memory, create_fails_cleanly)
{
    const world_shape shape = world_shape_small();
    world *w = world_create(&shape, 0);
    kvx_puller *puller = NULL;

    for (uint64_t n = 1; alloc_fail_arm(n); n++) {
        const kvx_status status = engine_make(w, &puller);
        if (!alloc_fail_disarm()) {
            cr_assert_eq(status, KVX_OK);
            cr_assert(n > 3);
            break;
        }
        cr_assert_eq(status, KVX_NO_MEMORY);
        cr_assert(puller == NULL);
    }
    kvx_puller_destroy(&puller);
    world_destroy(w);
}

Test(pull_memory, connect_answers_with_no_memory)
{
    const world_shape shape = world_shape_small();

    for (uint64_t n = 1;; n++) {
        world *w = world_create(&shape, 0);
        (void)alloc_fail_arm(n);
        world_connect(w, 0);
        const bool has_failed = alloc_fail_disarm();
        cr_assert_eq(w->links[0].answers, 0);
        cr_assert(!kvx_puller_is_idle(w->puller));
        world_run(w, 10);
        cr_assert_eq(w->links[0].answers, 1);
        cr_assert_eq(w->links[0].status, has_failed ? KVX_NO_MEMORY : KVX_OK);
        world_destroy(w);
        if (!has_failed)
            break;
    }
}

Test(pull_memory, connect_that_is_dropped_at_once_answers_nothing)
{
    const world_shape shape = world_shape_small();
    world *w = world_create(&shape, 0);

    (void)alloc_fail_arm(1);
    world_connect(w, 0);
    cr_assert(alloc_fail_disarm());
    kvx_puller_drop(w->puller, 0);
    world_run(w, 10);
    cr_assert_eq(w->links[0].answers, 0);
    cr_assert(kvx_puller_is_idle(w->puller));
    world_destroy(w);
}

/* Start a job, with its n-th allocation failing; false: it has fewer. */
static bool pull_fails(uint64_t n)
{
    const world_shape shape = world_shape_small();
    world *w = world_create(&shape, 1);
    world_job *job = world_job_make(w, &ten_pages);

    (void)alloc_fail_arm(n);
    kvx_puller_start(w->puller, job->job, w->now);
    kvx_puller_resume(w->puller, job->job);
    cr_assert_eq(job->failed, 0);
    world_run(w, 100);
    const bool has_failed = alloc_fail_disarm();
    cr_assert_eq(job->done, has_failed ? 0 : 1);
    if (has_failed) {
        cr_assert_eq(job->failed, 1);
        cr_assert_eq(job->status, KVX_NO_MEMORY);
        world_job_stop(w, job);
        (void)world_step(w);
        cr_assert_eq(job->quiet, 1);
    }
    world_destroy(w);
    return has_failed;
}

Test(pull_memory, a_pull_fails_and_is_quiet_after_its_stop)
{
    uint64_t n = 1;

    while (pull_fails(n))
        n++;
    cr_assert(n > 3);
}

Test(pull_memory, a_refused_pull_that_is_stopped_before_it_was_told_is_quiet_only)
{
    const world_shape shape = world_shape_small();
    world *w = world_create(&shape, 1);
    world_job *jobs[3];

    for (uint32_t i = 0; i < 3; i++) {
        jobs[i] = world_job_make(w, &ten_pages);
        (void)alloc_fail_arm(1);
        kvx_puller_start(w->puller, jobs[i]->job, w->now);
        cr_assert(alloc_fail_disarm());
    }
    world_job_stop(w, jobs[1]);
    (void)world_step(w);
    cr_assert_eq(jobs[1]->failed, 0);
    cr_assert_eq(jobs[1]->quiet, 1);
    cr_assert_eq(jobs[0]->failed + jobs[2]->failed, 2);
    world_job_stop(w, jobs[0]);
    world_job_stop(w, jobs[2]);
    (void)world_step(w);
    cr_assert_eq(jobs[0]->quiet + jobs[2]->quiet, 2);
    world_destroy(w);
}
