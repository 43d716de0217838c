/* SPDX-License-Identifier: Apache-2.0 */
/* Each allocation of wire, pool and plan fails in turn: KVX_NO_MEMORY, outputs left alone, no
 * leak. */
#include <criterion/criterion.h>

#include "kvx/plan.h"

#include "pool/book.h"
#include "pool/pool.h"
#include "unit/wire_samples.h"

#include "support/alloc_fail.h"

/* A hello with every part, and its frame. */
static kvx_hello *hello_make(kvx_buffer *frame)
{
    uint64_t state = test_seed();

    for (;;) {
        kvx_hello *hello = sample_hello(&state);
        const kvx_message message = { .type = KVX_MESSAGE_HELLO, .hello = hello };
        if (hello->region_count > 0 && hello->path_count > 1) {
            cr_assert_eq(kvx_wire_encode(&message, frame), KVX_OK);
            return hello;
        }
        kvx_hello_destroy(&hello);
    }
}

Test(alloc_layers, a_hello_that_cannot_be_stored_is_no_memory)
{
    kvx_buffer frame = { 0 };
    kvx_hello *hello = hello_make(&frame);
    uint64_t failures = 0;

    for (uint64_t n = 1; alloc_fail_arm(n); n++) {
        kvx_message came = { 0 };
        const kvx_status st = kvx_wire_decode(frame.data, (uint32_t)frame.size, &came);
        if (!alloc_fail_disarm()) {
            cr_expect_eq(st, KVX_OK);
            kvx_hello_destroy(&came.hello_in);
            break;
        }
        cr_expect_eq(st, KVX_NO_MEMORY);
        cr_expect_null(came.hello_in);
        failures++;
    }
    cr_expect_eq(failures, (uint64_t)3 + hello->path_count);
    kvx_hello_destroy(&hello);
    kvx_buffer_fini(&frame);
}

Test(alloc_layers, a_hello_that_cannot_be_copied_is_no_memory)
{
    kvx_buffer frame = { 0 };
    kvx_hello *hello = hello_make(&frame);

    for (uint64_t n = 1; alloc_fail_arm(n); n++) {
        kvx_hello *copy = NULL;
        const kvx_status st = kvx_hello_copy(hello, &copy);
        if (!alloc_fail_disarm()) {
            cr_expect_eq(st, KVX_OK);
            kvx_hello_destroy(&copy);
            break;
        }
        cr_expect_eq(st, KVX_NO_MEMORY);
        cr_expect_null(copy);
    }
    kvx_hello_destroy(&hello);
    kvx_buffer_fini(&frame);
}

Test(alloc_layers, a_message_that_cannot_be_written_leaves_the_buffer_as_before)
{
    static const uint8_t aux[5000];
    const kvx_message ping = { .type = KVX_MESSAGE_PING, .ping = { .sequence = 1 } };
    const kvx_message ready = { .type = KVX_MESSAGE_READY,
        .ready = { .aux = { aux, sizeof(aux) } } };

    for (uint64_t n = 1;; n++) {
        kvx_buffer out = { 0 };
        cr_assert_eq(kvx_wire_encode(&ping, &out), KVX_OK);
        (void)alloc_fail_arm(n);
        const kvx_status st = kvx_wire_encode(&ready, &out);
        const bool has_failed = alloc_fail_disarm();
        cr_expect_eq(st, has_failed ? KVX_NO_MEMORY : KVX_OK);
        if (has_failed)
            cr_expect_eq(kvx_buffer_length(&out), (size_t)16);
        cr_expect_not(out.is_failed);
        kvx_buffer_fini(&out);
        if (!has_failed)
            break;
    }
}

Test(alloc_layers, a_pool_that_cannot_be_stored_is_no_memory)
{
    static uint8_t memory[4096];
    const kvx_component component = { "kv", 16, 8, "token,head" };
    const kvx_region region = { .role = "k", .base = memory, .page_bytes = 64 };
    const kvx_layout layout = { &component, 1, &region, 1 };

    for (uint64_t n = 1; alloc_fail_arm(n); n++) {
        kvx_pool *pool = NULL;
        const kvx_status st = kvx_pool_create(&layout, &pool);
        if (!alloc_fail_disarm()) {
            cr_expect_eq(st, KVX_OK);
            kvx_pool_destroy(&pool);
            break;
        }
        cr_expect_eq(st, KVX_NO_MEMORY);
        cr_expect_null(pool);
    }
}

Test(alloc_layers, a_book_that_cannot_be_stored_is_no_memory)
{
    for (uint64_t n = 1; alloc_fail_arm(n); n++) {
        kvx_book book = { .page_count = 7 };
        const kvx_status st = kvx_book_init(&book, 100);
        if (!alloc_fail_disarm()) {
            cr_expect_eq(st, KVX_OK);
            kvx_book_fini(&book);
            break;
        }
        cr_expect_eq(st, KVX_NO_MEMORY);
        cr_expect_eq(book.page_count, 7u);
    }
}

Test(alloc_layers, planning_allocates_at_its_beginning_only)
{
    static const kvx_page_run runs[] = { { 5, 2 }, { 1, 2 } };
    static const kvx_page destination[] = { 1, 2, 3, 4 };
    const kvx_plan_params params = {
        .struct_size = sizeof(params),
        .source = runs,
        .source_count = 2,
        .destination = destination,
        .page_count = 4,
        .destination_pool_pages = 10,
        .source_pool_pages = 10,
    };
    kvx_plan *plan = NULL;

    for (uint64_t n = 1; alloc_fail_arm(n); n++) {
        const kvx_status st = kvx_plan_begin(&params, &plan);
        if (!alloc_fail_disarm()) {
            cr_expect_eq(st, KVX_OK);
            break;
        }
        cr_expect_eq(st, KVX_NO_MEMORY);
        cr_expect_null(plan);
    }
    (void)alloc_fail_arm_from(1);
    const kvx_status st = kvx_plan_step(plan, 1000, NULL);
    cr_expect_not(alloc_fail_disarm());
    cr_expect_eq(st, KVX_OK);
    kvx_plan_destroy(&plan);
}
