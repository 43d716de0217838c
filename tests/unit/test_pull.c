/* SPDX-License-Identifier: Apache-2.0 */
/* Pulls that are not stopped: planning, posting, windows, trust, failures. */
#include <criterion/criterion.h>
#include <string.h>

#include "base/clock.h"

#include "unit/pull_world.h"

static const world_pull ten_pages = { .first = 3, .stride = 2, .count = 10, .run_pages = 4 };

Test(pull, brings_the_pages_of_every_region)
{
    const world_shape shape = world_shape_small();
    world *w = world_create(&shape, 1);
    world_job *job = world_job_start(w, &ten_pages);

    world_run(w, 100);
    cr_assert_eq(job->done, 1);
    cr_assert_eq(job->planned, 1);
    cr_assert_eq(job->stats.pages, 10 * 3 * 2);
    cr_assert_eq(job->stats.bytes, 10 * 3 * (24 + 25));
    cr_assert_eq(job->stats.reads, scripted_taken(w->domain));
    cr_assert_eq(world_metric(&w->metrics->bytes_read), job->stats.bytes);
    cr_assert_eq(world_metric(&w->metrics->reads), job->stats.reads);
    cr_assert_eq(world_metric(&w->metrics->pages_read), job->stats.pages);
    world_destroy(w);
}

Test(pull, reads_neighbours_on_both_sides_at_once)
{
    world_shape shape = world_shape_small();
    shape.local_pad = 0;
    shape.remote_pad = 0;
    world *w = world_create(&shape, 1);
    const world_pull pull = { .first = 0, .stride = 1, .count = 32, .run_pages = 32 };
    world_job *job = world_job_start(w, &pull);

    world_run(w, 100);
    cr_assert_eq(job->done, 1);
    cr_assert_eq(job->stats.reads, 6, "one for each region");
    world_destroy(w);
}

Test(pull, leaves_out_the_front_of_the_source_table)
{
    const world_shape shape = world_shape_small();
    world *w = world_create(&shape, 1);
    const world_pull pull = { .first = 1, .stride = 3, .count = 9, .skip = 7, .run_pages = 5 };
    world_job *job = world_job_start(w, &pull);

    world_run(w, 100);
    cr_assert_eq(job->done, 1);
    world_destroy(w);
}

Test(pull, of_no_pages_is_done_in_the_next_step)
{
    const world_shape shape = world_shape_small();
    world *w = world_create(&shape, 1);
    const world_pull pull = { .count = 0 };
    world_job *job = world_job_start(w, &pull);

    cr_assert_eq(job->done, 0, "nothing is reported from inside start");
    (void)world_step(w);
    cr_assert_eq(job->done, 1);
    cr_assert_eq(job->stats.bytes + job->stats.reads + job->stats.pages, 0);
    world_destroy(w);
}

Test(pull, cuts_reads_at_the_cap)
{
    world_shape shape = world_shape_small();
    shape.settings.read_bytes_max = 7;
    world *w = world_create(&shape, 1);
    world_job *job = world_job_start(w, &ten_pages);

    world_run(w, 1000);
    cr_assert_eq(job->done, 1);
    cr_assert_eq(job->stats.reads, 10 * 3 * (4 + 4));
    world_destroy(w);
}

Test(pull, larger_than_a_slice_is_planned_in_several_steps)
{
    world_shape shape = world_shape_small();
    shape.component_count = 1;
    shape.layer_count = 1;
    shape.page_count = 100000;
    shape.page_bytes = 1;
    shape.local_pad = 0;
    shape.remote_pad = 0;
    world *w = world_create(&shape, 1);
    const world_pull pull = { .first = 0, .stride = 1, .count = 100000, .run_pages = 50000 };
    world_job *job = world_job_start(w, &pull);
    uint32_t steps = 0;

    while (job->planned == 0 && steps < 1000) {
        cr_assert(world_step(w) || job->planned == 1);
        steps++;
    }
    cr_assert(steps > 4 && steps < 1000);
    world_run(w, 100);
    cr_assert_eq(job->done, 1);
    world_destroy(w);
}

Test(pull, keeps_reads_and_bytes_within_its_window)
{
    world_shape shape = world_shape_small();
    shape.settings.window_reads = 9;
    shape.settings.window_bytes = 130;
    world *w = world_create(&shape, 1);
    w->script->delay_max = 5;
    world_job *first = world_job_start(w, &ten_pages);
    const world_pull other = { .first = 2, .stride = 2, .count = 12 };
    world_job *second = world_job_start(w, &other);

    for (uint32_t i = 0; i < 2000 && first->done + second->done < 2; i++) {
        (void)world_step(w);
        cr_assert(scripted_pending(w->domain) <= 9);
        cr_assert(scripted_pending_bytes(w->domain) <= 130);
        cr_assert_eq(scripted_pending(w->domain), world_metric(&w->metrics->reads_in_flight));
        cr_assert_eq(scripted_pending_bytes(w->domain), world_metric(&w->metrics->bytes_in_flight));
    }
    cr_assert_eq(first->done + second->done, 2);
    world_destroy(w);
}

