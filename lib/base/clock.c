/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <time.h>

uint64_t kvx_now(void)
{
    struct timespec now = { 0 };
    /* Cannot fail: the clock exists since Linux 2.6.39 and the pointer is good. */
    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * KVX_NS_PER_SECOND + (uint64_t)now.tv_nsec;
}
