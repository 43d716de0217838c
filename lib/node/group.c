/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing the nodes of a group, and making their events into the group's. */
#include "node/group.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/log.h"

#define WAIT_BATCH 16

void kvx_group_slot_set(kvx_group *group, kvx_group_slot *slot, kvx_event_kind event)
{
    slot->event = event;
    if (!kvx_list_is_linked(&slot->node))
        kvx_list_append(&group->events, &slot->node);
}

void kvx_group_slot_clear(kvx_group_slot *slot)
{
    kvx_list_remove(&slot->node);
    slot->event = KVX_EVENT_NONE;
}

kvx_status kvx_group_check(const kvx_group *group)
{
    KVX_ENSURE(group != NULL, KVX_INVALID);
    return kvx_forks_is(group->forks) ? KVX_OK : KVX_FORKED;
}

/* --- opening --- */

static kvx_status check_params(const kvx_group_params *params)
{
    if (params->rank_count == 0 || params->rank_count > KVX_GROUP_RANKS_MAX) {
        kvx_log(KVX_LOG_ERROR, "a group has 1 to %d ranks in a process, not %" PRIu32,
                KVX_GROUP_RANKS_MAX, params->rank_count);
        return KVX_INVALID;
    }
    if (params->layouts == NULL) {
        kvx_log(KVX_LOG_ERROR, "a group needs a layout for each of its %" PRIu32 " ranks",
                params->rank_count);
        return KVX_INVALID;
    }
    return KVX_OK;
}

static kvx_status open_node(
        kvx_group *group, const kvx_group_params *params, uint32_t index, uint32_t ranks)
{
    const kvx_joint_listener joint = { kvx_group_joint, group, index };
    const kvx_node_params node_params = {
        .struct_size = sizeof(node_params),
        .config = params->config,
        .layout = &params->layouts[index],
        .compat = params->compat,
        .rank = params->first_rank + index,
        .ranks = ranks,
        .listen = params->listen,
    };
    kvx_node *node;

    KVX_TRY(kvx_node_open_joint(&node_params, &joint, &node));
    kvx_lock(&group->lock);
    group->nodes[index] = node;
    kvx_unlock(&group->lock);

    struct epoll_event event = { .events = EPOLLIN };
    if (epoll_ctl(group->epoll_fd, EPOLL_CTL_ADD, kvx_node_event_fd(node), &event) == 0)
        return KVX_OK;
    kvx_log(KVX_LOG_ERROR, "rank %" PRIu32 ": too many open files", node_params.rank);
    return KVX_IO;
}

static kvx_status open_nodes(kvx_group *group, const kvx_group_params *params)
{
    const uint32_t ranks =
            params->ranks == 0 ? params->first_rank + params->rank_count : params->ranks;

    group->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (group->epoll_fd < 0) {
        kvx_log(KVX_LOG_ERROR, "too many open files");
        return KVX_IO;
    }
    for (uint32_t i = 0; i < group->rank_count; i++)
        KVX_TRY(open_node(group, params, i, ranks));
    group->is_caller = group->nodes[0]->settings.progress == KVX_PROGRESS_CALLER;
    return KVX_OK;
}

/* Every node is closed. */
static void group_free(kvx_group *group)
{
    kvx_group_peers_fini(group);
    kvx_group_offers_fini(group);
    kvx_group_rooms_fini(group);
    if (group->epoll_fd >= 0)
        (void)close(group->epoll_fd);
    kvx_mutex_fini(&group->lock);
    free(group);
}

kvx_status kvx_group_open(const kvx_group_params *params, kvx_group **group_out)
{
    kvx_group_params taken;
    uint64_t forks;

    KVX_ENSURE(params != NULL && group_out != NULL, KVX_INVALID);
    KVX_TRY(kvx_forks_watch(&forks));
    KVX_TRY(kvx_params_take(&taken, sizeof(taken), params, params->struct_size));
    KVX_TRY(check_params(&taken));
    kvx_group *group = calloc(1, sizeof(*group));
    KVX_ENSURE(group != NULL, KVX_NO_MEMORY);

    group->forks = forks;
    group->first_rank = taken.first_rank;
    group->rank_count = taken.rank_count;
    group->epoll_fd = -1;
    kvx_mutex_init(&group->lock);
    kvx_list_init(&group->peers);
    kvx_list_init(&group->offers);
    kvx_list_init(&group->events);
    const kvx_status status = open_nodes(group, &taken);
    if (status != KVX_OK) {
        /* Nobody has published or pulled, so this cannot fail and takes no time. */
        if (kvx_group_close(&group, 0) != KVX_OK)
            kvx_log(KVX_LOG_ERROR, "a group that failed to open does not close");
        return status;
    }
    *group_out = group;
    return KVX_OK;
}

/* --- closing --- */

static void begin_close(kvx_group *group)
{
    kvx_lock(&group->lock);
    for (uint32_t i = 0; i < group->rank_count; i++) {
        if (group->nodes[i] != NULL)
            kvx_node_begin_close(group->nodes[i]);
    }
    kvx_unlock(&group->lock);
}

/* The node is out of the group's reach while it is being closed: all its subscriptions were
 * cancelled, so no rank needs it any more. */
static kvx_status close_one(kvx_group *group, uint32_t index, uint32_t timeout_ms)
{
    kvx_lock(&group->lock);
    kvx_node *node = group->nodes[index];
    group->nodes[index] = NULL;
    kvx_unlock(&group->lock);

    const kvx_status status = kvx_node_close(&node, timeout_ms);
    if (status == KVX_OK)
        return KVX_OK;
    kvx_lock(&group->lock);
    group->nodes[index] = node;
    kvx_unlock(&group->lock);
    return status;
}

