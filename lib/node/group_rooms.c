/* SPDX-License-Identifier: Apache-2.0 */
/* Subscriptions and pulls on every rank (L10): no rank releases before all ranks' bytes are in,
 * none delivers before all owners have confirmed, and the first failure ends it on all. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "node/group.h"

static void room_free(kvx_group *group, kvx_group_room *room)
{
    kvx_group_slot_clear(&room->slot);
    (void)kvx_map_remove(&group->rooms, room->id);
    for (uint32_t i = 0; i < group->rank_count; i++) {
        if (room->ids[i].value != 0)
            (void)kvx_map_remove(&group->ids[i], room->ids[i].value);
    }
    for (uint32_t i = 0; i < KVX_COMPONENT_MAX; i++)
        free((void *)(uintptr_t)room->ready.components[i].runs);
    free((void *)(uintptr_t)room->ready.aux);
    free(room);
}

void kvx_group_rooms_fini(kvx_group *group)
{
    for (;;) {
        size_t position = 0;
        kvx_group_room *room = kvx_map_next(&group->rooms, &position);
        if (room == NULL)
            break;
        room_free(group, room);
    }
    for (uint32_t i = 0; i < group->rank_count; i++)
        kvx_map_fini(&group->ids[i]);
    kvx_map_fini(&group->rooms);
}

/* --- deciding for all --- */

/* The first cause counts. A rank that ended already is left alone by its node. */
static void room_fail(kvx_group *group, kvx_group_room *room, uint32_t cause_rank, kvx_status cause)
        KVX_REQUIRES(&group->lock);
static void room_fail(kvx_group *group, kvx_group_room *room, uint32_t cause_rank, kvx_status cause)
{
    if (room->is_failed)
        return;
    room->is_failed = true;
    room->cause = cause;
    room->cause_rank = cause_rank;
    for (uint32_t i = 0; i < room->rank_count; i++) {
        if (i != cause_rank && room->is_live[i] && group->nodes[i] != NULL)
            kvx_node_fail(group->nodes[i], room->ids[i], cause);
    }
}

static void on_all(kvx_group *group, const kvx_group_room *room,
        void (*call)(kvx_node *node, kvx_subscription_id id)) KVX_REQUIRES(&group->lock);
static void on_all(kvx_group *group, const kvx_group_room *room,
        void (*call)(kvx_node *node, kvx_subscription_id id))
{
    for (uint32_t i = 0; i < room->rank_count; i++) {
        if (group->nodes[i] != NULL)
            call(group->nodes[i], room->ids[i]);
    }
}

static void joint_locked(kvx_group *group, uint32_t index, kvx_subscription_id id,
        kvx_joint_step step, kvx_status status) KVX_REQUIRES(&group->lock);
static void joint_locked(kvx_group *group, uint32_t index, kvx_subscription_id id,
        kvx_joint_step step, kvx_status status)
{
    kvx_group_room *room = kvx_map_find(&group->ids[index], id.value);

    if (room == NULL)
        return;
    if (step == KVX_JOINT_FAILED) {
        room_fail(group, room, index, status);
        return;
    }
    if (room->is_failed)
        return;
    if (step == KVX_JOINT_BYTES_IN && ++room->bytes_in_count == room->rank_count)
        on_all(group, room, kvx_node_joint_release);
    if (step == KVX_JOINT_VALID && ++room->valid_count == room->rank_count)
        on_all(group, room, kvx_node_joint_deliver);
}

void kvx_group_joint(
        void *arg, uint32_t index, kvx_subscription_id id, kvx_joint_step step, kvx_status status)
{
    kvx_group *group = arg;

    kvx_lock(&group->lock);
    joint_locked(group, index, id, step, status);
    kvx_unlock(&group->lock);
}

/* --- subscribing --- */

static kvx_status subscribe_rank(kvx_group *group, kvx_group_room *room,
        const kvx_subscription *subscription, const kvx_pull_params *early)
        KVX_REQUIRES(&group->lock);
