/* SPDX-License-Identifier: Apache-2.0 */
/* Pulls that are stopped, and the endpoints that are closed for them. */
#include <criterion/criterion.h>

#include "base/clock.h"

#include "unit/pull_world.h"

static const world_pull ten_pages = { .first = 0, .stride = 2, .count = 10, .run_pages = 4 };
static const world_pull others = { .first = 1, .stride = 2, .count = 10, .run_pages = 4 };
static const uint64_t drain_ns = 100 * KVX_NS_PER_MS;
static const uint64_t close_ns = KVX_NS_PER_SECOND;

Test(pull_close, a_job_that_was_never_started_is_quiet_in_the_next_step)
{
    const world_shape shape = world_shape_small();
    world *w = world_create(&shape, 1);
    world_job *job = world_job_make(w, &ten_pages);

    world_job_stop(w, job);
    kvx_puller_stop(w->puller, job->job, w->now);
    kvx_puller_resume(w->puller, job->job);
    cr_assert_eq(job->quiet, 0);
    cr_assert(!kvx_puller_is_idle(w->puller));
    cr_assert_eq(kvx_puller_next_due(w->puller), 0);
    (void)world_step(w);
    cr_assert_eq(job->quiet, 1);
    world_destroy(w);
}

Test(pull_close, a_stop_with_nothing_posted_is_quiet_in_the_next_step)
{
    const world_shape shape = world_shape_small();
    world *w = world_create(&shape, 1);
    world_job *job = world_job_start(w, &ten_pages);

    world_job_stop(w, job);
    cr_assert_eq(job->quiet, 0);
    (void)world_step(w);
    cr_assert_eq(job->quiet, 1);
    cr_assert_eq(job->planned, 0);
    cr_assert_eq(scripted_taken(w->domain), 0);
    world_destroy(w);
}

Test(pull_close, a_stop_whose_reads_drain_closes_nothing)
{
    const world_shape shape = world_shape_small();
    world *w = world_create(&shape, 1);
    w->script->is_stalled = true;
    world_job *job = world_job_start(w, &ten_pages);

    (void)world_step(w);
    cr_assert_eq(scripted_pending(w->domain), 60);
    world_job_stop(w, job);
    (void)world_step(w);
    cr_assert_eq(job->quiet, 0);
    cr_assert_eq(kvx_puller_next_due(w->puller), w->now + drain_ns);
    w->script->is_stalled = false;
    (void)world_step(w);
    cr_assert_eq(job->quiet, 1);
    cr_assert_eq(job->stats.reads, 60);
    cr_assert_eq(job->held, 0);
    cr_assert_eq(world_metric(&w->metrics->endpoint_closes), 0);
    cr_assert_eq(scripted_connects(w->domain), 1);
    world_destroy(w);
}

Test(pull_close, a_stop_whose_reads_do_not_drain_is_quiet_once_the_close_completed)
{
    const world_shape shape = world_shape_small();
    world *w = world_create(&shape, 1);
    w->script->is_stalled = true;
    w->script->close_again = 5;
    world_job *job = world_job_start(w, &ten_pages);

    world_run(w, 10);
    world_job_stop(w, job);
    world_run_until(w, w->now + drain_ns - 1);
    cr_assert_eq(w->script->close_again, 5);
    w->now++;
    for (uint32_t left = 4; left > 0; left--) {
        (void)world_step(w);
        cr_assert_eq(w->script->close_again, left);
        cr_assert_eq(job->quiet, 0);
        w->now += KVX_NS_PER_MS;
    }
    world_run_until(w, w->now + 10 * KVX_NS_PER_MS);
    cr_assert_eq(job->quiet, 1);
    cr_assert_eq(job->held, 0);
    cr_assert_eq(job->failed, 0);
    cr_assert_eq(world_metric(&w->metrics->endpoint_closes), 1);
    cr_assert_eq(scripted_connects(w->domain), 2, "the path is opened again");
    cr_assert_eq(w->links[0].answers, 1, "which is not news");
    world_destroy(w);
}

