/* SPDX-License-Identifier: Apache-2.0 */
#include "support/seed.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static bool number_from_env(const char *name, uint64_t *number_out)
{
    const char *text = getenv(name);
    char *end = NULL;

    if (text == NULL || *text == '\0')
        return false;
    const uint64_t number = strtoull(text, &end, 0);
    if (*end != '\0') {
        fprintf(stderr, "%s is not a number: \"%s\"\n", name, text);
        abort();
    }
    *number_out = number;
    return true;
}

static uint64_t seed_from_clock(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    uint64_t state = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    state ^= (uint64_t)getpid() << 32;
    return test_random(&state) >> 16; /* short enough to be typed */
}

uint64_t test_seed(void)
{
    static uint64_t seed;
    static bool is_known;

    if (is_known)
        return seed;
    if (!number_from_env("KVX_TEST_SEED", &seed))
        seed = seed_from_clock();
    is_known = true;
    fprintf(stderr, "seed %" PRIu64 " (repeat with KVX_TEST_SEED=%" PRIu64 ")\n", seed, seed);
    return seed;
}

uint64_t test_rounds(uint64_t by_default)
{
    uint64_t rounds = by_default;

    (void)number_from_env("KVX_TEST_ROUNDS", &rounds);
    return rounds;
}

uint64_t test_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint64_t test_random_below(uint64_t *state, uint64_t below)
{
    return test_random(state) % below;
}
