/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

#include "base/lock.h"

#define LINE_BYTES 1024
#define LEVEL_NONE (-1)

/* The receiver is read without a lock, so that a line costs little and a child after fork never
 * waits for a lock that another thread of its parent held. Fields belong together while version
 * is even and the same before and after reading them; all accesses are sequentially consistent,
 * which orders them. Writers take the mutex. */
static struct {
    kvx_mutex writers;
    _Atomic uint32_t version;
    _Atomic(kvx_log_fn) fn;
    _Atomic(void *) arg;
    _Atomic int level; /* LEVEL_NONE: no receiver */
} receiver = { .writers = { PTHREAD_MUTEX_INITIALIZER }, .level = LEVEL_NONE };

void kvx_log_set(kvx_log_fn fn, void *arg, kvx_log_level level)
{
    kvx_lock(&receiver.writers);
    (void)atomic_fetch_add(&receiver.version, 1);
    atomic_store(&receiver.fn, fn);
    atomic_store(&receiver.arg, arg);
    atomic_store(&receiver.level, fn == NULL ? LEVEL_NONE : (int)level);
    (void)atomic_fetch_add(&receiver.version, 1);
    kvx_unlock(&receiver.writers);
}

bool kvx_log_wants(kvx_log_level level)
{
    return (int)level <= atomic_load(&receiver.level);
}

static kvx_log_fn receiver_read(void **arg_out)
{
    uint32_t version;
    kvx_log_fn fn;
    do {
        version = atomic_load(&receiver.version);
        fn = atomic_load(&receiver.fn);
        *arg_out = atomic_load(&receiver.arg);
    } while (version % 2 != 0 || version != atomic_load(&receiver.version));
    return fn;
}

void kvx_log(kvx_log_level level, const char *format, ...)
{
    if (!kvx_log_wants(level))
        return;
    const int saved_errno = errno;
    void *arg = NULL;
    const kvx_log_fn fn = receiver_read(&arg);
    if (fn != NULL) {
        char line[LINE_BYTES];
        va_list args;
        va_start(args, format);
        if (vsnprintf(line, sizeof(line), format, args) >= 0)
            fn(arg, level, line);
        va_end(args);
    }
    errno = saved_errno;
}
