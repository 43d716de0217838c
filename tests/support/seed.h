/* SPDX-License-Identifier: Apache-2.0 */
/* Where a test's randomness comes from: KVX_TEST_SEED, else the clock. It is printed, so that a
 * failure can be repeated. */
#ifndef KVX_TEST_SEED_H
#define KVX_TEST_SEED_H

#include <stdint.h>

/* The seed of this run, the same at every call; the first call prints it to stderr. */
uint64_t test_seed(void);

/* How many rounds a property test should do: KVX_TEST_ROUNDS, else the default given. */
uint64_t test_rounds(uint64_t by_default);

/* A number from *state, which moves on (splitmix64). */
uint64_t test_random(uint64_t *state);

/* A number in [0, below); below > 0. */
uint64_t test_random_below(uint64_t *state, uint64_t below);

#endif
