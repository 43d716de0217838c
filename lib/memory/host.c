/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/memory.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static kvx_status host_probe(char *why, size_t why_size)
{
    (void)why;
    (void)why_size;
    return KVX_OK;
}

static bool host_owns(const void *pointer)
{
    (void)pointer;
    return true;
}

/* An asynchronous msync() of anonymous memory does nothing but walk the mappings, so it tells
 * at the cost of a lookup whether all of a range is mapped. */
static bool range_is_mapped(uintptr_t first, uint64_t length_bytes)
{
    const uintptr_t page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t start = first & ~(page_bytes - 1);
    return msync((void *)start, first - start + length_bytes, MS_ASYNC) == 0 || errno != ENOMEM;
}

static kvx_status host_check(const void *base, uint64_t length_bytes, char *why, size_t why_size)
{
    const uintptr_t first = (uintptr_t)base;
    uintptr_t end;
    if (base == NULL || length_bytes == 0) {
        (void)snprintf(why, why_size, "the range at %p is empty", base);
        return KVX_INVALID;
    }
    if (__builtin_add_overflow(first, length_bytes, &end)) {
        (void)snprintf(why, why_size, "the range at %p of %llu bytes leaves the address space",
                base, (unsigned long long)length_bytes);
        return KVX_INVALID;
    }
    if (!range_is_mapped(first, length_bytes)) {
        (void)snprintf(why, why_size, "the range at %p of %llu bytes is not mapped throughout",
                base, (unsigned long long)length_bytes);
        return KVX_INVALID;
    }
    return KVX_OK;
}

/* Host memory is coherent: the message that offers a range orders the writes before it. */
static kvx_status host_fence(const void *base, uint64_t length_bytes)
{
    (void)base;
    (void)length_bytes;
    return KVX_OK;
}

static kvx_status host_copy(void *to, const void *from, size_t length_bytes)
{
    memcpy(to, from, length_bytes);
    return KVX_OK;
}

const kvx_memory_provider kvx_memory_host = {
    .kind = KVX_MEMORY_HOST,
    .name = "host",
    .probe = host_probe,
    .owns = host_owns,
    .check = host_check,
    .source_fence = host_fence,
    .target_fence = host_fence,
    .copy_in = host_copy,
    .copy_out = host_copy,
};
