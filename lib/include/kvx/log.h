/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * Log: where the library's lines go. The library prints nothing by itself.
 */
#ifndef KVX_LOG_H
#define KVX_LOG_H

#include "kvx/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** How much a line matters; smaller is graver. */
typedef enum kvx_log_level {
    KVX_LOG_ERROR, /**< cannot go on with this thing */
    KVX_LOG_WARN,  /**< going on, you should know */
    KVX_LOG_INFO,  /**< once an object: opened, connected, chosen */
    KVX_LOG_DEBUG, /**< once a request: a room's story */
} kvx_log_level;

/**
 * Receives one line, without a newline.
 *
 * Called from any thread that uses the library, maybe from several at once,
 * and with internal locks held: it must not call into the library.
 *
 * @param arg   as given to kvx_log_set()
 * @param level how much the line matters
 * @param line  zero-terminated, valid during the call
 */
typedef void (*kvx_log_fn)(void *arg, kvx_log_level level, const char *line);

/**
 * Say where log lines go, for the whole process.
 *
 * @param fn    the receiver; NULL: nowhere, the default
 * @param arg   passed to @p fn; must outlive its last call
 * @param level lines graver than or equal to this are passed on
 *
 * Thread-safety: any thread; a line being written meanwhile may still use the old receiver.
 */
KVX_API void kvx_log_set(kvx_log_fn fn, void *arg, kvx_log_level level);

#ifdef __cplusplus
}
#endif
#endif
