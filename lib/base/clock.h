/* SPDX-License-Identifier: Apache-2.0 */
/* The only place that reads a clock. Everything else takes now as an argument. */
#ifndef KVX_BASE_CLOCK_H
#define KVX_BASE_CLOCK_H

#include <stdint.h>

#define KVX_NEVER         UINT64_MAX
#define KVX_NS_PER_MS     UINT64_C(1000000)
#define KVX_NS_PER_SECOND UINT64_C(1000000000)

/* Nanoseconds of CLOCK_BOOTTIME: it counts suspended time, which a lease must not ignore. */
uint64_t kvx_now(void);

/* The earlier of two times; KVX_NEVER is later than any. */
static inline uint64_t kvx_earlier(uint64_t a_ns, uint64_t b_ns)
{
    return a_ns < b_ns ? a_ns : b_ns;
}

#endif
