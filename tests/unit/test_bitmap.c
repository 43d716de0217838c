/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <string.h>

#include "base/bitmap.h"
#include "base/list.h"
#include "base/random.h"
#include "support/seed.h"

Test(bitmap, it_starts_all_clear)
{
    kvx_bitmap bitmap;
    cr_assert_eq(kvx_bitmap_init(&bitmap, 130), KVX_OK);
    for (size_t i = 0; i < 130; i++)
        cr_expect_not(kvx_bitmap_test(&bitmap, i));
    cr_expect_eq(kvx_bitmap_count(&bitmap), 0);
    kvx_bitmap_fini(&bitmap);
}

Test(bitmap, one_of_no_bits_is_fine)
{
    kvx_bitmap bitmap;
    cr_assert_eq(kvx_bitmap_init(&bitmap, 0), KVX_OK);
    cr_expect_eq(kvx_bitmap_count(&bitmap), 0);
    kvx_bitmap_fini(&bitmap);
    kvx_bitmap_fini(&bitmap);
}

Test(bitmap, the_bits_at_the_ends_of_words_are_their_own)
{
    static const size_t edges[] = { 0, 63, 64, 127, 128, 129 };
    kvx_bitmap bitmap;
    cr_assert_eq(kvx_bitmap_init(&bitmap, 130), KVX_OK);
    for (size_t i = 0; i < sizeof(edges) / sizeof(edges[0]); i++) {
        kvx_bitmap_set(&bitmap, edges[i]);
        cr_expect(kvx_bitmap_test(&bitmap, edges[i]));
        cr_expect_eq(kvx_bitmap_count(&bitmap), 1);
        kvx_bitmap_clear(&bitmap, edges[i]);
    }
    cr_expect_eq(kvx_bitmap_count(&bitmap), 0);
    kvx_bitmap_fini(&bitmap);
}

Test(bitmap, it_does_what_an_array_does)
{
    uint64_t random = test_seed();
    for (uint64_t round = 0; round < test_rounds(200); round++) {
        unsigned char array[300] = { 0 };
        kvx_bitmap bitmap;
        size_t count = 0;
        const size_t bits = 1 + test_random_below(&random, sizeof(array));
        cr_assert_eq(kvx_bitmap_init(&bitmap, bits), KVX_OK);
        for (int step = 0; step < 400; step++) {
            const size_t bit = test_random_below(&random, bits);
            array[bit] = test_random_below(&random, 2) == 0;
            if (array[bit])
                kvx_bitmap_set(&bitmap, bit);
            else
                kvx_bitmap_clear(&bitmap, bit);
        }
        for (size_t i = 0; i < bits; i++) {
            cr_assert_eq(kvx_bitmap_test(&bitmap, i), array[i]);
            count += array[i];
        }
        cr_assert_eq(kvx_bitmap_count(&bitmap), count);
        kvx_bitmap_fini(&bitmap);
    }
}

typedef struct item {
    int number;
    kvx_list link;
} item;

Test(list, nodes_come_in_the_order_they_were_appended)
{
    kvx_list list;
    item items[3] = { { .number = 0 }, { .number = 1 }, { .number = 2 } };
    int number = 0;
    kvx_list_init(&list);
    cr_expect(kvx_list_is_empty(&list));
    for (size_t i = 0; i < 3; i++)
        kvx_list_append(&list, &items[i].link);
    kvx_list_foreach (node, &list)
        cr_expect_eq(KVX_LIST_ENTRY(node, item, link)->number, number++);
    cr_expect_eq(number, 3);
}

Test(list, the_present_node_may_be_removed_in_a_walk)
{
    kvx_list list;
    item items[5] = { 0 };
    kvx_list_init(&list);
    for (size_t i = 0; i < 5; i++)
        kvx_list_append(&list, &items[i].link);
    kvx_list_foreach (node, &list)
        kvx_list_remove(node);
    cr_expect(kvx_list_is_empty(&list));
    cr_expect_not(kvx_list_is_linked(&items[2].link));
}

Test(list, removing_a_node_that_is_in_no_list_changes_nothing)
{
    item zeroed = { 0 };
    item alone = { 0 };
    kvx_list_init(&alone.link);
    kvx_list_remove(&zeroed.link);
    kvx_list_remove(&alone.link);
    cr_expect_not(kvx_list_is_linked(&zeroed.link));
    cr_expect_not(kvx_list_is_linked(&alone.link));
}

Test(random, numbers_are_not_zero_and_differ)
{
    uint64_t before = 0;
    for (int i = 0; i < 1000; i++) {
        uint64_t value = 0;
        cr_assert_eq(kvx_random(&value), KVX_OK);
        cr_assert_neq(value, 0);
        cr_assert_neq(value, before);
        before = value;
    }
}
