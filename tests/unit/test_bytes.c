/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <string.h>

#include "base/bytes.h"
#include "support/seed.h"

static kvx_reader reader_of(const kvx_buffer *buffer)
{
    kvx_reader reader;
    kvx_reader_init(&reader, buffer->data + buffer->start, kvx_buffer_length(buffer));
    return reader;
}

Test(bytes, numbers_are_little_endian)
{
    kvx_buffer buffer = { 0 };
    kvx_write_u8(&buffer, 0x01);
    kvx_write_u16(&buffer, 0x0302);
    kvx_write_u32(&buffer, 0x07060504);
    kvx_write_u64(&buffer, UINT64_C(0x0f0e0d0c0b0a0908));
    cr_assert_eq(kvx_buffer_length(&buffer), 15);
    for (uint8_t i = 0; i < 15; i++)
        cr_expect_eq(buffer.data[i], i + 1);
    cr_expect_eq(kvx_load_u32(buffer.data + 3), 0x07060504);
    cr_expect_eq(kvx_load_u64(buffer.data + 7), UINT64_C(0x0f0e0d0c0b0a0908));
    kvx_buffer_fini(&buffer);
}

Test(bytes, an_empty_reader_is_done)
{
    kvx_reader reader;
    kvx_reader_init(&reader, NULL, 0);
    cr_expect(kvx_reader_is_done(&reader));
    cr_expect_not_null(kvx_read_bytes(&reader, 0));
    cr_expect(kvx_reader_is_done(&reader));
}

Test(bytes, a_reader_with_bytes_left_is_not_done)
{
    kvx_reader reader;
    kvx_reader_init(&reader, "ab", 2);
    cr_expect_eq(kvx_read_u8(&reader), 'a');
    cr_expect_not(kvx_reader_is_done(&reader));
    cr_expect_eq(kvx_reader_left(&reader), 1);
}

Test(bytes, a_reader_that_failed_stays_failed)
{
    kvx_reader reader;
    kvx_reader_init(&reader, "abc", 3);
    cr_expect_eq(kvx_read_u32(&reader), 0);
    cr_expect(reader.is_failed);
    cr_expect_eq(kvx_read_u8(&reader), 0);
    cr_expect_null(kvx_read_bytes(&reader, 0));
    cr_expect_eq(kvx_reader_left(&reader), 0);
    cr_expect_not(kvx_reader_is_done(&reader));
}

Test(bytes, a_count_that_would_wrap_fails)
{
    kvx_reader reader;
    kvx_reader_init(&reader, "abc", 3);
    (void)kvx_read_u8(&reader);
    cr_expect_null(kvx_read_bytes(&reader, SIZE_MAX));
    cr_expect(reader.is_failed);
}

Test(bytes, a_length_can_be_filled_in_at_the_end)
{
    kvx_buffer buffer = { 0 };
    kvx_write_u8(&buffer, 9);
    const size_t at = buffer.size;
    kvx_write_u32(&buffer, 0);
    kvx_write_bytes(&buffer, "hello", 5);
    kvx_patch_u32(&buffer, at, 5);
    cr_expect_eq(kvx_load_u32(buffer.data + 1), 5);
    cr_expect_not(buffer.is_failed);
    kvx_patch_u32(&buffer, buffer.size - 3, 5);
    cr_expect(buffer.is_failed);
    kvx_buffer_fini(&buffer);
}

Test(bytes, a_buffer_at_its_limit_fails_and_drops_what_comes_until_reset)
{
    kvx_buffer buffer = { .limit = 8 };
    kvx_write_u64(&buffer, 1);
    cr_expect_not(buffer.is_failed);
    kvx_write_u8(&buffer, 2);
    cr_expect(buffer.is_failed);
    kvx_buffer_consume(&buffer, 8);
    kvx_write_u8(&buffer, 3);
    cr_expect_eq(kvx_buffer_length(&buffer), 0);
    kvx_buffer_reset(&buffer);
    kvx_write_u8(&buffer, 4);
    cr_expect_eq(kvx_buffer_length(&buffer), 1);
    cr_expect_not(buffer.is_failed);
    kvx_buffer_fini(&buffer);
}

Test(bytes, the_limit_is_about_what_was_not_consumed)
{
    kvx_buffer buffer = { .limit = 8 };
    for (unsigned i = 0; i < 1000; i++) {
        kvx_write_u32(&buffer, i);
        cr_assert_not(buffer.is_failed);
        if (i > 0) {
            cr_assert_eq(kvx_load_u32(buffer.data + buffer.start), i - 1);
            kvx_buffer_consume(&buffer, 4);
        }
    }
    cr_expect_leq(buffer.capacity, 256);
    kvx_buffer_fini(&buffer);
}

