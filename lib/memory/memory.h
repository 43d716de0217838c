/* SPDX-License-Identifier: Apache-2.0 */
/* Providers of memory: what can be done with a kind of memory that a pool lives in. */
#ifndef KVX_MEMORY_MEMORY_H
#define KVX_MEMORY_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "kvx/memory.h"

/* Every slot is filled. Fences say what completion alone does not: that bytes are visible. */
typedef struct kvx_memory_provider {
    kvx_memory_kind kind;
    const char *name;

    /* Can this process use the kind now? KVX_UNSUPPORTED: why says the reason. */
    kvx_status (*probe)(char *why, size_t why_size);
    /* Whether a pointer is of this kind. */
    bool (*owns)(const void *pointer);
    /* May a range be registered and read by peers? KVX_INVALID: why says the reason. */
    kvx_status (*check)(const void *base, uint64_t length_bytes, char *why, size_t why_size);
    /* Source side, before a range is offered: what the process wrote is seen by readers. */
    kvx_status (*source_fence)(const void *base, uint64_t length_bytes);
    /* Target side, after the last read of a range: what was read is seen by the process. */
    kvx_status (*target_fence)(const void *base, uint64_t length_bytes);
    /* Copies between this kind and host memory. */
    kvx_status (*copy_in)(void *to, const void *host, size_t length_bytes);
    kvx_status (*copy_out)(void *host, const void *from, size_t length_bytes);
} kvx_memory_provider;

extern const kvx_memory_provider kvx_memory_host;

/* The provider of a kind; NULL: not in this version. */
const kvx_memory_provider *kvx_memory_find(kvx_memory_kind kind);

/* Which kind a pointer is of; host when no provider knows better. */
kvx_memory_kind kvx_memory_classify(const void *pointer);

/* May a range of a kind be registered? Also refuses a pointer that is of another kind.
 * KVX_UNSUPPORTED or KVX_INVALID: why says the reason. */
KVX_CHECKED kvx_status kvx_memory_check(
        kvx_memory_kind kind, const void *base, uint64_t length_bytes, char *why, size_t why_size);

#endif
