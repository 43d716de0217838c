/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>

#include "admit/admit.h"

#include "support/seed.h"

Test(admit, bytes_are_admitted_up_to_the_limit)
{
    kvx_admit admit = { .bytes_max = 100, .count_max = 10 };

    cr_expect_eq(kvx_admit_take(&admit, 60), KVX_OK);
    cr_expect_eq(kvx_admit_take(&admit, 41), KVX_AGAIN);
    cr_expect_eq(kvx_admit_take(&admit, 40), KVX_OK);
    cr_expect_eq(kvx_admit_take(&admit, 1), KVX_AGAIN);
    cr_expect_eq(kvx_admit_take(&admit, 0), KVX_OK);
    kvx_admit_give(&admit, 60);
    cr_expect_eq(kvx_admit_take(&admit, 60), KVX_OK);
    cr_expect_eq(admit.bytes, (uint64_t)100);
    cr_expect_eq(admit.count, 3u);
}

Test(admit, the_count_is_a_limit_of_its_own)
{
    kvx_admit admit = { .bytes_max = 100, .count_max = 2 };

    cr_expect_eq(kvx_admit_take(&admit, 1), KVX_OK);
    cr_expect_eq(kvx_admit_take(&admit, 1), KVX_OK);
    cr_expect_eq(kvx_admit_take(&admit, 1), KVX_AGAIN);
    kvx_admit_give(&admit, 1);
    cr_expect_eq(kvx_admit_take(&admit, 1), KVX_OK);
}

Test(admit, what_never_fits_is_told_from_what_does_not_fit_now)
{
    kvx_admit admit = { .bytes_max = 100, .count_max = 2 };
    kvx_admit none = { .bytes_max = 100, .count_max = 0 };

    cr_expect_eq(kvx_admit_take(&admit, 101), KVX_NO_SPACE);
    cr_expect_eq(kvx_admit_take(&admit, UINT64_MAX), KVX_NO_SPACE);
    cr_expect_eq(kvx_admit_take(&none, 1), KVX_NO_SPACE);
    cr_expect_not(admit.was_refused);
    cr_expect_not(kvx_admit_reopened(&admit));
}

Test(admit, a_single_large_one_is_let_through_when_nothing_else_is_in)
{
    kvx_admit admit = { .bytes_max = 100, .count_max = 4, .lets_one_through = true };

    cr_expect_eq(kvx_admit_take(&admit, 1), KVX_OK);
    cr_expect_eq(kvx_admit_take(&admit, UINT64_MAX), KVX_AGAIN);
    kvx_admit_give(&admit, 1);
    cr_expect_eq(kvx_admit_take(&admit, UINT64_MAX), KVX_OK);
    cr_expect_eq(kvx_admit_take(&admit, 1), KVX_AGAIN);
    cr_expect_eq(kvx_admit_take(&admit, 0), KVX_AGAIN);
    kvx_admit_give(&admit, UINT64_MAX);
    cr_expect_eq(admit.bytes, (uint64_t)0);
}

Test(admit, reopening_is_told_once_and_only_to_who_was_refused)
{
    kvx_admit admit = { .bytes_max = 100, .count_max = 2 };

    cr_expect_not(kvx_admit_reopened(&admit));
    cr_expect_eq(kvx_admit_take(&admit, 100), KVX_OK);
    cr_expect_eq(kvx_admit_take(&admit, 1), KVX_AGAIN);
    cr_expect_not(kvx_admit_reopened(&admit));
    kvx_admit_give(&admit, 100);
    cr_expect(kvx_admit_reopened(&admit));
    cr_expect_not(kvx_admit_reopened(&admit));
    cr_expect_eq(kvx_admit_take(&admit, 1), KVX_OK);
    cr_expect_eq(kvx_admit_take(&admit, 1), KVX_OK);
    cr_expect_eq(kvx_admit_take(&admit, 1), KVX_AGAIN);
    cr_expect_not(kvx_admit_reopened(&admit)); /* by count it is full */
    kvx_admit_give(&admit, 1);
    cr_expect(kvx_admit_reopened(&admit));
}

Test(admit, a_reservation_that_shrinks_makes_room)
{
    kvx_admit admit = { .bytes_max = 100, .count_max = 4 };

    cr_expect_eq(kvx_admit_take(&admit, 90), KVX_OK);
    cr_expect_eq(kvx_admit_take(&admit, 50), KVX_AGAIN);
    kvx_admit_resize(&admit, 90, 50);
    cr_expect(kvx_admit_reopened(&admit));
    cr_expect_eq(kvx_admit_take(&admit, 50), KVX_OK);
    kvx_admit_resize(&admit, 50, 70); /* a larger one is counted, though over the limit */
    cr_expect_eq(admit.bytes, (uint64_t)120);
    cr_expect_eq(kvx_admit_take(&admit, 0), KVX_AGAIN);
}

Test(admit, what_is_in_is_never_over_the_limits_and_adds_up)
{
    uint64_t state = test_seed();
    uint64_t in[8] = { 0 };
    uint64_t bytes = 0;
    kvx_admit admit = { .bytes_max = 1000, .count_max = 6 };

    for (uint64_t round = 0; round < test_rounds(20000); round++) {
        uint64_t *mine = &in[test_random_below(&state, 8)];
        if (*mine != 0) {
            kvx_admit_give(&admit, *mine);
            bytes -= *mine;
            *mine = 0;
        } else {
            const uint64_t wanted = 1 + test_random_below(&state, 1100);
            const bool fits = wanted <= 1000 - bytes && admit.count < 6;
            const kvx_status want = fits ? KVX_OK : wanted > 1000 ? KVX_NO_SPACE : KVX_AGAIN;
            cr_assert_eq(kvx_admit_take(&admit, wanted), want);
            *mine = fits ? wanted : 0;
            bytes += *mine;
        }
        cr_assert_eq(admit.bytes, bytes);
        cr_assert_leq(admit.bytes, admit.bytes_max);
        cr_assert_leq(admit.count, admit.count_max);
    }
}
