/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/timers.h"
#include "support/seed.h"

#define TIMERS 64

static void reserve(kvx_timers *timers, size_t count)
{
    for (size_t i = 0; i < count; i++)
        cr_assert_eq(kvx_timers_reserve(timers), KVX_OK);
}

Test(timers, zeroed_timers_are_empty)
{
    kvx_timers timers = { 0 };
    kvx_timer timer = { 0 };
    cr_expect_null(kvx_timers_first(&timers));
    kvx_timers_clear(&timers, &timer);
    kvx_timers_fini(&timers);
}

Test(timers, the_earliest_comes_first)
{
    kvx_timers timers = { 0 };
    kvx_timer late = { 0 };
    kvx_timer early = { 0 };
    reserve(&timers, 2);
    kvx_timers_set(&timers, &late, 200);
    kvx_timers_set(&timers, &early, 100);
    cr_expect_eq(kvx_timers_first(&timers), &early);
    kvx_timers_clear(&timers, &early);
    cr_expect_eq(kvx_timers_first(&timers), &late);
    kvx_timers_fini(&timers);
}

Test(timers, of_two_at_one_time_the_one_set_first_comes_first)
{
    kvx_timers timers = { 0 };
    kvx_timer timer[TIMERS] = { 0 };
    reserve(&timers, TIMERS);
    for (size_t i = 0; i < TIMERS; i++)
        kvx_timers_set(&timers, &timer[i], 100);
    for (size_t i = 0; i < TIMERS; i++) {
        cr_assert_eq(kvx_timers_first(&timers), &timer[i]);
        kvx_timers_clear(&timers, &timer[i]);
    }
    kvx_timers_fini(&timers);
}

Test(timers, a_timer_set_again_moves)
{
    kvx_timers timers = { 0 };
    kvx_timer moved = { 0 };
    kvx_timer other = { 0 };
    reserve(&timers, 2);
    kvx_timers_set(&timers, &moved, 100);
    kvx_timers_set(&timers, &other, 200);
    kvx_timers_set(&timers, &moved, 300);
    cr_expect_eq(timers.count, 2);
    cr_expect_eq(kvx_timers_first(&timers), &other);
    kvx_timers_set(&timers, &moved, 50);
    cr_expect_eq(kvx_timers_first(&timers), &moved);
    kvx_timers_fini(&timers);
}

Test(timers, never_clears)
{
    kvx_timers timers = { 0 };
    kvx_timer timer = { 0 };
    reserve(&timers, 1);
    kvx_timers_set(&timers, &timer, 100);
    kvx_timers_set(&timers, &timer, KVX_NEVER);
    cr_expect_null(kvx_timers_first(&timers));
    cr_expect_eq(timer.position, 0);
    kvx_timers_fini(&timers);
}

Test(timers, a_place_given_back_can_be_taken_again)
{
    kvx_timers timers = { 0 };
    kvx_timer timer = { 0 };
    for (size_t i = 0; i < 1000; i++) {
        reserve(&timers, 1);
        kvx_timers_set(&timers, &timer, i);
        kvx_timers_clear(&timers, &timer);
        kvx_timers_unreserve(&timers);
    }
    cr_expect_leq(timers.capacity, 16);
    cr_expect_eq(timers.reserved, 0);
    kvx_timers_fini(&timers);
}

static int by_time(const void *a, const void *b)
{
    const kvx_timer *x = *(kvx_timer *const *)a;
    const kvx_timer *y = *(kvx_timer *const *)b;
    if (x->at_ns != y->at_ns)
        return x->at_ns < y->at_ns ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

Test(timers, they_come_in_the_order_that_sorting_gives)
{
    uint64_t random = test_seed();
    for (uint64_t round = 0; round < test_rounds(500); round++) {
        kvx_timers timers = { 0 };
        kvx_timer timer[TIMERS] = { 0 };
        kvx_timer *sorted[TIMERS];
        size_t armed = 0;
        reserve(&timers, TIMERS);
        for (int step = 0; step < 300; step++) {
            const size_t i = test_random_below(&random, TIMERS);
            if (test_random_below(&random, 3) == 0)
                kvx_timers_clear(&timers, &timer[i]);
            else
                kvx_timers_set(&timers, &timer[i], test_random_below(&random, 40));
        }
        for (size_t i = 0; i < TIMERS; i++) {
            if (timer[i].position != 0)
                sorted[armed++] = &timer[i];
        }
        qsort(sorted, armed, sizeof(sorted[0]), by_time);
        cr_assert_eq(timers.count, armed);
        for (size_t i = 0; i < armed; i++) {
            cr_assert_eq(kvx_timers_first(&timers), sorted[i]);
            kvx_timers_clear(&timers, sorted[i]);
        }
        cr_assert_null(kvx_timers_first(&timers));
        kvx_timers_fini(&timers);
    }
}

Test(clock, it_never_goes_back)
{
    uint64_t before = kvx_now();
    cr_expect_gt(before, 0);
    for (int i = 0; i < 1000; i++) {
        const uint64_t now = kvx_now();
        cr_assert_geq(now, before);
        before = now;
    }
}
