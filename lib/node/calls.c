/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's calls: check who calls, take the lock, ask the session, send what came of it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "node/node.h"
#include "session/address.h"

/* A node that exists and was opened by this process. */
#define NODE_ENSURE(node)                                    \
    do {                                                     \
        KVX_ENSURE((node) != NULL, KVX_INVALID);             \
        KVX_ENSURE(kvx_forks_is((node)->forks), KVX_FORKED); \
    } while (0)

kvx_status kvx_params_take(void *ours, size_t our_size, const void *theirs, size_t their_size)
{
    if (their_size < sizeof(size_t) || their_size > our_size) {
        kvx_log(KVX_LOG_ERROR,
                "a parameter struct of %zu bytes: set struct_size with its macro, at most %zu "
                "bytes in this version",
                their_size, our_size);
        return KVX_INVALID;
    }
    memset(ours, 0, our_size);
    memcpy(ours, theirs, their_size);
    memcpy(ours, &our_size, sizeof(our_size)); /* struct_size comes first in each */
    return KVX_OK;
}

#define PARAMS_TAKE(ours, theirs) \
    kvx_params_take((ours), sizeof(*(ours)), (theirs), (theirs)->struct_size)

/* Arrays that are said to have entries must be there. */
static kvx_status check_tables(const kvx_page_table *tables, uint32_t count)
{
    KVX_ENSURE(count <= KVX_COMPONENT_MAX, KVX_INVALID);
    KVX_ENSURE(count == 0 || tables != NULL, KVX_INVALID);
    for (uint32_t i = 0; i < count; i++)
        KVX_ENSURE(tables[i].page_count == 0 || tables[i].pages != NULL, KVX_INVALID);
    return KVX_OK;
}

static kvx_status take_pull(kvx_pull_params *taken, const kvx_pull_params *pull)
{
    KVX_ENSURE(pull != NULL, KVX_INVALID);
    KVX_TRY(PARAMS_TAKE(taken, pull));
    return check_tables(taken->tables, taken->table_count);
}

/* --- peers --- */

static kvx_status check_remote(const char *address)
{
    kvx_address parsed;
    char why[256];

    if (kvx_address_parse(address, &parsed, why, sizeof(why)) != KVX_OK) {
        kvx_log(KVX_LOG_ERROR, "cannot connect: %s", why);
        return KVX_INVALID;
    }
    if (!parsed.is_unix && parsed.port == 0) {
        kvx_log(KVX_LOG_ERROR, "cannot connect to %s: port 0 is no port; name the listener's",
                address);
        return KVX_INVALID;
    }
    return KVX_OK;
}

kvx_status kvx_connect(
        kvx_node *node, const char *address, uint32_t remote_rank, kvx_peer_id *peer_out)
{
    NODE_ENSURE(node);
    KVX_ENSURE(address != NULL && peer_out != NULL, KVX_INVALID);
    KVX_TRY(check_remote(address));

    kvx_node_enter(node);
    kvx_status status = kvx_control_reserve_dial(node->control);
    if (status == KVX_OK) {
        status = kvx_session_connect(node->session, address, remote_rank, kvx_now(), peer_out);
        if (status != KVX_OK)
            kvx_control_unreserve_dial(node->control, 0);
    }
    kvx_node_leave(node, true);
    return status;
}

kvx_status kvx_disconnect(kvx_node *node, kvx_peer_id peer)
{
    NODE_ENSURE(node);
    kvx_node_enter(node);
    const kvx_status status = kvx_session_disconnect(node->session, peer, kvx_now());
    if (status == KVX_OK)
        kvx_control_unreserve_dial(node->control, peer.value);
    kvx_node_leave(node, true);
    return status;
}

/* --- the owner's side --- */

kvx_status kvx_publish(kvx_node *node, const kvx_offer *offer)
{
    kvx_offer taken;

    NODE_ENSURE(node);
    KVX_ENSURE(offer != NULL, KVX_INVALID);
    KVX_TRY(PARAMS_TAKE(&taken, offer));
    KVX_TRY(check_tables(taken.tables, taken.table_count));
    KVX_ENSURE(taken.aux_bytes == 0 || taken.aux != NULL, KVX_INVALID);
    kvx_node_enter(node);
    const kvx_status status = kvx_session_publish(node->session, &taken, kvx_now());
    kvx_node_leave(node, false);
    return status;
}

