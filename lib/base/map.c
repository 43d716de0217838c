/* SPDX-License-Identifier: Apache-2.0 */
/* Open addressing with linear probing. Removing moves later entries back instead of leaving
 * marks, so a map that lives long does not slow down. */
#include "base/map.h"

#include <stdlib.h>

#define CAPACITY_MIN 16

/* Spreads keys that count upwards or share their low bits. */
static uint64_t key_mix(uint64_t key)
{
    key ^= key >> 32;
    key *= UINT64_C(0xd6e8feb86659fd93);
    key ^= key >> 32;
    key *= UINT64_C(0xd6e8feb86659fd93);
    key ^= key >> 32;
    return key;
}

static size_t slot_home(const kvx_map *map, uint64_t key)
{
    return (size_t)key_mix(key) & (map->capacity - 1);
}

/* The slot that holds the key, or the free one where it belongs. There is always a free one. */
static kvx_map_slot *slot_find(const kvx_map *map, uint64_t key)
{
    size_t at = slot_home(map, key);
    while (map->slots[at].value != NULL && map->slots[at].key != key)
        at = (at + 1) & (map->capacity - 1);
    return &map->slots[at];
}

static kvx_status map_grow(kvx_map *map)
{
    kvx_map larger = {
        .capacity = map->capacity == 0 ? CAPACITY_MIN : map->capacity * 2,
        .count = map->count,
    };
    KVX_ENSURE(larger.capacity > map->capacity, KVX_NO_MEMORY);
    larger.slots = calloc(larger.capacity, sizeof(*larger.slots));
    KVX_ENSURE(larger.slots != NULL, KVX_NO_MEMORY);
    for (size_t i = 0; i < map->capacity; i++) {
        if (map->slots[i].value != NULL)
            *slot_find(&larger, map->slots[i].key) = map->slots[i];
    }
    free(map->slots);
    *map = larger;
    return KVX_OK;
}

void kvx_map_fini(kvx_map *map)
{
    free(map->slots);
    *map = (kvx_map){ 0 };
}

kvx_status kvx_map_reserve(kvx_map *map)
{
    return map->count < map->capacity / 4 * 3 ? KVX_OK : map_grow(map);
}

kvx_status kvx_map_insert(kvx_map *map, uint64_t key, void *value)
{
    KVX_ENSURE(value != NULL, KVX_INVALID);
    KVX_ENSURE(kvx_map_find(map, key) == NULL, KVX_BUSY);
    KVX_TRY(kvx_map_reserve(map));
    *slot_find(map, key) = (kvx_map_slot){ .key = key, .value = value };
    map->count++;
    return KVX_OK;
}

void *kvx_map_find(const kvx_map *map, uint64_t key)
{
    if (map->count == 0)
        return NULL;
    return slot_find(map, key)->value;
}

/* Fill the hole: an entry behind it may move there if its home is not between the two. */
static void hole_close(kvx_map *map, size_t hole)
{
    const size_t mask = map->capacity - 1;
    for (size_t at = (hole + 1) & mask; map->slots[at].value != NULL; at = (at + 1) & mask) {
        const size_t home = slot_home(map, map->slots[at].key);
        if (((at - home) & mask) < ((at - hole) & mask))
            continue;
        map->slots[hole] = map->slots[at];
        hole = at;
    }
    map->slots[hole] = (kvx_map_slot){ 0 };
}

void *kvx_map_remove(kvx_map *map, uint64_t key)
{
    if (map->count == 0)
        return NULL;
    kvx_map_slot *slot = slot_find(map, key);
    void *value = slot->value;
    if (value == NULL)
        return NULL;
    hole_close(map, (size_t)(slot - map->slots));
    map->count--;
    return value;
}

void *kvx_map_next(const kvx_map *map, size_t *position)
{
    while (*position < map->capacity) {
        void *value = map->slots[(*position)++].value;
        if (value != NULL)
            return value;
    }
    return NULL;
}
