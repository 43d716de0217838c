/* SPDX-License-Identifier: Apache-2.0 */
/* Hash map from a 64-bit key to a pointer. Grows on insert only. */
#ifndef KVX_BASE_MAP_H
#define KVX_BASE_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/check.h"

typedef struct kvx_map_slot {
    uint64_t key;
    void *value; /* NULL: empty */
} kvx_map_slot;

typedef struct kvx_map {
    kvx_map_slot *slots;
    size_t capacity; /* a power of two, or 0 before the first insert */
    size_t count;
} kvx_map;

/* A zeroed map is an empty map. */
void kvx_map_fini(kvx_map *map);

/* Make room for one more, so that the next insert of a new key cannot fail. */
KVX_CHECKED kvx_status kvx_map_reserve(kvx_map *map);

/* Map a key to a value that is not NULL. KVX_BUSY: the key is there already. KVX_NO_MEMORY. */
KVX_CHECKED kvx_status kvx_map_insert(kvx_map *map, uint64_t key, void *value);

/* The value of a key, or NULL. */
void *kvx_map_find(const kvx_map *map, uint64_t key);

/* Take a key out; returns its value, or NULL. Never fails, never allocates. */
void *kvx_map_remove(kvx_map *map, uint64_t key);

/* Walk: *position starts at 0; returns the next value, or NULL at the end. The map must not
 * change during a walk. */
void *kvx_map_next(const kvx_map *map, size_t *position);

#endif