Test(pull_close, other_pulls_reads_are_posted_again_only_after_the_close)
{
    const world_shape shape = world_shape_small();
    world *w = world_create(&shape, 1);
    w->script->is_stalled = true;
    w->script->close_again = 20;
    world_job *stopped = world_job_start(w, &ten_pages);
    world_job *other = world_job_start(w, &others);

    world_run(w, 10);
    cr_assert_eq(scripted_taken(w->domain), 120);
    world_job_stop(w, stopped);
    world_run_until(w, w->now + drain_ns + 10 * KVX_NS_PER_MS);
    cr_assert(w->script->close_again > 0 && w->script->close_again < 20);
    cr_assert_eq(scripted_taken(w->domain), 120, "nothing is posted on a closing endpoint");
    world_run_until(w, w->now + 20 * KVX_NS_PER_MS);
    cr_assert_eq(stopped->quiet, 1);
    cr_assert_eq(scripted_taken(w->domain), 180);
    w->script->is_stalled = false;
    world_run(w, 100);
    cr_assert_eq(other->done, 1);
    cr_assert_eq(other->stats.reads, 60);
    cr_assert_eq(other->held + other->failed, 0);
    world_destroy(w);
}

Test(pull_close, a_pull_on_another_link_goes_on_meanwhile)
{
    const world_shape shape = world_shape_small();
    world *w = world_create(&shape, 2);
    w->script->is_stalled = true;
    w->script->close_again = 20;
    world_job *stopped = world_job_start(w, &ten_pages);

    world_run(w, 10);
    world_job_stop(w, stopped);
    world_run_until(w, w->now + drain_ns + KVX_NS_PER_MS);
    world_pull pull = others;
    pull.link = 1;
    w->script->is_stalled = false;
    world_job *other = world_job_start(w, &pull);
    (void)world_step(w);
    cr_assert_eq(other->done, 1);
    world_run_until(w, w->now + KVX_NS_PER_SECOND);
    cr_assert_eq(stopped->quiet, 1);
    world_destroy(w);
}

Test(pull_close, a_read_that_ends_during_the_close_makes_its_pull_quiet)
{
    const world_shape shape = world_shape_small();
    world *w = world_create(&shape, 1);
    w->script->is_stalled = true;
    w->script->close_again = SCRIPTED_FOR_EVER;
    world_job *job = world_job_start(w, &ten_pages);

    world_run(w, 10);
    world_job_stop(w, job);
    world_run_until(w, w->now + drain_ns + KVX_NS_PER_MS);
    w->script->is_stalled = false;
    (void)world_step(w);
    cr_assert_eq(job->quiet, 1);
    cr_assert_eq(job->held, 0);
    w->script->close_again = 0;
    world_destroy(w);
}

Test(pull_close, a_close_that_hangs_holds_every_pull_with_a_read_on_it)
{
    const world_shape shape = world_shape_small();
    world *w = world_create(&shape, 1);
    w->script->is_stalled = true;
    w->script->close_again = SCRIPTED_FOR_EVER;
    world_job *stopped = world_job_start(w, &ten_pages);
    world_job *other = world_job_start(w, &others);

    world_run(w, 10);
    const world_pull late = { .first = 40, .stride = 1, .count = 2 };
    world_job_stop(w, stopped);
    world_run_until(w, w->now + drain_ns + close_ns / 2);
    world_job *unposted = world_job_start(w, &late);
    cr_assert_eq(stopped->held, 0);
    world_run_until(w, w->now + close_ns);
    cr_assert_eq(stopped->held, 1);
    cr_assert_eq(other->failed, 1);
    cr_assert_eq(other->status, KVX_READ_FAILED);
    cr_assert_eq(other->held, 0, "not before it is stopped");
    cr_assert_eq(unposted->status, KVX_UNREACHABLE);
    world_job_stop(w, other);
    world_job_stop(w, unposted);
    (void)world_step(w);
    cr_assert_eq(other->held, 1);
    cr_assert_eq(unposted->quiet, 1, "it has no read there");
    cr_assert_eq(unposted->held, 0);
    cr_assert_eq(world_metric(&w->metrics->pages_held), 2);
    world_run_until(w, w->now + 10 * KVX_NS_PER_SECOND);
    cr_assert_eq(stopped->quiet + other->quiet, 0);

    w->script->close_again = 0;
    world_run_until(w, w->now + 100 * KVX_NS_PER_MS);
    cr_assert_eq(stopped->quiet, 1);
    cr_assert_eq(other->quiet, 1);
    cr_assert_eq(scripted_connects(w->domain), 2);
    world_destroy(w);
}

