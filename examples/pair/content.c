/* SPDX-License-Identifier: Apache-2.0 */
#include "pair/content.h"

#include "pair/trace.h"

#include <string.h>

#define STEP         UINT64_C(0xa0761d6478bd642f)
#define POISON_BYTES 64
#define POISON_EVERY 1024

/* One word: the position decides it as much as the key does. Written so that compilers turn the
 * loops below into vectors. */
static inline uint64_t content_word(uint64_t state)
{
    return state ^ (state >> 29);
}

uint64_t content_key(const content_place *place)
{
    const uint64_t where =
            (uint64_t)place->rank << 48 ^ (uint64_t)place->region << 32 ^ place->token;
    return trace_mix(trace_mix(place->origin) + where * STEP);
}

void content_fill(void *piece, size_t bytes, uint64_t key)
{
    uint64_t *words = piece;
    for (size_t i = 0; i < bytes / 8; i++)
        words[i] = content_word(key + i * STEP);
}

bool content_matches(const void *piece, size_t bytes, uint64_t key)
{
    const uint64_t *words = piece;
    uint64_t difference = 0;
    for (size_t i = 0; i < bytes / 8; i++)
        difference |= words[i] ^ content_word(key + i * STEP);
    return difference == 0;
}

void content_poison(void *page, size_t page_bytes, size_t piece_bytes)
{
    const size_t step = piece_bytes < POISON_EVERY ? piece_bytes : POISON_EVERY;
    char *const bytes = page;

    for (size_t piece = 0; piece < page_bytes; piece += piece_bytes)
        for (size_t off = 0; off < piece_bytes; off += step) {
            const size_t left = piece_bytes - off;
            memset(bytes + piece + off, 0xDD, left < POISON_BYTES ? left : POISON_BYTES);
        }
}
