/* SPDX-License-Identifier: Apache-2.0 */
/* How a data path is opened, and every way in which it is not. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"

#include "unit/pull_world.h"

static world *connecting_world(void)
{
    const world_shape shape = world_shape_small();

    return world_create(&shape, 0);
}

static void expect_answer(world *w, kvx_status status, const char *why)
{
    cr_assert_eq(w->links[0].answers, 1);
    cr_assert_eq(w->links[0].status, status);
    cr_assert_eq(w->links[0].has_info, status == KVX_OK);
    cr_assert(strstr(w->links[0].why, why) != NULL, "%s", w->links[0].why);
    cr_assert_eq(scripted_endpoints(w->domain), status == KVX_OK ? 1 : 0);
}

Test(pull_path, is_told_when_it_is_proven)
{
    world *w = connecting_world();

    w->script->probe_again = 3;
    world_connect(w, 0);
    cr_assert_eq(w->links[0].answers, 0);
    world_run_until(w, w->now + 10 * KVX_NS_PER_MS);
    expect_answer(w, KVX_OK, "");
    cr_assert_eq(scripted_keys(w->domain), 6);
    world_destroy(w);
}

Test(pull_path, that_does_not_answer_is_lost_after_a_second)
{
    world *w = connecting_world();

    w->script->probe_again = SCRIPTED_FOR_EVER;
    world_connect(w, 0);
    world_run_until(w, w->now + KVX_NS_PER_SECOND - 1);
    cr_assert_eq(w->links[0].answers, 0);
    world_run_until(w, w->now + 2 * KVX_NS_PER_MS);
    expect_answer(w, KVX_PEER_LOST, "did not answer");
    world_destroy(w);
}

Test(pull_path, that_refuses_tells_its_reason)
{
    world *w = connecting_world();

    w->script->probe_status = KVX_UNREACHABLE;
    w->script->close_again = 2;
    world_connect(w, 0);
    world_run_until(w, w->now + 10 * KVX_NS_PER_MS);
    expect_answer(w, KVX_UNREACHABLE, "not permitted");
    world_job *job = world_job_start(w, &(world_pull){ .count = 1, .stride = 1 });
    (void)world_step(w);
    cr_assert_eq(job->status, KVX_UNREACHABLE);
    world_job_stop(w, job);
    (void)world_step(w);
    world_destroy(w);
}

Test(pull_path, that_cannot_connect_tells_its_reason)
{
    world *w = connecting_world();

    w->script->connect_status = KVX_UNREACHABLE;
    world_connect(w, 0);
    world_run(w, 10);
    expect_answer(w, KVX_UNREACHABLE, "wrong host");
    world_destroy(w);
}

Test(pull_path, whose_keys_are_damaged_is_refused)
{
    world *w = connecting_world();

    w->script->import_status = KVX_PROTOCOL;
    world_connect(w, 0);
    world_run(w, 10);
    expect_answer(w, KVX_PROTOCOL, "malformed");
    world_destroy(w);
}

Test(pull_path, without_a_region_of_ours_is_a_mismatch)
{
    world *w = connecting_world();

    w->hello->regions[1].layer = 77;
    world_connect(w, 0);
    world_run(w, 10);
    expect_answer(w, KVX_MISMATCH, "region k layer 1 of component state");
    world_destroy(w);
}

Test(pull_path, with_other_page_bytes_is_a_mismatch)
{
    world *w = connecting_world();

    w->hello->regions[0].page_bytes--;
    world_connect(w, 0);
    world_run(w, 10);
    expect_answer(w, KVX_MISMATCH, "does not match");
    world_destroy(w);
}

Test(pull_path, whose_regions_overflow_is_a_mismatch)
{
    world *w = connecting_world();

    w->hello->regions[0].page_stride = UINT64_MAX / 2;
    world_connect(w, 0);
    world_run(w, 10);
    expect_answer(w, KVX_MISMATCH, "does not match");
    world_destroy(w);
}

Test(pull_path, that_the_remote_does_not_have_is_unreachable)
{
    world *w = connecting_world();

    kvx_puller_connect(w->puller, 0, w->hello, 1, w->now);
    world_run(w, 10);
    expect_answer(w, KVX_UNREACHABLE, "no path 1");
    world_destroy(w);
}

Test(pull_path, that_is_dropped_before_it_is_proven_answers_nothing)
{
    world *w = connecting_world();

    w->script->probe_again = SCRIPTED_FOR_EVER;
    world_connect(w, 0);
    world_connect(w, 1);
    kvx_puller_drop(w->puller, 1);
    world_run(w, 10);
    kvx_puller_drop(w->puller, 0);
    world_run(w, 10);
    cr_assert_eq(w->links[0].answers + w->links[1].answers, 0);
    cr_assert(kvx_puller_is_idle(w->puller));
    world_destroy(w);
}