static kvx_status subscribe_rank(kvx_group *group, kvx_group_room *room,
        const kvx_subscription *subscription, const kvx_pull_params *early)
{
    const uint32_t index = room->rank_count;

    KVX_ENSURE(group->nodes[index] != NULL, KVX_CLOSED);
    KVX_TRY(kvx_map_reserve(&group->ids[index])); /* once subscribed, it must be found */
    KVX_TRY(kvx_node_subscribe_joint(group->nodes[index], subscription, early, &room->ids[index]));
    room->rank_count++;
    room->is_live[index] = true;
    return kvx_map_insert(&group->ids[index], room->ids[index].value, room);
}

static kvx_status subscribe_ranks(kvx_group *group, kvx_group_room *room,
        const kvx_subscription *subscription, const kvx_pull_params *early)
        KVX_REQUIRES(&group->lock);
static kvx_status subscribe_ranks(kvx_group *group, kvx_group_room *room,
        const kvx_subscription *subscription, const kvx_pull_params *early)
{
    const kvx_group_peer *peer = kvx_group_peer_find(group, subscription->peer.value);
    kvx_subscription ranks_own = *subscription;
    kvx_status status = KVX_OK;

    KVX_ENSURE(peer != NULL, KVX_NOT_FOUND);
    room->peer = peer->id;
    for (uint32_t i = 0; i < group->rank_count && status == KVX_OK; i++) {
        ranks_own.peer = peer->peers[i];
        ranks_own.user = room;
        status = subscribe_rank(group, room, &ranks_own, early);
    }
    return status;
}

static kvx_status subscribe_locked(kvx_group *group, kvx_group_room *room,
        const kvx_subscription *subscription, const kvx_pull_params *early)
        KVX_REQUIRES(&group->lock);
static kvx_status subscribe_locked(kvx_group *group, kvx_group_room *room,
        const kvx_subscription *subscription, const kvx_pull_params *early)
{
    room->id = ++group->id_count;
    KVX_TRY(kvx_map_insert(&group->rooms, room->id, room));
    const kvx_status status = subscribe_ranks(group, room, subscription, early);
    if (status == KVX_OK || room->rank_count == 0)
        return status;
    /* Pages that were given early may be written to already: then it is a pull that fails. */
    room->is_silent = early == NULL;
    room_fail(group, room, room->rank_count, status == KVX_AGAIN ? KVX_PEER_LOST : status);
    return room->is_silent ? status : KVX_OK;
}

kvx_status kvx_group_subscribe(kvx_group *group, const kvx_subscription *subscription,
        const kvx_pull_params *early, kvx_subscription_id *id_out)
{
    kvx_subscription taken;

    KVX_TRY(kvx_group_check(group));
    KVX_ENSURE(subscription != NULL && id_out != NULL, KVX_INVALID);
    KVX_TRY(kvx_params_take(&taken, sizeof(taken), subscription, subscription->struct_size));
    kvx_group_room *room = calloc(1, sizeof(*room));
    KVX_ENSURE(room != NULL, KVX_NO_MEMORY);

    room->slot.kind = KVX_GROUP_ROOM;
    room->room = taken.room;
    room->user = taken.user;
    room->is_pulled = early != NULL;
    kvx_lock(&group->lock);
    const kvx_status status = subscribe_locked(group, room, &taken, early);
    if (status == KVX_OK)
        id_out->value = room->id;
    else if (room->rank_count == 0)
        room_free(group, room); /* else its ranks' events free it */
    kvx_unlock(&group->lock);
    return status;
}

/* --- pulling and cancelling --- */

static kvx_group_room *room_find(const kvx_group *group, kvx_subscription_id id)
{
    kvx_group_room *room = kvx_map_find(&group->rooms, id.value);

    if (room == NULL || room->is_silent || room->ended_count == room->rank_count)
        return NULL;
    return room;
}

static kvx_status pull_locked(kvx_group *group, kvx_subscription_id id, const kvx_pull_params *pull)
        KVX_REQUIRES(&group->lock);
