/* SPDX-License-Identifier: Apache-2.0 */
/* A group's records. group.c: opening, closing, polling; group_peers.c: remote groups;
 * group_offers.c: publications; group_rooms.c: subscriptions and pulls.
 *
 * Locks: the group's lock is taken first, then one node's at a time, inside the node's calls. A
 * node tells of joint steps from its own thread without its lock, so that it may wait for the
 * group's. Nodes are closed without the group's lock, because their threads may wait for it. */
#ifndef KVX_NODE_GROUP_H
#define KVX_NODE_GROUP_H

#include "base/list.h"
#include "base/lock.h"
#include "base/map.h"
#include "kvx/group.h"
#include "node/node.h"

/* Ids of remote groups that connected to us, to tell them from those that we connect to. */
#define KVX_GROUP_ACCEPTED (UINT64_C(1) << 63)

typedef enum kvx_group_kind {
    KVX_GROUP_PEER,
    KVX_GROUP_OFFER,
    KVX_GROUP_ROOM,
} kvx_group_kind;

/* The one pending event of a record. */
typedef struct kvx_group_slot {
    kvx_list node; /* in group.events while pending */
    kvx_group_kind kind;
    kvx_event_kind event;
} kvx_group_slot;

/* A remote group: one peer for each rank. */
typedef struct kvx_group_peer {
    kvx_group_slot slot;
    kvx_list node; /* in group.peers */
    uint64_t id;
    kvx_peer_id peers[KVX_GROUP_RANKS_MAX];
    bool is_up[KVX_GROUP_RANKS_MAX];
    uint32_t up_count;
    bool is_lost_told; /* since all were up */
    kvx_status status; /* of the last loss */
    char text[192];
} kvx_group_peer;

/* A publication on every rank. */
typedef struct kvx_group_offer {
    kvx_group_slot slot;
    kvx_list node; /* in group.offers */
    uint64_t room;
    void *user;
    uint32_t rank_count; /* ranks that have it published */
    uint32_t released_count;
    kvx_status status; /* the first that is not KVX_OK */
    bool is_stuck_told;
    bool is_silent; /* publishing failed half way: the engine never heard of it */
} kvx_group_offer;

/* A subscription on every rank, and the pull that it becomes. */
typedef struct kvx_group_room {
    kvx_group_slot slot;
    uint64_t id;
    uint64_t room;
    uint64_t peer;
    void *user;
    kvx_subscription_id ids[KVX_GROUP_RANKS_MAX];
    bool is_live[KVX_GROUP_RANKS_MAX]; /* its terminal event did not come yet */
    uint32_t rank_count;               /* ranks that are subscribed */
    uint32_t ready_count;
    uint32_t bytes_in_count;
    uint32_t valid_count;
    uint32_t ended_count; /* terminal events */
    uint32_t held_count;  /* of those, with pages that are not quiet */
    bool is_silent;       /* subscribing failed half way: the engine never heard of it */
    bool is_failed;
    bool is_pulled;      /* the ranks were told to pull */
    bool is_told;        /* the terminal event was polled */
    kvx_status cause;    /* of the first failure */
    uint32_t cause_rank; /* index of the rank that failed first; rank_count: none of them */
    bool has_page;
    kvx_page page;
    char text[192];
    kvx_pull_stats stats;
    kvx_ready ready; /* of the first rank; its arrays are the record's own */
} kvx_group_room;

struct kvx_group {
    uint64_t forks;
    uint32_t first_rank;
    uint32_t rank_count;
    bool is_caller; /* progress = caller */
    int epoll_fd;   /* holds every node's descriptor */

    kvx_mutex lock;                       /* everything below */
    kvx_node *nodes[KVX_GROUP_RANKS_MAX]; /* NULL: closed, or being closed */
    uint64_t id_count;
    kvx_list peers;
    kvx_list offers;
    kvx_map rooms;                    /* id -> kvx_group_room */
    kvx_map ids[KVX_GROUP_RANKS_MAX]; /* a rank's subscription -> kvx_group_room */
    kvx_list events;
};

/* What a rank's event means for the group: true: *event is to be given to the engine as it is. */
typedef bool kvx_group_event_fn(struct kvx_group *group, uint32_t index, kvx_event *event);

/* group.c */
void kvx_group_slot_set(kvx_group *group, kvx_group_slot *slot, kvx_event_kind event);
void kvx_group_slot_clear(kvx_group_slot *slot);
/* Whether the group is this process's and open. */
KVX_CHECKED kvx_status kvx_group_check(const kvx_group *group);

/* Called with the lock held. _event: a rank's event; _fill: our own event, from a record whose
 * slot was just cleared and which may be freed by that; _fini: forget all records. */
bool kvx_group_peer_event(kvx_group *group, uint32_t index, kvx_event *event);
void kvx_group_peer_fill(const kvx_group_peer *peer, kvx_event *event);
void kvx_group_peers_fini(kvx_group *group);
kvx_group_peer *kvx_group_peer_find(const kvx_group *group, uint64_t id);

bool kvx_group_offer_event(kvx_group *group, kvx_event *event);
void kvx_group_offer_fill(kvx_group_offer *offer, kvx_event *event);
void kvx_group_offers_fini(kvx_group *group);

void kvx_group_room_event(kvx_group *group, uint32_t index, const kvx_event *event);
void kvx_group_room_fill(kvx_group *group, kvx_group_room *room, kvx_event *event);
void kvx_group_rooms_fini(kvx_group *group);
/* A joint step of a rank; takes the lock itself. */
kvx_joint_fn kvx_group_joint;

#endif
