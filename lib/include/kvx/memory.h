/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * Memory: the kinds of memory that a pool can live in.
 */
#ifndef KVX_MEMORY_H
#define KVX_MEMORY_H

#include "kvx/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Where a buffer lives. Values are ABI. */
typedef enum kvx_memory_kind {
    KVX_MEMORY_HOST = 0, /**< ordinary memory of this process */
    KVX_MEMORY_ROCM = 1, /**< memory of an AMD GPU (not in this version) */
} kvx_memory_kind;

/**
 * Name of a memory kind: "host", "rocm".
 *
 * @param kind any value; unknown ones give "unknown"
 * @return a static string, never NULL
 *
 * Thread-safety: any thread.
 */
KVX_API const char *kvx_memory_kind_name(kvx_memory_kind kind);

#ifdef __cplusplus
}
#endif
#endif
