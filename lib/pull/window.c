/* SPDX-License-Identifier: Apache-2.0 */
/* The window: a fixed number of slots, made at create. A slot's ids are its index plus multiples
 * of the number of slots, each used once, so that a late completion finds nothing. */
#include "pull/internal.h"

#include <stdlib.h>

kvx_status kvx_window_init(kvx_pull_window *window, uint32_t slot_count, uint64_t bytes_max)
{
    kvx_list_init(&window->free);
    window->slots = calloc(slot_count, sizeof(*window->slots));
    KVX_ENSURE(window->slots != NULL, KVX_NO_MEMORY);
    window->slot_count = slot_count;
    window->bytes_max = bytes_max;
    for (uint32_t i = 0; i < slot_count; i++) {
        window->slots[i].id = i;
        kvx_list_append(&window->free, &window->slots[i].node);
    }
    return KVX_OK;
}

void kvx_window_fini(kvx_pull_window *window)
{
    free(window->slots);
    *window = (kvx_pull_window){ 0 };
}

void kvx_window_renew(const kvx_pull_window *window, kvx_pull_slot *slot)
{
    slot->id += window->slot_count;
}

kvx_pull_slot *kvx_window_take(kvx_pull_window *window)
{
    if (kvx_list_is_empty(&window->free))
        return NULL;
    kvx_pull_slot *slot = KVX_LIST_ENTRY(window->free.next, kvx_pull_slot, node);
    kvx_list_remove(&slot->node);
    kvx_window_renew(window, slot);
    return slot;
}

void kvx_window_give(kvx_pull_window *window, kvx_pull_slot *slot)
{
    kvx_list_remove(&slot->node);
    slot->task = NULL;
    kvx_list_append(&window->free, &slot->node);
}

kvx_pull_slot *kvx_window_find(const kvx_pull_window *window, uint64_t id)
{
    kvx_pull_slot *slot = &window->slots[id % window->slot_count];
    return slot->is_posted && slot->id == id ? slot : NULL;
}

void kvx_slot_post(kvx_puller *puller, kvx_pull_slot *slot)
{
    slot->is_posted = true;
    slot->task->reads++;
    kvx_list_append(&slot->task->path->reads, &slot->node);
    puller->window.posted++;
    puller->window.bytes += slot->length_bytes;
    kvx_count(&puller->metrics->reads_in_flight, 1);
    kvx_count(&puller->metrics->bytes_in_flight, slot->length_bytes);
}

void kvx_slot_unpost(kvx_puller *puller, kvx_pull_slot *slot)
{
    slot->is_posted = false;
    slot->task->reads--;
    kvx_list_remove(&slot->node);
    puller->window.posted--;
    puller->window.bytes -= slot->length_bytes;
    kvx_uncount(&puller->metrics->reads_in_flight, 1);
    kvx_uncount(&puller->metrics->bytes_in_flight, slot->length_bytes);
}