Test(pull_close, a_close_that_hangs_does_not_keep_the_window_of_other_links)
{
    world_shape shape = world_shape_small();
    shape.settings.window_reads = 8;
    world *w = world_create(&shape, 2);
    w->script->is_stalled = true;
    w->script->close_again = SCRIPTED_FOR_EVER;
    world_job *stopped = world_job_start(w, &ten_pages);

    world_run(w, 10);
    world_job_stop(w, stopped);
    world_run_until(w, w->now + drain_ns + close_ns + 10 * KVX_NS_PER_MS);
    cr_assert_eq(stopped->held, 1);
    world_pull pull = others;
    pull.link = 1;
    world_job *other = world_job_start(w, &pull);
    w->script->is_stalled = false; /* late completions come, too, of reads that were given up */
    world_run(w, 100);
    cr_assert_eq(other->done, 1);
    cr_assert_eq(stopped->quiet, 0, "only the close makes it quiet");
    w->script->close_again = 0;
    world_run_until(w, w->now + 100 * KVX_NS_PER_MS);
    cr_assert_eq(stopped->quiet, 1);
    world_destroy(w);
}

Test(pull_close, a_pull_on_a_link_whose_close_hangs_fails_at_once)
{
    const world_shape shape = world_shape_small();
    world *w = world_create(&shape, 1);
    w->script->is_stalled = true;
    w->script->close_again = SCRIPTED_FOR_EVER;
    world_job *stopped = world_job_start(w, &ten_pages);

    world_run(w, 10);
    world_job_stop(w, stopped);
    world_run_until(w, w->now + drain_ns + close_ns + 10 * KVX_NS_PER_MS);
    world_job *job = world_job_start(w, &others);
    (void)world_step(w);
    cr_assert_eq(job->status, KVX_UNREACHABLE);
    world_job_stop(w, job);
    (void)world_step(w);
    cr_assert_eq(job->quiet, 1);
    w->script->close_again = 0;
    world_run_until(w, w->now + 100 * KVX_NS_PER_MS);
    world_destroy(w);
}

Test(pull_close, a_late_completion_of_a_dead_read_is_ignored)
{
    world_shape shape = world_shape_small();
    shape.settings.window_reads = 1;
    world *w = world_create(&shape, 1);
    w->script->is_stalled = true;
    world_job *stopped = world_job_start(w, &ten_pages);

    world_run(w, 10);
    const uint64_t dead = scripted_last_id(w->domain);
    world_job_stop(w, stopped);
    world_run_until(w, w->now + drain_ns + 10 * KVX_NS_PER_MS);
    cr_assert_eq(stopped->quiet, 1);
    kvx_puller_completed(w->puller, dead, KVX_OK);

    world_job *other = world_job_start(w, &others);
    world_run(w, 10);
    cr_assert_eq(scripted_pending(w->domain), 1, "in the slot of the dead one");
    kvx_puller_completed(w->puller, dead, KVX_READ_FAILED);
    kvx_puller_completed(w->puller, dead, KVX_OK);
    cr_assert_eq(world_metric(&w->metrics->reads), 0);
    cr_assert_eq(world_metric(&w->metrics->reads_in_flight), 1);
    w->script->is_stalled = false;
    world_run(w, 1000);
    cr_assert_eq(other->done, 1);
    world_destroy(w);
}

Test(pull_close, a_failed_pull_is_quiet_when_its_other_reads_have_ended)
{
    const world_shape shape = world_shape_small();
    world *w = world_create(&shape, 1);
    w->script->fail_at = 1;
    w->script->fail_status = KVX_REFUSED;
    w->script->delay_max = 50;
    world_job *job = world_job_start(w, &ten_pages);

    while (job->failed == 0)
        (void)world_step(w);
    cr_assert_eq(job->status, KVX_REFUSED);
    world_job_stop(w, job);
    world_run(w, 100);
    cr_assert_eq(job->quiet, 1);
    cr_assert_eq(job->stats.reads, 59);
    world_destroy(w);
}

Test(pull_close, a_dead_endpoint_is_replaced_for_the_other_pulls)
{
    const world_shape shape = world_shape_small();
    world *w = world_create(&shape, 1);
    w->script->get_fail = KVX_PEER_LOST;
    world_job *first = world_job_start(w, &ten_pages);
    world_job *second = world_job_start(w, &others);

    world_run(w, 100);
    cr_assert_eq(first->status, KVX_PEER_LOST);
    cr_assert_eq(second->done, 1);
    cr_assert_eq(scripted_connects(w->domain), 2);
    cr_assert_eq(world_metric(&w->metrics->endpoint_closes), 0);
    world_job_stop(w, first);
    world_run(w, 100);
    cr_assert_eq(first->quiet, 1);
    world_destroy(w);
}

