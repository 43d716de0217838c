/* SPDX-License-Identifier: Apache-2.0 */
/* Remote groups: rank r here is connected to rank r there. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "node/group.h"

kvx_group_peer *kvx_group_peer_find(const kvx_group *group, uint64_t id)
{
    for (kvx_list *at = group->peers.next; at != &group->peers; at = at->next) {
        kvx_group_peer *peer = KVX_LIST_ENTRY(at, kvx_group_peer, node);
        if (peer->id == id)
            return peer;
    }
    return NULL;
}

static kvx_group_peer *find_by_rank(const kvx_group *group, uint32_t index, kvx_peer_id id)
{
    for (kvx_list *at = group->peers.next; at != &group->peers; at = at->next) {
        kvx_group_peer *peer = KVX_LIST_ENTRY(at, kvx_group_peer, node);
        if (peer->peers[index].value == id.value)
            return peer;
    }
    return NULL;
}

static void peer_free(kvx_group_peer *peer)
{
    kvx_group_slot_clear(&peer->slot);
    kvx_list_remove(&peer->node);
    free(peer);
}

void kvx_group_peers_fini(kvx_group *group)
{
    kvx_list_foreach (node, &group->peers)
        peer_free(KVX_LIST_ENTRY(node, kvx_group_peer, node));
}

static void disconnect_all(kvx_group *group, const kvx_group_peer *peer)
{
    for (uint32_t i = 0; i < group->rank_count; i++) {
        if (peer->peers[i].value != 0 && group->nodes[i] != NULL &&
                kvx_disconnect(group->nodes[i], peer->peers[i]) != KVX_OK)
            continue; /* gone already: all that is wanted */
    }
}

static kvx_status connect_all(kvx_group *group, const char *address, kvx_group_peer *peer)
        KVX_REQUIRES(&group->lock);
static kvx_status connect_all(kvx_group *group, const char *address, kvx_group_peer *peer)
{
    for (uint32_t i = 0; i < group->rank_count; i++) {
        KVX_ENSURE(group->nodes[i] != NULL, KVX_CLOSED);
        const kvx_status status =
                kvx_connect(group->nodes[i], address, group->first_rank + i, &peer->peers[i]);
        if (status != KVX_OK)
            return status;
    }
    return KVX_OK;
}

kvx_status kvx_group_connect(kvx_group *group, const char *address, kvx_peer_id *peer_out)
{
    KVX_TRY(kvx_group_check(group));
    KVX_ENSURE(address != NULL && peer_out != NULL, KVX_INVALID);
    kvx_group_peer *peer = calloc(1, sizeof(*peer));
    KVX_ENSURE(peer != NULL, KVX_NO_MEMORY);

    peer->slot.kind = KVX_GROUP_PEER;
    kvx_lock(&group->lock);
    const kvx_status status = connect_all(group, address, peer);
    if (status == KVX_OK) {
        peer->id = ++group->id_count;
        kvx_list_append(&group->peers, &peer->node);
        peer_out->value = peer->id;
    } else {
        disconnect_all(group, peer);
        free(peer);
    }
    kvx_unlock(&group->lock);
    return status;
}

kvx_status kvx_group_disconnect(kvx_group *group, kvx_peer_id id)
{
    KVX_TRY(kvx_group_check(group));
    kvx_lock(&group->lock);
    kvx_group_peer *peer = kvx_group_peer_find(group, id.value);
    if (peer != NULL) {
        disconnect_all(group, peer);
        peer_free(peer);
    }
    kvx_unlock(&group->lock);
    return peer != NULL ? KVX_OK : KVX_NOT_FOUND;
}

/* --- events --- */

static void peer_up(kvx_group *group, kvx_group_peer *peer, uint32_t index)
{
    if (peer->is_up[index])
        return;
    peer->is_up[index] = true;
    peer->up_count++;
    if (peer->up_count < group->rank_count)
        return;
    peer->is_lost_told = false;
    peer->status = KVX_OK;
    peer->text[0] = '\0';
    kvx_group_slot_set(group, &peer->slot, KVX_EVENT_PEER_UP);
}

/* Told at the first rank that is lost, and again when there is a new reason. */
static void peer_lost(kvx_group *group, kvx_group_peer *peer, uint32_t index, const kvx_event *event)
{
    if (peer->is_up[index]) {
        peer->is_up[index] = false;
        peer->up_count--;
    }
    if (peer->is_lost_told && peer->status == event->status)
        return;
    peer->is_lost_told = true;
    peer->status = event->status;
    (void)snprintf(peer->text, sizeof(peer->text), "rank %" PRIu32 ": %.160s",
            group->first_rank + index, event->text);
    kvx_group_slot_set(group, &peer->slot, KVX_EVENT_PEER_LOST);
}

/* Those that connect to us come rank by rank; the first rank's speaks for its group. */
bool kvx_group_peer_event(kvx_group *group, uint32_t index, kvx_event *event)
{
    if (event->is_accepted) {
        event->peer.value |= KVX_GROUP_ACCEPTED;
        return index == 0;
    }
    kvx_group_peer *peer = find_by_rank(group, index, event->peer);
    if (peer == NULL) /* left meanwhile */
        return false;
    if (event->kind == KVX_EVENT_PEER_UP)
        peer_up(group, peer, index);
    else
        peer_lost(group, peer, index, event);
    return false;
}

void kvx_group_peer_fill(const kvx_group_peer *peer, kvx_event *event)
{
    event->peer.value = peer->id;
    event->status = peer->status;
    event->scope = peer->status == KVX_OK ? KVX_SCOPE_NONE : KVX_SCOPE_PEER;
    memcpy(event->text, peer->text, sizeof(event->text));
}