kvx_status kvx_group_close(kvx_group **group, uint32_t timeout_ms)
{
    if (group == NULL || *group == NULL)
        return KVX_OK;
    KVX_TRY(kvx_group_check(*group));
    const uint64_t until = kvx_now() + timeout_ms * KVX_NS_PER_MS;

    begin_close(*group);
    for (uint32_t i = 0; i < (*group)->rank_count; i++) {
        const int left_ms = kvx_node_poll_ms(kvx_now(), until);
        const uint32_t at_least_one_ms = left_ms > 0 ? (uint32_t)left_ms : 1;
        KVX_TRY(close_one(*group, i, timeout_ms == 0 ? 0 : at_least_one_ms));
    }
    group_free(*group);
    *group = NULL;
    return KVX_OK;
}

kvx_node *kvx_group_node(kvx_group *group, uint32_t index)
{
    if (kvx_group_check(group) != KVX_OK || index >= group->rank_count)
        return NULL;
    kvx_lock(&group->lock);
    kvx_node *node = group->nodes[index];
    kvx_unlock(&group->lock);
    return node;
}

/* --- events --- */

static bool own_event(kvx_group *group, kvx_event *event) KVX_REQUIRES(&group->lock);
static bool own_event(kvx_group *group, kvx_event *event)
{
    if (kvx_list_is_empty(&group->events))
        return false;
    kvx_group_slot *slot = KVX_LIST_ENTRY(group->events.next, kvx_group_slot, node);

    memset(event, 0, sizeof(*event));
    event->kind = slot->event;
    kvx_group_slot_clear(slot);
    switch (slot->kind) { /* may free the record */
    case KVX_GROUP_PEER:
        kvx_group_peer_fill(KVX_CONTAINER_OF(slot, kvx_group_peer, slot), event);
        break;
    case KVX_GROUP_OFFER:
        kvx_group_offer_fill(KVX_CONTAINER_OF(slot, kvx_group_offer, slot), event);
        break;
    case KVX_GROUP_ROOM:
        kvx_group_room_fill(group, KVX_CONTAINER_OF(slot, kvx_group_room, slot), event);
        break;
    }
    return true;
}

/* True: the rank's event is the group's as it is. */
static bool rank_event(kvx_group *group, uint32_t index, kvx_event *event)
        KVX_REQUIRES(&group->lock);
static bool rank_event(kvx_group *group, uint32_t index, kvx_event *event)
{
    switch (event->kind) {
    case KVX_EVENT_PEER_UP:
    case KVX_EVENT_PEER_LOST: return kvx_group_peer_event(group, index, event);
    case KVX_EVENT_READY:
    case KVX_EVENT_PULLED:
    case KVX_EVENT_FAILED:
    case KVX_EVENT_PAGES_QUIET: kvx_group_room_event(group, index, event); return false;
    case KVX_EVENT_RELEASED:
    case KVX_EVENT_PAGES_STUCK: return kvx_group_offer_event(group, event);
    case KVX_EVENT_ROOM:
    case KVX_EVENT_CREDIT: return true;
    case KVX_EVENT_NONE: break;
    }
    return false;
}

static bool poll_locked(kvx_group *group, kvx_event *event) KVX_REQUIRES(&group->lock);
static bool poll_locked(kvx_group *group, kvx_event *event)
{
    if (own_event(group, event))
        return true;
    for (uint32_t i = 0; i < group->rank_count; i++) {
        while (kvx_node_poll(group->nodes[i], event)) {
            if (rank_event(group, i, event) || own_event(group, event))
                return true;
        }
    }
    event->kind = KVX_EVENT_NONE;
    return false;
}

bool kvx_group_poll(kvx_group *group, kvx_event *event_out)
{
    event_out->kind = KVX_EVENT_NONE;
    if (kvx_group_check(group) != KVX_OK)
        return false;
    kvx_lock(&group->lock);
    const bool is_any = poll_locked(group, event_out);
    kvx_unlock(&group->lock);
    return is_any;
}

/* False: some node has more to do at once. */
static bool get_ready_to_wait(kvx_group *group)
{
    bool is_ready = true;

    for (uint32_t i = 0; i < group->rank_count; i++) {
        kvx_node *node = kvx_group_node(group, i);
        if (node != NULL && kvx_node_arm(node) != KVX_OK)
            is_ready = false;
    }
    return is_ready;
}

static void progress_all(kvx_group *group)
{
    for (uint32_t i = 0; i < group->rank_count && group->is_caller; i++) {
        kvx_node *node = kvx_group_node(group, i);
        if (node != NULL && kvx_node_progress(node) == KVX_AGAIN)
            continue; /* kvx_node_arm() will say so too */
    }
}

bool kvx_group_wait(kvx_group *group, kvx_event *event_out, uint32_t timeout_ms)
{
    const uint64_t until = kvx_now() + timeout_ms * KVX_NS_PER_MS;

    event_out->kind = KVX_EVENT_NONE;
    if (kvx_group_check(group) != KVX_OK)
        return false;
    for (;;) {
        struct epoll_event ready[WAIT_BATCH];
        progress_all(group);
        if (kvx_group_poll(group, event_out))
            return true;
        const uint64_t now = kvx_now();
        if (now >= until)
            return false;
        if (get_ready_to_wait(group))
            (void)epoll_wait(group->epoll_fd, ready, WAIT_BATCH, kvx_node_poll_ms(now, until));
    }
}
