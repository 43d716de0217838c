/* SPDX-License-Identifier: Apache-2.0 */
/* The content of a piece: the bytes of one token in one region. It is a function of what came
 * before the token, the rank, the region and the token's position, so that a stale, a swapped or
 * a foreign page shows. */
#ifndef PAIR_CONTENT_H
#define PAIR_CONTENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where a piece belongs. */
typedef struct content_place {
    uint64_t origin; /* of trace_origin() */
    uint32_t rank;
    uint32_t region;
    uint32_t token;
} content_place;

uint64_t content_key(const content_place *place);

/* Write a piece; bytes is a multiple of 8. Cost: as fast as memory takes it. */
void content_fill(void *piece, size_t bytes, uint64_t key);

/* Whether every byte of a piece is right. */
bool content_matches(const void *piece, size_t bytes, uint64_t key);

/* Make every piece of a page wrong, whoever reads it: the first bytes of each, and of each KiB of
 * larger ones. */
void content_poison(void *page, size_t page_bytes, size_t piece_bytes);

#endif
