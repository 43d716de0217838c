/* SPDX-License-Identifier: Apache-2.0 */
/* A mutex that clang's thread-safety analysis knows. */
#ifndef KVX_BASE_LOCK_H
#define KVX_BASE_LOCK_H

#include <pthread.h>

#if defined(__clang__)
#define KVX_CAPABILITY    __attribute__((capability("mutex")))
#define KVX_ACQUIRES(...) __attribute__((acquire_capability(__VA_ARGS__)))
#define KVX_RELEASES(...) __attribute__((release_capability(__VA_ARGS__)))
#define KVX_REQUIRES(...) __attribute__((requires_capability(__VA_ARGS__)))
#define KVX_NO_ANALYSIS   __attribute__((no_thread_safety_analysis))
#else
#define KVX_CAPABILITY
#define KVX_ACQUIRES(...)
#define KVX_RELEASES(...)
#define KVX_REQUIRES(...)
#define KVX_NO_ANALYSIS
#endif

typedef struct KVX_CAPABILITY kvx_mutex {
    pthread_mutex_t m;
} kvx_mutex;

/* Initialise statically with { PTHREAD_MUTEX_INITIALIZER }, or here; a default mutex cannot fail
 * on Linux. */
static inline void kvx_mutex_init(kvx_mutex *mutex)
{
    (void)pthread_mutex_init(&mutex->m, NULL);
}

static inline void kvx_mutex_fini(kvx_mutex *mutex)
{
    (void)pthread_mutex_destroy(&mutex->m);
}

static inline void kvx_lock(kvx_mutex *mutex) KVX_ACQUIRES(mutex) KVX_NO_ANALYSIS;
static inline void kvx_lock(kvx_mutex *mutex)
{
    (void)pthread_mutex_lock(&mutex->m);
}

static inline void kvx_unlock(kvx_mutex *mutex) KVX_RELEASES(mutex) KVX_NO_ANALYSIS;
static inline void kvx_unlock(kvx_mutex *mutex)
{
    (void)pthread_mutex_unlock(&mutex->m);
}

#endif