kvx_status kvx_reserve(kvx_node *node, uint64_t room, uint64_t bytes)
{
    NODE_ENSURE(node);
    kvx_node_enter(node);
    const kvx_status status = kvx_session_reserve(node->session, room, bytes, kvx_now());
    kvx_node_leave(node, false);
    return status;
}

kvx_status kvx_revoke(kvx_node *node, uint64_t room)
{
    NODE_ENSURE(node);
    kvx_node_enter(node);
    const kvx_status status = kvx_session_revoke(node->session, room, kvx_now());
    kvx_node_leave(node, false);
    return status;
}

kvx_status kvx_abort(kvx_node *node, uint64_t room)
{
    NODE_ENSURE(node);
    kvx_node_enter(node);
    const kvx_status status = kvx_session_abort(node->session, room, kvx_now());
    kvx_node_leave(node, false);
    return status;
}

/* --- the reader's side --- */

static kvx_status subscribe(kvx_node *node, const kvx_subscription *subscription,
        const kvx_pull_params *early, bool is_joint, kvx_subscription_id *id_out)
{
    kvx_subscription taken;
    kvx_pull_params pull;

    NODE_ENSURE(node);
    KVX_ENSURE(subscription != NULL && id_out != NULL, KVX_INVALID);
    KVX_TRY(PARAMS_TAKE(&taken, subscription));
    if (early != NULL)
        KVX_TRY(take_pull(&pull, early));
    kvx_node_enter(node);
    const kvx_status status = kvx_session_subscribe(
            node->session, &taken, early != NULL ? &pull : NULL, is_joint, kvx_now(), id_out);
    kvx_node_leave(node, early != NULL);
    return status;
}

kvx_status kvx_subscribe(
        kvx_node *node, const kvx_subscription *subscription, kvx_subscription_id *id_out)
{
    return subscribe(node, subscription, NULL, false, id_out);
}

kvx_status kvx_subscribe_early(kvx_node *node, const kvx_subscription *subscription,
        const kvx_pull_params *pull, kvx_subscription_id *id_out)
{
    KVX_ENSURE(pull != NULL, KVX_INVALID);
    return subscribe(node, subscription, pull, false, id_out);
}

kvx_status kvx_node_subscribe_joint(kvx_node *node, const kvx_subscription *subscription,
        const kvx_pull_params *early, kvx_subscription_id *id_out)
{
    return subscribe(node, subscription, early, true, id_out);
}

kvx_status kvx_pull(kvx_node *node, kvx_subscription_id id, const kvx_pull_params *pull)
{
    kvx_pull_params taken;

    NODE_ENSURE(node);
    KVX_TRY(take_pull(&taken, pull));
    kvx_node_enter(node);
    const kvx_status status = kvx_session_pull(node->session, id, &taken, kvx_now());
    kvx_node_leave(node, true);
    return status;
}

kvx_status kvx_node_pull_check(kvx_node *node, kvx_subscription_id id, const kvx_pull_params *pull)
{
    kvx_pull_params taken;

    NODE_ENSURE(node);
    KVX_TRY(take_pull(&taken, pull));
    kvx_node_enter(node);
    const kvx_status status = kvx_session_pull_check(node->session, id, &taken);
    kvx_node_leave(node, false);
    return status;
}

/* A pull of no pages. */
kvx_status kvx_release(kvx_node *node, kvx_subscription_id id)
{
    return kvx_pull(node, id, KVX_PULL(.tables = NULL));
}

kvx_status kvx_cancel(kvx_node *node, kvx_subscription_id id)
{
    NODE_ENSURE(node);
    kvx_node_enter(node);
    const kvx_status status = kvx_session_fail(node->session, id, KVX_CANCELLED, kvx_now());
    kvx_node_leave(node, true);
    return status;
}

/* --- a rank of a group --- */

