/* SPDX-License-Identifier: Apache-2.0 */
#include "support/alloc_fail.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* The linker names them; there is no header that could. */
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
int __real_posix_memalign(void **out, size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
int __wrap_posix_memalign(void **out, size_t alignment, size_t size);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t size);

static atomic_uint_fast64_t chosen_idx; /* which allocation fails, counted from 1 */
static atomic_uint_fast64_t counted;
static atomic_bool is_armed;
static atomic_bool is_lasting;
static atomic_bool has_failed;
static atomic_bool one_thread_only;
static _Thread_local bool is_chosen_thread;

static void arm(uint64_t n, bool lasting)
{
    atomic_store(&counted, 0);
    atomic_store(&has_failed, false);
    atomic_store(&is_lasting, lasting);
    atomic_store(&chosen_idx, n);
    atomic_store(&is_armed, true);
}

bool alloc_fail_arm(uint64_t n)
{
    arm(n, false);
    return true;
}

bool alloc_fail_arm_from(uint64_t n)
{
    arm(n, true);
    return true;
}

bool alloc_fail_disarm(void)
{
    atomic_store(&is_armed, false);
    return atomic_load(&has_failed);
}

uint64_t alloc_fail_count(void)
{
    return atomic_load(&counted);
}

void alloc_fail_this_thread_only(bool only)
{
    is_chosen_thread = only;
    atomic_store(&one_thread_only, only);
}

static bool must_fail(void)
{
    if (!atomic_load(&is_armed))
        return false;
    if (atomic_load(&one_thread_only) && !is_chosen_thread)
        return false;

    const uint64_t mine = atomic_fetch_add(&counted, 1) + 1;
    const uint64_t chosen = atomic_load(&chosen_idx);
    const bool fails = atomic_load(&is_lasting) ? mine >= chosen : mine == chosen;
    if (fails) {
        atomic_store(&has_failed, true);
        errno = ENOMEM;
    }
    return fails;
}

void *__wrap_malloc(size_t size)
{
    return must_fail() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return must_fail() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return must_fail() ? NULL : __real_realloc(old, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return must_fail() ? NULL : __real_aligned_alloc(alignment, size);
}

int __wrap_posix_memalign(void **out, size_t alignment, size_t size)
{
    return must_fail() ? ENOMEM : __real_posix_memalign(out, alignment, size);
}

char *__wrap_strndup(const char *text, size_t size)
{
    const size_t length = strnlen(text, size);
    char *copy = __wrap_malloc(length + 1);

    if (copy == NULL)
        return NULL;
    memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

char *__wrap_strdup(const char *text)
{
    return __wrap_strndup(text, strlen(text));
}
