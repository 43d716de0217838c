/* SPDX-License-Identifier: Apache-2.0 */
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "process.h"
#include "watch.h"

#define CHUNK_BYTES (UINT32_C(256) << 10)

typedef struct arena_chunk {
    struct arena_chunk *next;
    size_t used;
    size_t size;
    max_align_t bytes[];
} arena_chunk;

/* A model without memory says so and ends: there is nothing to test then. */
static void *must_have(void *memory)
{
    if (memory == NULL) {
        fputs("model: out of memory\n", stderr);
        exit(2);
    }
    return memory;
}

void *world_take(world *w, size_t size)
{
    size_t rounded = (size + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);

    while (w->chunk != NULL && w->chunk->used + rounded > w->chunk->size) {
        if (w->chunk->next != NULL)
            w->chunk->next->used = 0;
        w->chunk = w->chunk->next;
    }
    if (w->chunk == NULL) {
        size_t room = rounded > CHUNK_BYTES ? rounded : CHUNK_BYTES;
        arena_chunk *fresh = must_have(malloc(sizeof(*fresh) + room));
        fresh->size = room;
        fresh->used = 0;
        fresh->next = NULL;
        arena_chunk **last = &w->chunks;
        while (*last != NULL)
            last = &(*last)->next;
        *last = fresh;
        w->chunk = fresh;
    }
    uint8_t *memory = (uint8_t *)w->chunk->bytes + w->chunk->used;
    w->chunk->used += rounded;
    memset(memory, 0, size);
    return memory;
}

static bool is_before(const happening *x, const happening *y)
{
    return x->at < y->at || (x->at == y->at && x->order < y->order);
}

void world_at(world *w, uint64_t at, happen_fn run, void *object, uint64_t a, uint64_t b)
{
    if (at == KVX_NEVER)
        return;
    if (w->heap_count == w->heap_capacity) {
        w->heap_capacity = w->heap_capacity == 0 ? 1024 : w->heap_capacity * 2;
        w->heap = must_have(realloc(w->heap, w->heap_capacity * sizeof(*w->heap)));
    }
    happening fresh = { at < w->t ? w->t : at, w->order++, run, object, a, b };
    uint32_t hole = w->heap_count++;
    while (hole > 0 && is_before(&fresh, &w->heap[(hole - 1) / 2])) {
        w->heap[hole] = w->heap[(hole - 1) / 2];
        hole = (hole - 1) / 2;
    }
    w->heap[hole] = fresh;
}

static happening take_first(world *w)
{
    happening first = w->heap[0];
    happening last = w->heap[--w->heap_count];
    uint32_t hole = 0;

    for (;;) {
        uint32_t child = hole * 2 + 1;
        if (child >= w->heap_count)
            break;
        if (child + 1 < w->heap_count && is_before(&w->heap[child + 1], &w->heap[child]))
            child++;
        if (!is_before(&w->heap[child], &last))
            break;
        w->heap[hole] = w->heap[child];
        hole = child;
    }
    w->heap[hole] = last;
    return first;
}

void world_run(world *w, uint64_t until)
{
    while (w->heap_count > 0 && w->heap[0].at <= until && w->violation[0] == '\0') {
        happening next = take_first(w);
        if (next.at > w->t)
            w->steps_now = 0;
        w->t = next.at;
        w->happened++;
        next.run(w, next.object, next.a, next.b);
        if (w->t >= w->chaos_end && !w->is_scripted && watch_is_all_over(w))
            return;
    }
    if (w->violation[0] == '\0' && w->t < until)
        w->t = until;
}

void world_begin(world *w, const model_set *set, uint64_t seed, const faults *planted, bool traced)
{
    world kept = *w;

    memset(w, 0, offsetof(world, procs));
    memset((char *)w + offsetof(world, proc_count), 0, sizeof(*w) - offsetof(world, proc_count));
    w->heap = kept.heap;
    w->heap_capacity = kept.heap_capacity;
    w->chunks = kept.chunks;
    w->chunk = kept.chunks;
    if (w->chunk != NULL)
        w->chunk->used = 0;
    w->encode = kept.encode;
    w->random = seed;
    w->set = set;
    if (planted != NULL)
        w->faults = *planted;
    w->is_traced = traced;
    w->t = SECOND;
    kvx_list_init(&w->reads);
}

void world_end(world *w)
{
    for (uint32_t i = 0; i < w->proc_count; i++)
        proc_destroy(&w->procs[i]);
    w->heap_count = 0;
}

void world_fini(world *w)
{
    free(w->heap);
    while (w->chunks != NULL) {
        arena_chunk *next = w->chunks->next;
        free(w->chunks);
        w->chunks = next;
    }
    kvx_buffer_fini(&w->encode);
    w->heap = NULL;
    w->heap_capacity = 0;
}

void world_log(world *w, const char *who, const char *format, ...)
{
    va_list list;

    printf("%12.6f %-5s ", (double)w->t / 1e9, who);
    va_start(list, format);
    vprintf(format, list);
    va_end(list);
    putchar('\n');
}

uint64_t world_random(world *w)
{
    uint64_t x = w->random += UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

uint64_t world_below(world *w, uint64_t below)
{
    return below == 0 ? 0 : world_random(w) % below;
}

bool world_chance(world *w, uint32_t chance)
{
    return chance != 0 && world_random(w) % 1024 < chance;
}

uint64_t world_span(world *w, uint64_t most)
{
    return world_below(w, most + 1);
}

bool world_is_chaos(const world *w)
{
    return w->t < w->chaos_end && !w->is_scripted;
}