Test(bytes, room_that_cannot_be_had_is_null)
{
    kvx_buffer buffer = { 0 };
    cr_expect_null(kvx_buffer_space(&buffer, SIZE_MAX));
    cr_expect(buffer.is_failed);
    kvx_buffer_reset(&buffer);
    kvx_write_u8(&buffer, 1);
    cr_expect_null(kvx_buffer_space(&buffer, SIZE_MAX));
    kvx_buffer_fini(&buffer);
}

Test(bytes, consuming_more_than_there_is_empties)
{
    kvx_buffer buffer = { 0 };
    kvx_write_bytes(&buffer, "abc", 3);
    kvx_buffer_consume(&buffer, 100);
    cr_expect_eq(kvx_buffer_length(&buffer), 0);
    kvx_write_bytes(&buffer, NULL, 0);
    cr_expect_eq(kvx_buffer_length(&buffer), 0);
    kvx_buffer_fini(&buffer);
}

Test(bytes, what_is_written_is_read_back)
{
    uint64_t random = test_seed();
    for (uint64_t round = 0; round < test_rounds(300); round++) {
        kvx_buffer buffer = { 0 };
        const uint64_t start = random;
        const int count = (int)test_random_below(&random, 200);
        for (int i = 0; i < count; i++) {
            const uint64_t value = test_random(&random);
            switch (value % 4) {
            case 0: kvx_write_u8(&buffer, (uint8_t)value); break;
            case 1: kvx_write_u16(&buffer, (uint16_t)value); break;
            case 2: kvx_write_u32(&buffer, (uint32_t)value); break;
            default: kvx_write_u64(&buffer, value); break;
            }
        }
        kvx_reader reader = reader_of(&buffer);
        random = start;
        (void)test_random_below(&random, 200);
        for (int i = 0; i < count; i++) {
            const uint64_t value = test_random(&random);
            switch (value % 4) {
            case 0: cr_assert_eq(kvx_read_u8(&reader), (uint8_t)value); break;
            case 1: cr_assert_eq(kvx_read_u16(&reader), (uint16_t)value); break;
            case 2: cr_assert_eq(kvx_read_u32(&reader), (uint32_t)value); break;
            default: cr_assert_eq(kvx_read_u64(&reader), value); break;
            }
        }
        cr_assert(kvx_reader_is_done(&reader));
        kvx_buffer_fini(&buffer);
    }
}

Test(bytes, a_buffer_is_a_queue)
{
    uint64_t random = test_seed();
    for (uint64_t round = 0; round < test_rounds(100); round++) {
        kvx_buffer buffer = { 0 };
        uint8_t in = 0;
        uint8_t out = 0;
        for (int step = 0; step < 300; step++) {
            size_t count = test_random_below(&random, 700);
            if (test_random_below(&random, 2) == 0) {
                uint8_t *space = kvx_buffer_space(&buffer, count);
                cr_assert_not_null(space);
                for (size_t i = 0; i < count; i++)
                    space[i] = in++;
                kvx_buffer_commit(&buffer, count);
            } else {
                if (count > kvx_buffer_length(&buffer))
                    count = kvx_buffer_length(&buffer);
                for (size_t i = 0; i < count; i++)
                    cr_assert_eq(buffer.data[buffer.start + i], out++);
                kvx_buffer_consume(&buffer, count);
            }
            cr_assert_eq((uint8_t)(in - out), (uint8_t)kvx_buffer_length(&buffer));
        }
        kvx_buffer_fini(&buffer);
    }
}

Test(bytes, a_reader_over_anything_stays_inside)
{
    uint64_t random = test_seed();
    for (uint64_t round = 0; round < test_rounds(2000); round++) {
        uint8_t data[16] = { 0 };
        kvx_reader reader;
        const size_t size = test_random_below(&random, sizeof(data) + 1);
        kvx_reader_init(&reader, data, size);
        size_t taken = 0;
        while (!reader.is_failed && taken < 100) {
            const size_t count = test_random_below(&random, 8);
            const uint8_t *bytes = kvx_read_bytes(&reader, count);
            cr_assert_eq(bytes == NULL, taken + count > size);
            taken += count + (count == 0);
            if (count == 0)
                break;
            if (bytes != NULL)
                cr_assert(bytes >= data && bytes + count <= data + size);
        }
    }
}