void kvx_node_joint_release(kvx_node *node, kvx_subscription_id id)
{
    kvx_node_enter(node);
    kvx_session_joint_release(node->session, id, kvx_now());
    kvx_node_leave(node, true);
}

void kvx_node_joint_deliver(kvx_node *node, kvx_subscription_id id)
{
    kvx_node_enter(node);
    kvx_session_joint_deliver(node->session, id, kvx_now());
    kvx_node_leave(node, true);
}

void kvx_node_fail(kvx_node *node, kvx_subscription_id id, kvx_status cause)
{
    kvx_node_enter(node);
    const kvx_status status = kvx_session_fail(node->session, id, cause, kvx_now());
    kvx_node_leave(node, status == KVX_OK);
}

/* --- asking --- */

bool kvx_node_poll(kvx_node *node, kvx_event *event_out)
{
    event_out->kind = KVX_EVENT_NONE;
    if (node == NULL || !kvx_forks_is(node->forks))
        return false;
    kvx_node_enter(node);
    const bool is_any = kvx_session_poll(node->session, event_out);
    kvx_node_leave(node, false);
    return is_any;
}

kvx_room_state kvx_room_query(kvx_node *node, uint64_t room, kvx_status *status_out)
{
    kvx_status status = KVX_OK;

    if (node == NULL || !kvx_forks_is(node->forks)) {
        if (status_out != NULL)
            *status_out = node == NULL ? KVX_INVALID : KVX_FORKED;
        return KVX_ROOM_UNKNOWN;
    }
    kvx_node_enter(node);
    const kvx_room_state state = kvx_session_room(node->session, room, &status);
    kvx_node_leave(node, false);
    if (status_out != NULL)
        *status_out = status;
    return state;
}

kvx_status kvx_node_metrics(kvx_node *node, kvx_metrics_snapshot *snapshot)
{
    NODE_ENSURE(node);
    KVX_ENSURE(snapshot != NULL, KVX_INVALID);
    return kvx_metrics_snapshot_take(&node->metrics, snapshot);
}

size_t kvx_node_metrics_text(kvx_node *node, char *buffer, size_t size)
{
    char labels[32];

    if (node == NULL || !kvx_forks_is(node->forks)) {
        if (size > 0)
            buffer[0] = '\0';
        return 0;
    }
    (void)snprintf(labels, sizeof(labels), "rank=\"%" PRIu32 "\"", node->rank);
    kvx_node_enter(node);
    const size_t needed = kvx_metrics_render(&node->metrics, labels, buffer, size);
    kvx_node_leave(node, false);
    return needed;
}

static const kvx_way *way_find(const kvx_node *node, uint64_t peer) KVX_REQUIRES(&node->lock);
static const kvx_way *way_find(const kvx_node *node, uint64_t peer)
{
    size_t position = 0;

    for (const kvx_way *way; (way = kvx_map_next(&node->ways, &position)) != NULL;) {
        if (way->state == KVX_WAY_OPEN && (peer == 0 || way->peer == peer))
            return way;
    }
    return NULL;
}

const char *kvx_node_transport(kvx_node *node, kvx_peer_id peer, kvx_ep_info *info_out)
{
    if (node == NULL || !kvx_forks_is(node->forks))
        return NULL;
    kvx_node_enter(node);
    const kvx_way *way = way_find(node, peer.value);
    if (way != NULL && info_out != NULL)
        *info_out = way->info;
    /* An owner reads from nobody; what it offers is known all the same. */
    const bool is_known = way != NULL || (peer.value == 0 && info_out == NULL);
    const char *name = is_known ? node->ops->name : NULL; /* another one with another pool */
    kvx_node_leave(node, false);
    return name;
}

kvx_status kvx_node_address(kvx_node *node, char *buffer, size_t buffer_size)
{
    NODE_ENSURE(node);
    const char *address = kvx_control_address(node->control);
    KVX_ENSURE(address != NULL, KVX_NOT_FOUND);
    const size_t size = strlen(address) + 1;
    KVX_ENSURE(buffer != NULL && size <= buffer_size, KVX_NO_SPACE);
    memcpy(buffer, address, size);
    return KVX_OK;
}
