/* SPDX-License-Identifier: Apache-2.0 */
/* Encoding what was decoded: views become arrays. */
#ifndef KVX_TEST_REENCODE_H
#define KVX_TEST_REENCODE_H

#include <stdlib.h>

#include "wire/message.h"

/* Arrays that a message was given; freed together. */
typedef struct reencode_arrays {
    void *array[KVX_COMPONENT_MAX];
} reencode_arrays;

static inline void *reencode_allocate(reencode_arrays *arrays, uint32_t at, size_t bytes)
{
    arrays->array[at] = malloc(bytes + 1);
    if (arrays->array[at] == NULL)
        abort();
    return arrays->array[at];
}

static inline void reencode_ready(kvx_message *message, reencode_arrays *arrays)
{
    for (uint32_t i = 0; i < message->ready.component_count; i++) {
        const kvx_wire_runs *view = &message->ready.tables[i].view;
        kvx_page_run *runs = reencode_allocate(arrays, i, view->count * sizeof(*runs));
        for (uint32_t j = 0; j < view->count; j++)
            runs[j] = kvx_wire_run_at(view, j);
        message->ready.tables[i].runs = runs;
        message->ready.tables[i].run_count = view->count;
    }
}

static inline void reencode_renew(kvx_message *message, reencode_arrays *arrays)
{
    kvx_renew_item *items =
            reencode_allocate(arrays, 0, message->renew.count * sizeof(kvx_renew_item));

    for (uint32_t i = 0; i < message->renew.count; i++)
        items[i] = kvx_wire_renew_at(message->renew.view, i);
    message->renew.items = items;
}

static inline void reencode_lease(kvx_message *message, reencode_arrays *arrays)
{
    kvx_lease_item *items =
            reencode_allocate(arrays, 0, message->lease.count * sizeof(kvx_lease_item));

    for (uint32_t i = 0; i < message->lease.count; i++)
        items[i] = kvx_wire_lease_at(message->lease.view, i);
    message->lease.items = items;
}

/* Append what a decoded message encodes to. */
static inline kvx_status reencode(const kvx_message *decoded, kvx_buffer *out)
{
    kvx_message message = *decoded;
    reencode_arrays arrays = { { NULL } };

    if (message.type == KVX_MESSAGE_READY)
        reencode_ready(&message, &arrays);
    if (message.type == KVX_MESSAGE_RENEW)
        reencode_renew(&message, &arrays);
    if (message.type == KVX_MESSAGE_LEASE)
        reencode_lease(&message, &arrays);
    const kvx_status st = kvx_wire_encode(&message, out);
    for (uint32_t i = 0; i < KVX_COMPONENT_MAX; i++)
        free(arrays.array[i]);
    return st;
}

#endif
