/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>

#include <string.h>
#include <sys/mman.h>

#include "memory/memory.h"
#include "seed.h"

Test(memory, every_kind_has_a_name)
{
    cr_expect_str_eq(kvx_memory_kind_name(KVX_MEMORY_HOST), "host");
    cr_expect_str_eq(kvx_memory_kind_name(KVX_MEMORY_ROCM), "rocm");
    cr_expect_str_eq(kvx_memory_kind_name((kvx_memory_kind)77), "unknown");
}

Test(memory, the_host_provider_is_there_and_complete)
{
    const kvx_memory_provider *const host = kvx_memory_find(KVX_MEMORY_HOST);
    char why[160] = "";
    cr_assert_not_null(host);
    cr_expect_eq(host->kind, KVX_MEMORY_HOST);
    cr_expect_str_eq(host->name, "host");
    cr_expect_eq(host->probe(why, sizeof(why)), KVX_OK);
    cr_expect_eq(host->source_fence(why, sizeof(why)), KVX_OK);
    cr_expect_eq(host->target_fence(why, sizeof(why)), KVX_OK);
    cr_expect_eq(kvx_memory_classify(why), KVX_MEMORY_HOST);
}

Test(memory, a_kind_without_a_provider_is_refused_by_name)
{
    char why[160] = "";
    char bytes[8];
    cr_expect_null(kvx_memory_find(KVX_MEMORY_ROCM));
    cr_expect_eq(kvx_memory_check(KVX_MEMORY_ROCM, bytes, sizeof(bytes), why, sizeof(why)),
            KVX_UNSUPPORTED);
    cr_expect_not_null(strstr(why, "rocm"), "%s", why);
}

static void expect_refused(const void *base, uint64_t length_bytes, const char *word)
{
    char why[160] = "";
    cr_expect_eq(
            kvx_memory_check(KVX_MEMORY_HOST, base, length_bytes, why, sizeof(why)), KVX_INVALID);
    cr_expect_not_null(strstr(why, word), "\"%s\" does not say \"%s\"", why, word);
}

Test(memory, a_range_that_cannot_be_read_is_refused_with_the_reason)
{
    char bytes[64];
    char why[160] = "";
    expect_refused(NULL, 64, "empty");
    expect_refused(bytes, 0, "empty");
    expect_refused(bytes, UINT64_MAX, "address space");
    expect_refused((void *)(uintptr_t)4096, 64, "not mapped");
    cr_expect_eq(kvx_memory_check(KVX_MEMORY_HOST, bytes, sizeof(bytes), why, sizeof(why)), KVX_OK);
    cr_expect_str_eq(why, "");
}

#define PAGES 64

Test(memory, a_hole_anywhere_in_a_range_is_found)
{
    uint64_t state = test_seed();
    char why[160];
    for (int round = 0; round < 300; round++) {
        char *const base = mmap(NULL, PAGES * 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        cr_assert_neq(base, MAP_FAILED);
        const uint64_t hole = test_random_below(&state, PAGES);
        const uint64_t first = test_random_below(&state, PAGES * 4096);
        const uint64_t length = 1 + test_random_below(&state, PAGES * 4096 - first);
        const bool is_hit = first / 4096 <= hole && hole <= (first + length - 1) / 4096;
        cr_assert_eq(munmap(base + hole * 4096, 4096), 0);
        cr_expect_eq(kvx_memory_check(KVX_MEMORY_HOST, base + first, length, why, sizeof(why)),
                is_hit ? KVX_INVALID : KVX_OK);
        cr_assert_eq(munmap(base, PAGES * 4096), 0);
    }
}

Test(memory, host_copies_copy)
{
    const kvx_memory_provider *const host = kvx_memory_find(KVX_MEMORY_HOST);
    char middle[6] = "";
    char end[6] = "";
    cr_expect_eq(host->copy_in(middle, "pages", 6), KVX_OK);
    cr_expect_eq(host->copy_out(end, middle, 6), KVX_OK);
    cr_expect_str_eq(end, "pages");
}
