/* SPDX-License-Identifier: Apache-2.0 */
/* After fork the child has the parent's memory and descriptors but none of its threads, so a
 * node that came with it must not be touched. */
#include <stdatomic.h>

#include "node/node.h"

/* Relaxed: the only writer is a child that has one thread then. */
static _Atomic uint64_t forks_count;

static kvx_mutex watch_lock = { PTHREAD_MUTEX_INITIALIZER };
static bool is_watched; /* under watch_lock */

static void count_fork(void)
{
    (void)atomic_fetch_add_explicit(&forks_count, 1, memory_order_relaxed);
    kvx_mutex_init(&watch_lock); /* a thread that is not here may have held it */
}

kvx_status kvx_forks_watch(uint64_t *forks_out)
{
    kvx_lock(&watch_lock);
    if (!is_watched)
        is_watched = pthread_atfork(NULL, NULL, count_fork) == 0;
    const bool is_ready = is_watched;
    kvx_unlock(&watch_lock);

    KVX_ENSURE(is_ready, KVX_NO_MEMORY);
    *forks_out = atomic_load_explicit(&forks_count, memory_order_relaxed);
    return KVX_OK;
}

bool kvx_forks_is(uint64_t forks)
{
    return atomic_load_explicit(&forks_count, memory_order_relaxed) == forks;
}
