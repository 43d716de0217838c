/* SPDX-License-Identifier: Apache-2.0 */
#include "base/bitmap.h"

#include <stdlib.h>

static size_t word_count(size_t bits)
{
    return bits / 64 + (bits % 64 != 0);
}

kvx_status kvx_bitmap_init(kvx_bitmap *bitmap, size_t bits)
{
    const size_t words = word_count(bits);
    uint64_t *memory = calloc(words == 0 ? 1 : words, sizeof(*memory));
    KVX_ENSURE(memory != NULL, KVX_NO_MEMORY);
    *bitmap = (kvx_bitmap){ .words = memory, .bits = bits };
    return KVX_OK;
}

void kvx_bitmap_fini(kvx_bitmap *bitmap)
{
    free(bitmap->words);
    *bitmap = (kvx_bitmap){ 0 };
}

size_t kvx_bitmap_count(const kvx_bitmap *bitmap)
{
    const size_t words = word_count(bitmap->bits);
    size_t count = 0;
    for (size_t i = 0; i < words; i++)
        count += (size_t)__builtin_popcountll(bitmap->words[i]);
    return count;
}