Test(pull, never_makes_a_read_that_its_window_cannot_hold)
{
    world_shape shape = world_shape_small();
    shape.settings.window_bytes = 5;
    world *w = world_create(&shape, 1);
    world_job *job = world_job_start(w, &ten_pages);

    world_run(w, 10000);
    cr_assert_eq(job->done, 1);
    world_destroy(w);
}

Test(pull, posts_later_what_the_transport_does_not_take)
{
    world_shape shape = world_shape_small();
    shape.limits.reads_in_flight_max = 11;
    world *w = world_create(&shape, 1);
    w->script->take_max = 3;
    w->script->get_again = 4;
    w->script->delay_max = 3;
    world_job *job = world_job_start(w, &ten_pages);

    world_run_until(w, w->now + KVX_NS_PER_SECOND);
    cr_assert_eq(job->done, 1);
    cr_assert_eq(job->stats.reads, scripted_taken(w->domain), "each once");
    world_destroy(w);
}

Test(pull, does_not_spin_while_the_transport_takes_nothing)
{
    const world_shape shape = world_shape_small();
    world *w = world_create(&shape, 1);
    w->script->get_again = 1;
    world_job *job = world_job_start(w, &ten_pages);

    cr_assert(!world_step(w));
    cr_assert_eq(kvx_puller_next_due(w->puller), w->now + KVX_NS_PER_MS);
    w->now += KVX_NS_PER_MS;
    world_run(w, 100);
    cr_assert_eq(job->done, 1);
    world_destroy(w);
}

Test(pull, without_trust_posts_nothing_until_it_is_resumed)
{
    const world_shape shape = world_shape_small();
    world *w = world_create(&shape, 1);
    world_job *job = world_job_make(w, &ten_pages);

    job->may_post = KVX_AGAIN;
    kvx_puller_start(w->puller, job->job, w->now);
    world_run_until(w, w->now + KVX_NS_PER_SECOND);
    cr_assert_eq(job->planned, 1);
    cr_assert_eq(job->asked, 1, "it waits, it does not ask again");
    cr_assert_eq(scripted_taken(w->domain), 0);

    kvx_puller_resume(w->puller, job->job);
    cr_assert_eq(kvx_puller_next_due(w->puller), 0);
    world_run(w, 100);
    cr_assert_eq(job->asked, 2);
    job->may_post = KVX_OK;
    kvx_puller_resume(w->puller, job->job);
    world_run(w, 100);
    cr_assert_eq(job->done, 1);
    world_destroy(w);
}

Test(pull, that_loses_trust_on_the_way_goes_on_where_it_was)
{
    world_shape shape = world_shape_small();
    shape.settings.window_reads = 4;
    world *w = world_create(&shape, 1);
    world_job *job = world_job_start(w, &ten_pages);

    for (uint32_t i = 0; i < 1000 && job->done == 0; i++) {
        job->may_post = i % 3 == 0 ? KVX_AGAIN : KVX_OK;
        if (i % 5 == 0)
            kvx_puller_resume(w->puller, job->job);
        (void)world_step(w);
    }
    cr_assert_eq(job->done, 1);
    cr_assert_eq(job->stats.reads, scripted_taken(w->domain));
    world_destroy(w);
}

Test(pull, that_is_barred_posts_nothing_and_waits_for_its_stop)
{
    const world_shape shape = world_shape_small();
    world *w = world_create(&shape, 1);
    world_job *job = world_job_make(w, &ten_pages);

    job->may_post = KVX_EXPIRED;
    kvx_puller_start(w->puller, job->job, w->now);
    world_run_until(w, w->now + KVX_NS_PER_SECOND);
    kvx_puller_resume(w->puller, job->job);
    world_run_until(w, w->now + KVX_NS_PER_SECOND);
    cr_assert_eq(job->asked, 1);
    cr_assert_eq(job->failed + job->done, 0);
    cr_assert_eq(scripted_taken(w->domain), 0);
    world_job_stop(w, job);
    (void)world_step(w);
    cr_assert_eq(job->quiet, 1);
    world_destroy(w);
}

Test(pull, asks_before_every_get)
{
    world_shape shape = world_shape_small();
    shape.settings.window_reads = 5;
    world *w = world_create(&shape, 1);
    world_job *job = world_job_start(w, &ten_pages);

    world_run(w, 1000);
    cr_assert_eq(job->done, 1);
    cr_assert_eq(job->asked, 60 / 5);
    world_destroy(w);
}

Test(pull, whose_read_fails_names_the_page_and_posts_nothing_more)
{
    world_shape shape = world_shape_small();
    shape.settings.window_reads = 4;
    world *w = world_create(&shape, 1);
    /* Reads go in the order of source pages. Those of the first run have the highest numbers. */
    const world_pull pull = { .first = 20, .stride = 2, .count = 8, .run_pages = 8 };
    w->script->fail_at = 3;
    w->script->fail_status = KVX_READ_FAILED;
    world_job *job = world_job_start(w, &pull);

    world_run(w, 1000);
    cr_assert_eq(job->failed, 1);
    cr_assert_eq(job->status, KVX_READ_FAILED);
    cr_assert(job->has_page);
    cr_assert_eq(job->page, 24);
    cr_assert_eq(scripted_taken(w->domain), 4);
    world_run_until(w, w->now + KVX_NS_PER_SECOND);
    cr_assert_eq(job->quiet, 0, "it waits for its stop");
    world_job_stop(w, job);
    cr_assert_eq(job->quiet, 0, "nothing is reported from inside stop");
    (void)world_step(w);
    cr_assert_eq(job->quiet, 1);
    cr_assert_eq(job->stats.reads, 3);
    world_destroy(w);
}