static kvx_status pull_locked(kvx_group *group, kvx_subscription_id id, const kvx_pull_params *pull)
{
    kvx_group_room *room = room_find(group, id);

    KVX_ENSURE(room != NULL && !room->is_failed, KVX_NOT_FOUND);
    KVX_ENSURE(room->ready_count == room->rank_count && !room->is_pulled, KVX_BUSY);
    for (uint32_t i = 0; i < room->rank_count; i++) {
        KVX_ENSURE(group->nodes[i] != NULL, KVX_CLOSED);
        KVX_TRY(kvx_node_pull_check(group->nodes[i], room->ids[i], pull));
    }
    for (uint32_t i = 0; i < room->rank_count; i++) {
        const kvx_status status = kvx_pull(group->nodes[i], room->ids[i], pull);
        if (status != KVX_OK && i == 0)
            return status;
        room->is_pulled = true;
        if (status == KVX_NOT_FOUND) /* it ended by itself: its own event will tell why */
            return KVX_OK;
        if (status != KVX_OK) { /* earlier ranks have begun: it is a pull that fails */
            room_fail(group, room, room->rank_count, status);
            return KVX_OK;
        }
    }
    return KVX_OK;
}

kvx_status kvx_group_pull(kvx_group *group, kvx_subscription_id id, const kvx_pull_params *pull)
{
    KVX_TRY(kvx_group_check(group));
    KVX_ENSURE(pull != NULL, KVX_INVALID);
    kvx_lock(&group->lock);
    const kvx_status status = pull_locked(group, id, pull);
    kvx_unlock(&group->lock);
    return status;
}

kvx_status kvx_group_cancel(kvx_group *group, kvx_subscription_id id)
{
    KVX_TRY(kvx_group_check(group));
    kvx_lock(&group->lock);
    kvx_group_room *room = room_find(group, id);
    /* Once every owner has confirmed, it succeeds. */
    if (room != NULL && room->valid_count < room->rank_count)
        room_fail(group, room, room->rank_count, KVX_CANCELLED);
    kvx_unlock(&group->lock);
    return room != NULL ? KVX_OK : KVX_NOT_FOUND;
}

/* --- events --- */

static bool copy_bytes(const void *from, size_t size, const void **to_out)
{
    if (size == 0)
        return true;
    void *copy = malloc(size);
    if (copy == NULL)
        return false;
    memcpy(copy, from, size);
    *to_out = copy;
    return true;
}

/* The first rank's may go before the group's terminal event was polled. */
static bool keep_ready(kvx_group_room *room, const kvx_ready *ready)
{
    room->ready = *ready;
    room->ready.aux = NULL;
    for (uint32_t i = 0; i < KVX_COMPONENT_MAX; i++)
        room->ready.components[i].runs = NULL;
    for (uint32_t i = 0; i < ready->component_count; i++) {
        const void *runs = NULL;
        if (!copy_bytes(ready->components[i].runs,
                    ready->components[i].run_count * sizeof(kvx_page_run), &runs))
            return false;
        room->ready.components[i].runs = runs;
    }
    return copy_bytes(ready->aux, ready->aux_bytes, &room->ready.aux);
}

static void rank_ready(kvx_group *group, kvx_group_room *room, uint32_t index,
        const kvx_event *event) KVX_REQUIRES(&group->lock);
