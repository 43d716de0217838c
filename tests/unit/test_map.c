/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdint.h>
#include <string.h>

#include "base/map.h"
#include "support/seed.h"

static char things[512];

Test(map, a_zeroed_map_is_empty)
{
    kvx_map map = { 0 };
    size_t position = 0;
    cr_expect_null(kvx_map_find(&map, 0));
    cr_expect_null(kvx_map_remove(&map, 0));
    cr_expect_null(kvx_map_next(&map, &position));
    kvx_map_fini(&map);
}

Test(map, what_was_inserted_is_found_and_removed_once)
{
    kvx_map map = { 0 };
    cr_assert_eq(kvx_map_insert(&map, 7, &things[0]), KVX_OK);
    cr_expect_eq(kvx_map_find(&map, 7), &things[0]);
    cr_expect_null(kvx_map_find(&map, 8));
    cr_expect_eq(kvx_map_remove(&map, 7), &things[0]);
    cr_expect_null(kvx_map_remove(&map, 7));
    cr_expect_eq(map.count, 0);
    kvx_map_fini(&map);
}

Test(map, the_smallest_and_largest_keys_are_keys_like_others)
{
    kvx_map map = { 0 };
    cr_assert_eq(kvx_map_insert(&map, 0, &things[0]), KVX_OK);
    cr_assert_eq(kvx_map_insert(&map, UINT64_MAX, &things[1]), KVX_OK);
    cr_expect_eq(kvx_map_find(&map, 0), &things[0]);
    cr_expect_eq(kvx_map_find(&map, UINT64_MAX), &things[1]);
    kvx_map_fini(&map);
}

Test(map, a_key_that_is_there_is_busy_and_keeps_its_value)
{
    kvx_map map = { 0 };
    cr_assert_eq(kvx_map_insert(&map, 7, &things[0]), KVX_OK);
    cr_expect_eq(kvx_map_insert(&map, 7, &things[1]), KVX_BUSY);
    cr_expect_eq(kvx_map_find(&map, 7), &things[0]);
    cr_expect_eq(map.count, 1);
    kvx_map_fini(&map);
}

Test(map, a_value_must_not_be_null)
{
    kvx_map map = { 0 };
    cr_expect_eq(kvx_map_insert(&map, 7, NULL), KVX_INVALID);
    kvx_map_fini(&map);
}

Test(map, a_map_that_lives_long_does_not_grow)
{
    kvx_map map = { 0 };
    for (uint64_t key = 0; key < 100000; key++) {
        cr_assert_eq(kvx_map_insert(&map, key, &things[0]), KVX_OK);
        if (key >= 8)
            cr_assert_not_null(kvx_map_remove(&map, key - 8));
    }
    cr_expect_eq(map.count, 8);
    cr_expect_leq(map.capacity, 32);
    kvx_map_fini(&map);
}

/* Every key is in a few; the array says what the map must say. */
static void agree(const kvx_map *map, char *const *array, size_t keys, uint64_t spread)
{
    size_t count = 0;
    for (size_t i = 0; i < keys; i++) {
        cr_assert_eq(kvx_map_find(map, i * spread), array[i], "key %zu", i);
        count += array[i] != NULL;
    }
    cr_assert_eq(map->count, count);
}

static void walk(const kvx_map *map, char *const *array, size_t keys)
{
    unsigned char met[512] = { 0 };
    size_t position = 0;
    const char *value;
    while ((value = kvx_map_next(map, &position)) != NULL) {
        cr_assert_eq(met[value - things], 0);
        met[value - things] = 1;
    }
    for (size_t i = 0; i < keys; i++)
        cr_assert_eq(met[i], array[i] != NULL);
}

Test(map, it_does_what_an_array_does)
{
    uint64_t random = test_seed();
    for (uint64_t round = 0; round < test_rounds(200); round++) {
        char *array[512] = { 0 };
        kvx_map map = { 0 };
        const size_t keys = 1 + test_random_below(&random, 512);
        const uint64_t spread = UINT64_C(1) << test_random_below(&random, 55);
        for (int step = 0; step < 500; step++) {
            const size_t i = test_random_below(&random, keys);
            if (test_random_below(&random, 2) == 0) {
                const kvx_status expected = array[i] == NULL ? KVX_OK : KVX_BUSY;
                cr_assert_eq(kvx_map_insert(&map, i * spread, &things[i]), expected);
                array[i] = &things[i];
            } else {
                cr_assert_eq(kvx_map_remove(&map, i * spread), array[i]);
                array[i] = NULL;
            }
        }
        agree(&map, array, keys, spread);
        walk(&map, array, keys);
        kvx_map_fini(&map);
    }
}
