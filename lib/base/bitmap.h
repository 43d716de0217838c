/* SPDX-License-Identifier: Apache-2.0 */
/* Fixed-size bitmap. */
#ifndef KVX_BASE_BITMAP_H
#define KVX_BASE_BITMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"

typedef struct kvx_bitmap {
    uint64_t *words;
    size_t bits;
} kvx_bitmap;

KVX_CHECKED kvx_status kvx_bitmap_init(kvx_bitmap *bitmap, size_t bits);
void kvx_bitmap_fini(kvx_bitmap *bitmap);

/* The caller keeps bit below bits. */
static inline bool kvx_bitmap_test(const kvx_bitmap *bitmap, size_t bit)
{
    return (bitmap->words[bit / 64] >> (bit % 64)) & 1;
}

static inline void kvx_bitmap_set(kvx_bitmap *bitmap, size_t bit)
{
    bitmap->words[bit / 64] |= UINT64_C(1) << (bit % 64);
}

static inline void kvx_bitmap_clear(kvx_bitmap *bitmap, size_t bit)
{
    bitmap->words[bit / 64] &= ~(UINT64_C(1) << (bit % 64));
}

size_t kvx_bitmap_count(const kvx_bitmap *bitmap);

#endif
