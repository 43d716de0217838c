/* SPDX-License-Identifier: Apache-2.0 */
/* Makes allocations of the program and of the library linked into it fail on demand. The program
 * is linked with -Wl,--wrap for each function below (meson: alloc_fail_args).
 *
 *     for (uint64_t n = 1; alloc_fail_arm(n); n++) {
 *         status = operation();
 *         if (!alloc_fail_disarm())
 *             break;                              it has fewer than n allocations
 *         cr_assert_eq(status, KVX_NO_MEMORY);
 *     }
 *
 * Counts over all threads. What a shared library allocates for itself is not counted. */
#ifndef KVX_TEST_ALLOC_FAIL_H
#define KVX_TEST_ALLOC_FAIL_H

#include <stdbool.h>
#include <stdint.h>

/* From now on the n-th allocation fails, once; n > 0. Always true. */
bool alloc_fail_arm(uint64_t n);

/* The same, but from the n-th on every allocation fails until disarmed. */
bool alloc_fail_arm_from(uint64_t n);

/* Stop failing. Returns whether an allocation was made to fail since it was armed. */
bool alloc_fail_disarm(void);

/* Allocations asked for since it was armed. */
uint64_t alloc_fail_count(void);

/* Restrict counting and failing to the calling thread (true), or not (false, the default). */
void alloc_fail_this_thread_only(bool only);

#endif
