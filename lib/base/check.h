/* SPDX-License-Identifier: Apache-2.0 */
/* The two macros that return. They stand before the first resource a function owns. */
#ifndef KVX_BASE_CHECK_H
#define KVX_BASE_CHECK_H

#include "kvx/status.h"

/* Pass a callee's failure up unchanged; the callee has logged it. */
#define KVX_TRY(call)                    \
    do {                                 \
        kvx_status try_status_ = (call); \
        if (try_status_ != KVX_OK)       \
            return try_status_;          \
    } while (0)

/* What a caller or a peer may get wrong. */
#define KVX_ENSURE(condition, status) \
    do {                              \
        if (!(condition))             \
            return (status);          \
    } while (0)

#define KVX_CHECKED             __attribute__((warn_unused_result))
#define KVX_PRINTF(text, first) __attribute__((format(printf, text, first)))
#define KVX_CONTAINER_OF(pointer, type, member) \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

#endif
