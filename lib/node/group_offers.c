/* SPDX-License-Identifier: Apache-2.0 */
/* Publications on every rank. */
#include <stdlib.h>

#include "node/group.h"

static void offer_free(kvx_group_offer *offer)
{
    kvx_group_slot_clear(&offer->slot);
    kvx_list_remove(&offer->node);
    free(offer);
}

void kvx_group_offers_fini(kvx_group *group)
{
    kvx_list_foreach (node, &group->offers)
        offer_free(KVX_LIST_ENTRY(node, kvx_group_offer, node));
}

/* --- publishing --- */

/* 0 between two pools. */
static uint64_t offer_bytes(kvx_node *node, const kvx_offer *offer)
{
    uint64_t bytes = 0;

    kvx_node_enter(node);
    const uint32_t count = node->pool == NULL ? 0 : node->pool->component_count;
    for (uint32_t i = 0; i < offer->table_count && i < count; i++)
        bytes += offer->tables[i].page_count * kvx_pool_page_bytes(node->pool, i);
    kvx_node_leave(node, false);
    return bytes;
}

static void unreserve(kvx_group *group, uint64_t room, uint32_t from, uint32_t to)
        KVX_REQUIRES(&group->lock);
static void unreserve(kvx_group *group, uint64_t room, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        if (kvx_reserve(group->nodes[i], room, 0) != KVX_OK)
            continue; /* it had none of ours */
    }
}

/* A rank that is at its limits must refuse before another has begun. A room that a rank knows
 * already cannot be reserved; publishing will say what it thinks of it. */
static kvx_status reserve_all(kvx_group *group, const kvx_offer *offer) KVX_REQUIRES(&group->lock);
static kvx_status reserve_all(kvx_group *group, const kvx_offer *offer)
{
    const uint64_t bytes = offer_bytes(group->nodes[0], offer);

    if (group->rank_count == 1 || bytes == 0)
        return KVX_OK;
    for (uint32_t i = 0; i < group->rank_count; i++) {
        const kvx_status status = kvx_reserve(group->nodes[i], offer->room, bytes);
        if (status != KVX_OK && status != KVX_BUSY) {
            unreserve(group, offer->room, 0, i);
            return status;
        }
    }
    return KVX_OK;
}

/* Take back what the first ranks have published. True: all of it is free at once, as if nothing
 * had happened; its events are dropped. */
static bool take_back(kvx_group *group, kvx_group_offer *record) KVX_REQUIRES(&group->lock);
static bool take_back(kvx_group *group, kvx_group_offer *record)
{
    bool is_free = true;

    for (uint32_t i = 0; i < record->rank_count; i++) {
        if (kvx_revoke(group->nodes[i], record->room) != KVX_OK)
            continue; /* it ended meanwhile */
        is_free = is_free && kvx_room_query(group->nodes[i], record->room, NULL) == KVX_ROOM_FREED;
    }
    return is_free;
}

static kvx_status publish_locked(kvx_group *group, const kvx_offer *offer, kvx_group_offer *record)
        KVX_REQUIRES(&group->lock);
static kvx_status publish_locked(kvx_group *group, const kvx_offer *offer, kvx_group_offer *record)
{
    kvx_offer ranks_offer = *offer;
    kvx_status status = KVX_OK;

    for (uint32_t i = 0; i < group->rank_count; i++)
        KVX_ENSURE(group->nodes[i] != NULL, KVX_CLOSED);
    KVX_TRY(reserve_all(group, offer));
    ranks_offer.user = record;
    kvx_list_append(&group->offers, &record->node);
    while (record->rank_count < group->rank_count && status == KVX_OK) {
        status = kvx_publish(group->nodes[record->rank_count], &ranks_offer);
        if (status == KVX_OK)
            record->rank_count++;
    }
    if (status == KVX_OK)
        return KVX_OK;
    unreserve(group, offer->room, record->rank_count, group->rank_count);
    if (record->rank_count == 0)
        return status;
    /* A reader may have begun on an earlier rank: then the engine hears of it as of any
     * publication, and its pages stay busy until RELEASED. */
    record->is_silent = take_back(group, record);
    return record->is_silent ? status : KVX_OK;
}

kvx_status kvx_group_publish(kvx_group *group, const kvx_offer *offer)
{
    kvx_offer taken;

    KVX_TRY(kvx_group_check(group));
    KVX_ENSURE(offer != NULL, KVX_INVALID);
    KVX_TRY(kvx_params_take(&taken, sizeof(taken), offer, offer->struct_size));
    KVX_ENSURE(taken.table_count == 0 || taken.tables != NULL, KVX_INVALID);
    kvx_group_offer *record = calloc(1, sizeof(*record));
    KVX_ENSURE(record != NULL, KVX_NO_MEMORY);

    record->slot.kind = KVX_GROUP_OFFER;
    record->room = taken.room;
    record->user = taken.user;
    kvx_lock(&group->lock);
    const kvx_status status = publish_locked(group, &taken, record);
    if (status != KVX_OK && record->rank_count == 0)
        offer_free(record); /* else its events free it */
    kvx_unlock(&group->lock);
    return status;
}

/* --- taking back --- */

static kvx_status on_every_rank(
        kvx_group *group, uint64_t room, kvx_status (*call)(kvx_node *node, uint64_t room))
{
    kvx_status best = KVX_CLOSED;

    KVX_TRY(kvx_group_check(group));
    kvx_lock(&group->lock);
    for (uint32_t i = 0; i < group->rank_count; i++) {
        const kvx_status status = group->nodes[i] == NULL ? KVX_CLOSED : call(group->nodes[i], room);
        best = i == 0 || status == KVX_OK ? status : best;
    }
    kvx_unlock(&group->lock);
    return best;
}

kvx_status kvx_group_revoke(kvx_group *group, uint64_t room)
{
    return on_every_rank(group, room, kvx_revoke);
}

kvx_status kvx_group_abort(kvx_group *group, uint64_t room)
{
    return on_every_rank(group, room, kvx_abort);
}

/* --- events --- */

bool kvx_group_offer_event(kvx_group *group, kvx_event *event)
{
    kvx_group_offer *record = event->user;

    event->user = record->user;
    if (event->kind == KVX_EVENT_PAGES_STUCK) {
        const bool is_first = !record->is_stuck_told && !record->is_silent;
        record->is_stuck_told = true;
        return is_first;
    }
    record->released_count++;
    if (record->status == KVX_OK)
        record->status = event->status;
    if (record->released_count < record->rank_count)
        return false;
    if (record->is_silent)
        offer_free(record);
    else
        kvx_group_slot_set(group, &record->slot, KVX_EVENT_RELEASED);
    return false;
}

void kvx_group_offer_fill(kvx_group_offer *record, kvx_event *event)
{
    event->room = record->room;
    event->user = record->user;
    event->status = record->status;
    event->scope = record->status == KVX_OK ? KVX_SCOPE_NONE : KVX_SCOPE_REQUEST;
    offer_free(record);
}
