/* SPDX-License-Identifier: Apache-2.0 */
/* Timers as an intrusive binary heap, ordered by time and then by order of setting. */
#ifndef KVX_BASE_TIMERS_H
#define KVX_BASE_TIMERS_H

#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "base/clock.h"

typedef struct kvx_timer {
    uint64_t at_ns;  /* due time; meaningful while armed */
    uint64_t order;  /* breaks ties, so that a run is deterministic */
    size_t position; /* 1 + index in the heap; 0: not armed */
} kvx_timer;

typedef struct kvx_timers {
    kvx_timer **heap;
    size_t count;    /* armed timers */
    size_t reserved; /* timers that may be armed at once */
    size_t capacity;
    uint64_t order;
} kvx_timers;

/* A zeroed kvx_timers is empty. */
void kvx_timers_fini(kvx_timers *timers);

/* Make room for one more timer, so that arming it cannot fail; kvx_timers_unreserve() when its
 * owner is freed (clear the timer first). */
KVX_CHECKED kvx_status kvx_timers_reserve(kvx_timers *timers);
void kvx_timers_unreserve(kvx_timers *timers);

/* Arm, or move, a timer; at_ns = KVX_NEVER clears it. Cost: O(log n). */
void kvx_timers_set(kvx_timers *timers, kvx_timer *timer, uint64_t at_ns);
void kvx_timers_clear(kvx_timers *timers, kvx_timer *timer);

/* The earliest timer, or NULL. */
kvx_timer *kvx_timers_first(const kvx_timers *timers);

#endif