Test(pull, whose_page_is_taken_already_fails_with_that_page)
{
    const world_shape shape = world_shape_small();
    world *w = world_create(&shape, 1);
    w->script->is_stalled = true;
    world_job *first = world_job_start(w, &ten_pages);
    const world_pull other = { .first = 14, .stride = 1, .count = 8 };
    world_job *second = world_job_start(w, &other);

    world_run(w, 10);
    cr_assert_eq(second->status, KVX_BUSY);
    cr_assert(second->has_page);
    cr_assert_eq(second->page, 15);
    world_job_stop(w, second);
    w->script->is_stalled = false;
    world_run(w, 100);
    cr_assert_eq(first->done, 1);
    cr_assert_eq(second->quiet, 1);
    world_destroy(w);
}

Test(pull, of_a_page_outside_of_the_pool_fails_with_that_page)
{
    const world_shape shape = world_shape_small();
    world *w = world_create(&shape, 1);
    const world_pull outside = { .first = 60, .stride = 1, .count = 8 };
    world_job *job = world_job_start(w, &outside);

    world_run(w, 10);
    cr_assert_eq(job->status, KVX_INVALID);
    cr_assert_eq(job->page, 64);
    cr_assert_eq(job->planned, 0);
    world_job_stop(w, job);
    world_run(w, 10);
    cr_assert_eq(job->quiet, 1);
    world_destroy(w);
}

Test(pull, of_a_source_page_outside_of_the_remote_pool_fails)
{
    const world_shape shape = world_shape_small();
    world *w = world_create(&shape, 1);
    world_job *job = world_job_make(w, &ten_pages);

    memcpy((void *)(uintptr_t)job->job->tables[1].source, &(kvx_page_run){ 62, 4 },
            sizeof(kvx_page_run));
    kvx_puller_start(w->puller, job->job, w->now);
    world_run(w, 10);
    cr_assert_eq(job->status, KVX_INVALID);
    cr_assert(!job->has_page);
    cr_assert_eq(scripted_taken(w->domain), 0);
    world_job_stop(w, job);
    world_run(w, 10);
    world_destroy(w);
}

Test(pull, with_more_components_than_the_pool_fails)
{
    const world_shape shape = world_shape_small();
    world *w = world_create(&shape, 1);
    world_job *job = world_job_make(w, &ten_pages);

    job->job->component_count = 3;
    kvx_puller_start(w->puller, job->job, w->now);
    world_run(w, 10);
    cr_assert_eq(job->status, KVX_INVALID);
    world_job_stop(w, job);
    job->job->component_count = 2;
    world_run(w, 10);
    world_destroy(w);
}

Test(pull, whose_get_is_refused_fails)
{
    const world_shape shape = world_shape_small();
    world *w = world_create(&shape, 1);
    w->script->get_fail = KVX_INVALID;
    world_job *job = world_job_start(w, &ten_pages);

    world_run(w, 10);
    cr_assert_eq(job->status, KVX_INVALID);
    cr_assert_eq(scripted_taken(w->domain), 0);
    world_job_stop(w, job);
    world_run(w, 10);
    cr_assert_eq(job->quiet, 1);
    cr_assert_eq(scripted_connects(w->domain), 1);
    world_destroy(w);
}

Test(pull, that_is_small_does_not_wait_for_a_large_one)
{
    world_shape shape = world_shape_small();
    shape.settings.window_reads = 4;
    shape.settings.read_bytes_max = 1;
    world *w = world_create(&shape, 1);
    const world_pull large = { .first = 0, .stride = 1, .count = 40 };
    const world_pull small = { .first = 50, .stride = 1, .count = 1 };
    world_job *first = world_job_start(w, &large);
    world_run(w, 20);
    world_job *second = world_job_start(w, &small);

    for (uint32_t i = 0; i < 100000 && second->done == 0; i++)
        (void)world_step(w);
    cr_assert_eq(second->done, 1);
    cr_assert_eq(first->done, 0);
    world_run(w, 100000);
    cr_assert_eq(first->done, 1);
    world_destroy(w);
}

Test(pull, engine_without_work_is_due_never)
{
    const world_shape shape = world_shape_small();
    world *w = world_create(&shape, 1);

    cr_assert(!world_step(w));
    cr_assert_eq(kvx_puller_next_due(w->puller), KVX_NEVER);
    cr_assert(!kvx_puller_is_idle(w->puller), "it has a path");
    world_destroy(w);
}

Test(pull, engine_that_was_never_made_can_be_destroyed)
{
    kvx_puller *puller = NULL;

    kvx_puller_destroy(&puller);
    cr_assert(puller == NULL);
}
