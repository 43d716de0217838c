/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * Group: the nodes of one tensor-parallel group in one process, used as one.
 *
 * A room is READY when every rank's is, PULLED when the owners of all ranks have confirmed, and
 * FAILED on all ranks as soon as one fails. No rank releases before all ranks' bytes are in.
 * Ranks may also be spread over processes, each with a group of its own ranks; the engine then
 * reduces over them.
 */
#ifndef KVX_GROUP_H
#define KVX_GROUP_H

#include "kvx/node.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Most ranks of a group in one process. */
#define KVX_GROUP_RANKS_MAX 64

/**
 * A group.
 *
 * Thread-safety: any thread for every function but kvx_group_close(), which must be the last.
 */
typedef struct kvx_group kvx_group;

/** How to open a group. Zero means the default everywhere. */
typedef struct kvx_group_params {
    size_t struct_size;        /**< set by KVX_GROUP_PARAMS() */
    const kvx_config *config;  /**< as in kvx_node_params */
    const kvx_layout *layouts; /**< rank_count pools, one per rank; all of one shape */
    const char *compat;        /**< as in kvx_node_params */
    uint32_t first_rank;       /**< first TP rank in this process */
    uint32_t rank_count;       /**< ranks in this process; 1 ... KVX_GROUP_RANKS_MAX */
    uint32_t ranks;            /**< size of the whole TP group; 0: first_rank + rank_count */
    const char *listen;        /**< as in kvx_node_params; one listener for all ranks */
} kvx_group_params;

/** Named parameters for kvx_group_open(). */
#define KVX_GROUP_PARAMS(...) \
    (&(const kvx_group_params){ .struct_size = sizeof(kvx_group_params), __VA_ARGS__ })

/**
 * Open every rank's node.
 *
 * @param params    see there
 * @param group_out [out] the group; close it with kvx_group_close()
 * @return as kvx_node_open()
 */
KVX_API_CHECKED kvx_status kvx_group_open(const kvx_group_params *params, kvx_group **group_out);

/**
 * Close every rank's node.
 *
 * @param group      address of the group; cleared on KVX_OK; it or what it points at may be NULL
 * @param timeout_ms as kvx_node_close()
 *
 * @retval KVX_AGAIN not yet quiet: the memory must stay valid; call again
 */
KVX_API_CHECKED kvx_status kvx_group_close(kvx_group **group, uint32_t timeout_ms);

/**
 * One rank's node, for metrics and addresses.
 *
 * @param group the group
 * @param index 0 ... rank_count - 1
 * @return the node, which stays the group's; NULL if there is no such index
 */
KVX_API kvx_node *kvx_group_node(kvx_group *group, uint32_t index);

/**
 * Connect rank r here to rank r at @p address, for every rank of this process.
 * KVX_EVENT_PEER_UP comes when all are up, KVX_EVENT_PEER_LOST when the first is lost.
 *
 * @param group    the group
 * @param address  as in kvx_connect()
 * @param peer_out [out] the remote group
 * @return as kvx_connect()
 */
KVX_API_CHECKED kvx_status kvx_group_connect(
        kvx_group *group, const char *address, kvx_peer_id *peer_out);

/**
 * Leave a remote group: kvx_disconnect() on every rank.
 *
 * @param group the group
 * @param peer  as told by kvx_group_connect()
 *
 * @retval KVX_NOT_FOUND no such peer
 */
KVX_API_CHECKED kvx_status kvx_group_disconnect(kvx_group *group, kvx_peer_id peer);

/**
 * Publish a room on every rank, with one page table for all. On KVX_OK one
 * KVX_EVENT_RELEASED comes, when every rank's pages are free.
 *
 * @param group the group
 * @param offer as in kvx_publish()
 * @return as kvx_publish(); on any error no rank has it published
 */
KVX_API_CHECKED kvx_status kvx_group_publish(kvx_group *group, const kvx_offer *offer);

/**
 * kvx_revoke() on every rank.
 *
 * @param group the group
 * @param room  published room
 *
 * @retval KVX_NOT_FOUND not published on any rank
 */
KVX_API_CHECKED kvx_status kvx_group_revoke(kvx_group *group, uint64_t room);

/**
 * kvx_abort() on every rank.
 *
 * @param group the group
 * @param room  any room
 *
 * @retval KVX_CLOSED the group is closing
 */
KVX_API_CHECKED kvx_status kvx_group_abort(kvx_group *group, uint64_t room);

/**
 * Subscribe on every rank. KVX_EVENT_READY comes when all are READY; its kvx_ready is the first
 * rank's, the others' must have the same tokens, else it fails with KVX_MISMATCH.
 *
 * @param group        the group
 * @param subscription as in kvx_subscribe(); peer as told by kvx_group_connect()
 * @param early        pages to give now, as kvx_subscribe_early(); NULL: just in time
 * @param id_out       [out] names it in later calls and events of the group
 * @return as kvx_subscribe(); on any error no rank is subscribed
 */
KVX_API_CHECKED kvx_status kvx_group_subscribe(kvx_group *group,
        const kvx_subscription *subscription, const kvx_pull_params *early,
        kvx_subscription_id *id_out);

/**
 * Pull a READY room on every rank, into the same page numbers on each.
 *
 * @param group the group
 * @param id    READY subscription of the group
 * @param pull  as in kvx_pull()
 * @return as kvx_pull(); on any error no page was taken and no event is made
 */
KVX_API_CHECKED kvx_status kvx_group_pull(
        kvx_group *group, kvx_subscription_id id, const kvx_pull_params *pull);

/**
 * kvx_cancel() on every rank.
 *
 * @param group the group
 * @param id    any subscription of the group
 *
 * @retval KVX_NOT_FOUND it ended
 */
KVX_API_CHECKED kvx_status kvx_group_cancel(kvx_group *group, kvx_subscription_id id);

/**
 * Take the next event of the group. Statistics are sums over the ranks, times the largest.
 *
 * @param group     the group
 * @param event_out [out] the event; kind is KVX_EVENT_NONE when there is none
 * @return whether there was one
 */
KVX_API bool kvx_group_poll(kvx_group *group, kvx_event *event_out);

/**
 * Wait for the next event of the group.
 *
 * @param group      the group
 * @param event_out  [out] the event; kind is KVX_EVENT_NONE after the timeout
 * @param timeout_ms how long to wait
 * @return whether there was one
 */
KVX_API bool kvx_group_wait(kvx_group *group, kvx_event *event_out, uint32_t timeout_ms);

#ifdef __cplusplus
}
#endif
#endif
