/* SPDX-License-Identifier: Apache-2.0 */
/* Intrusive doubly linked list. A node that is in no list links to itself or is all zero. */
#ifndef KVX_BASE_LIST_H
#define KVX_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

#include "base/check.h"

typedef struct kvx_list {
    struct kvx_list *next;
    struct kvx_list *prev;
} kvx_list;

static inline void kvx_list_init(kvx_list *list)
{
    list->next = list;
    list->prev = list;
}

static inline bool kvx_list_is_empty(const kvx_list *list)
{
    return list->next == list || list->next == NULL;
}

/* Whether a node is in a list. */
static inline bool kvx_list_is_linked(const kvx_list *node)
{
    return !kvx_list_is_empty(node);
}

static inline void kvx_list_append(kvx_list *list, kvx_list *node)
{
    node->prev = list->prev;
    node->next = list;
    list->prev->next = node;
    list->prev = node;
}

/* Take a node out of its list; a node in no list stays so. */
static inline void kvx_list_remove(kvx_list *node)
{
    if (node->next == NULL)
        return;
    node->prev->next = node->next;
    node->next->prev = node->prev;
    kvx_list_init(node);
}

#define KVX_LIST_ENTRY(node, type, member) KVX_CONTAINER_OF(node, type, member)

/* Walk a list; the present node may be removed, its successor may not. */
#define kvx_list_foreach(node, list)                                               \
    for (kvx_list *node = (list)->next, *node##_next = node->next; node != (list); \
            node = node##_next, node##_next = node->next)

#endif