Test(pull_close, an_endpoint_that_cannot_be_replaced_fails_its_pulls)
{
    const world_shape shape = world_shape_small();
    world *w = world_create(&shape, 1);
    w->script->is_stalled = true;
    world_job *stopped = world_job_start(w, &ten_pages);
    world_job *other = world_job_start(w, &others);

    world_run(w, 10);
    w->script->probe_again = SCRIPTED_FOR_EVER;
    world_job_stop(w, stopped);
    world_run_until(w, w->now + drain_ns + KVX_NS_PER_SECOND - 1);
    cr_assert_eq(stopped->quiet, 1);
    cr_assert_eq(other->failed, 0);
    world_run_until(w, w->now + 10 * KVX_NS_PER_MS);
    cr_assert_eq(other->status, KVX_PEER_LOST);
    world_job_stop(w, other);
    (void)world_step(w);
    cr_assert_eq(other->quiet, 1);
    cr_assert_eq(w->links[0].answers, 1);

    /* The link itself is alive: the next pull tries again. */
    w->script->probe_again = 0;
    w->script->is_stalled = false;
    world_job *next = world_job_start(w, &others);
    world_run(w, 100);
    cr_assert_eq(next->done, 1);
    w->script->is_stalled = true;
    world_destroy(w);
}

Test(pull_close, a_stop_gives_back_what_waited_to_be_posted_again)
{
    world_shape shape = world_shape_small();
    shape.settings.window_reads = 60;
    world *w = world_create(&shape, 2);
    w->script->is_stalled = true;
    const world_pull one_page = { .first = 60, .stride = 1, .count = 1 };
    world_job *stopped = world_job_start(w, &one_page);
    (void)world_step(w);
    world_job *waiting = world_job_start(w, &ten_pages);

    world_run(w, 10);
    cr_assert_eq(scripted_pending(w->domain), 60);
    w->script->probe_again = SCRIPTED_FOR_EVER;
    world_job_stop(w, stopped);
    world_run_until(w, w->now + drain_ns + 10 * KVX_NS_PER_MS);
    world_job_stop(w, waiting);
    (void)world_step(w);
    cr_assert_eq(waiting->quiet, 1);
    w->script->is_stalled = false;
    world_pull pull = others;
    pull.link = 1;
    world_job *other = world_job_start(w, &pull);
    (void)world_step(w);
    cr_assert_eq(other->done, 1, "in one batch");
    world_destroy(w);
}

Test(pull_close, a_dropped_link_ends_once_its_pulls_are_quiet)
{
    const world_shape shape = world_shape_small();
    world *w = world_create(&shape, 1);
    w->script->is_stalled = true;
    world_job *job = world_job_start(w, &ten_pages);

    world_run(w, 10);
    kvx_puller_drop(w->puller, 0);
    world_run(w, 10);
    cr_assert_eq(scripted_endpoints(w->domain), 1);
    world_job *late = world_job_start(w, &others);
    (void)world_step(w);
    cr_assert_eq(late->status, KVX_PEER_LOST);
    world_job_stop(w, late);
    world_job_stop(w, job);
    world_run_until(w, w->now + drain_ns + 10 * KVX_NS_PER_MS);
    cr_assert_eq(job->quiet, 1);
    cr_assert_eq(late->quiet, 1);
    cr_assert_eq(scripted_connects(w->domain), 1, "it is not opened again");
    cr_assert(kvx_puller_is_idle(w->puller));
    world_destroy(w);
}

Test(pull_close, a_dropped_link_whose_close_takes_time_is_gone_after_it)
{
    const world_shape shape = world_shape_small();
    world *w = world_create(&shape, 1);

    w->script->close_again = 3;
    kvx_puller_drop(w->puller, 0);
    (void)world_step(w);
    cr_assert(!kvx_puller_is_idle(w->puller));
    cr_assert_eq(kvx_puller_next_due(w->puller), w->now + KVX_NS_PER_MS);
    world_run_until(w, w->now + 10 * KVX_NS_PER_MS);
    cr_assert(kvx_puller_is_idle(w->puller));
    world_destroy(w);
}

Test(pull_close, a_pull_on_an_unknown_link_fails_with_peer_lost)
{
    const world_shape shape = world_shape_small();
    world *w = world_create(&shape, 0);
    world_job *job = world_job_start(w, &ten_pages);

    cr_assert_eq(job->failed, 0);
    (void)world_step(w);
    cr_assert_eq(job->status, KVX_PEER_LOST);
    world_job_stop(w, job);
    (void)world_step(w);
    cr_assert_eq(job->quiet, 1);
    world_destroy(w);
}