static void rank_ready(
        kvx_group *group, kvx_group_room *room, uint32_t index, const kvx_event *event)
{
    if (room->is_failed)
        return;
    if (room->ready_count == 0)
        room->ready.tokens = event->ready.tokens;
    if (room->ready.tokens != event->ready.tokens) {
        (void)snprintf(room->text, sizeof(room->text),
                "rank %" PRIu32 " has %" PRIu32 " tokens, another has %" PRIu32,
                group->first_rank + index, event->ready.tokens, room->ready.tokens);
        room_fail(group, room, room->rank_count, KVX_MISMATCH);
        return;
    }
    if (index == 0 && !keep_ready(room, &event->ready)) {
        room_fail(group, room, room->rank_count, KVX_NO_MEMORY);
        return;
    }
    room->ready_count++;
    if (room->ready_count == room->rank_count)
        kvx_group_slot_set(group, &room->slot, KVX_EVENT_READY);
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void add_stats(kvx_pull_stats *all, const kvx_pull_stats *one)
{
    all->bytes += one->bytes;
    all->reads += one->reads;
    all->pages += one->pages;
    all->wait_ns = larger(all->wait_ns, one->wait_ns);
    all->allocate_ns = larger(all->allocate_ns, one->allocate_ns);
    all->plan_ns = larger(all->plan_ns, one->plan_ns);
    all->wire_ns = larger(all->wire_ns, one->wire_ns);
    all->confirm_ns = larger(all->confirm_ns, one->confirm_ns);
}

/* What the rank that failed first says is what the engine is told. */
static void rank_failed(kvx_group *group, kvx_group_room *room, uint32_t index,
        const kvx_event *event) KVX_REQUIRES(&group->lock);
static void rank_failed(
        kvx_group *group, kvx_group_room *room, uint32_t index, const kvx_event *event)
{
    room_fail(group, room, index, event->status);
    if (room->cause_rank == index) {
        room->has_page = event->has_page;
        room->page = event->page;
        (void)snprintf(room->text, sizeof(room->text), "rank %" PRIu32 ": %.160s",
                group->first_rank + index, event->text);
    }
    if (event->pages_held)
        room->held_count++;
}

static bool is_over(const kvx_group_room *room)
{
    return room->ended_count == room->rank_count && room->held_count == 0;
}

static void rank_ended(kvx_group *group, kvx_group_room *room, uint32_t index,
        const kvx_event *event) KVX_REQUIRES(&group->lock);
static void rank_ended(
        kvx_group *group, kvx_group_room *room, uint32_t index, const kvx_event *event)
{
    room->is_live[index] = false;
    room->ended_count++;
    add_stats(&room->stats, &event->stats);
    if (event->kind == KVX_EVENT_FAILED)
        rank_failed(group, room, index, event);
    if (room->ended_count < room->rank_count)
        return;
    if (!room->is_silent)
        kvx_group_slot_set(
                group, &room->slot, room->is_failed ? KVX_EVENT_FAILED : KVX_EVENT_PULLED);
    else if (is_over(room))
        room_free(group, room);
}

/* Merges into a FAILED that was not polled. */
static void rank_quiet(kvx_group *group, kvx_group_room *room) KVX_REQUIRES(&group->lock);
static void rank_quiet(kvx_group *group, kvx_group_room *room)
{
    room->held_count--;
    if (!is_over(room))
        return;
    if (room->is_told)
        kvx_group_slot_set(group, &room->slot, KVX_EVENT_PAGES_QUIET);
    else if (room->is_silent)
        room_free(group, room);
}

void kvx_group_room_event(kvx_group *group, uint32_t index, const kvx_event *event) KVX_NO_ANALYSIS
{
    kvx_group_room *room = kvx_map_find(&group->ids[index], event->subscription.value);

    if (room == NULL)
        return;
    if (event->kind == KVX_EVENT_READY)
        rank_ready(group, room, index, event);
    else if (event->kind == KVX_EVENT_PAGES_QUIET)
        rank_quiet(group, room);
    else
        rank_ended(group, room, index, event);
}

static void fill_failed(const kvx_group_room *room, kvx_event *event)
{
    event->status = room->cause;
    event->scope =
            kvx_status_scope(room->cause) == KVX_SCOPE_PEER ? KVX_SCOPE_PEER : KVX_SCOPE_REQUEST;
    event->pages_held = room->held_count > 0;
    event->has_page = room->has_page;
    event->page = room->page;
    (void)snprintf(event->text, sizeof(event->text), "%s",
            room->text[0] != '\0' ? room->text : kvx_status_text(room->cause));
}

void kvx_group_room_fill(kvx_group *group, kvx_group_room *room, kvx_event *event)
{
    event->subscription.value = room->id;
    event->peer.value = room->peer;
    event->room = room->room;
    event->user = room->user;
    event->stats = room->stats;
    if (event->kind == KVX_EVENT_READY) {
        event->ready = room->ready;
        return;
    }
    if (event->kind == KVX_EVENT_FAILED)
        fill_failed(room, event);
    room->is_told = true;
    if (is_over(room))
        room_free(group, room);
}
