/* SPDX-License-Identifier: Apache-2.0 */
/* A node's parts, and what the group calls of it. node.c: opening and closing; parts.c: what a
 * pool and a transport bring; hello.c: its description; loop.c: its work and its thread;
 * hooks.c: between session, puller and transport; calls.c, wait.c: the engine's calls.
 *
 * Locks: the node's lock protects the session, the queues of its connections, the histograms, and
 * the fields marked (lock). The progressing thread alone touches transport and puller, without
 * the lock, since the puller's hooks take it. */
#ifndef KVX_NODE_INTERNAL_H
#define KVX_NODE_INTERNAL_H

#include <pthread.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/map.h"
#include "kvx/node.h"
#include "metrics/metrics.h"
#include "pool/pool.h"
#include "pull/pull.h"
#include "session/control.h"
#include "session/session.h"

typedef enum kvx_node_phase {
    KVX_NODE_RUNNING,
    KVX_NODE_CLOSING, /* everything is revoked and cancelled, and drains */
    KVX_NODE_LEAVING, /* BYE was said; sockets and data paths end */
    KVX_NODE_QUIET,   /* nothing of ours or of a peer's touches the pool */
} kvx_node_phase;

/* What a joint step of one of this node's subscriptions calls; without the node's lock, from the
 * progressing thread. */
typedef void kvx_joint_fn(
        void *arg, uint32_t index, kvx_subscription_id id, kvx_joint_step step, kvx_status status);

/* Whom a node tells of joint steps. */
typedef struct kvx_joint_listener {
    kvx_joint_fn *told; /* NULL: it is in no group */
    void *arg;
    uint32_t index;
} kvx_joint_listener;

/* The data path of a link, between the session, which asks, and the puller, which makes. */
typedef enum kvx_way_state {
    KVX_WAY_WANTED, /* the puller was not told yet */
    KVX_WAY_OPENING,
    KVX_WAY_OPEN,
    KVX_WAY_DROPPED, /* the puller must be told */
} kvx_way_state;

typedef struct kvx_way {
    kvx_link_id link;
    uint64_t peer;
    kvx_way_state state;
    kvx_hello *remote; /* while wanted */
    kvx_ep_info info;  /* once open */
    kvx_list in_changed;
} kvx_way;

struct kvx_node {
    kvx_settings settings;
    kvx_config *config;
    char *compat;
    char *bind; /* numeric address to stay on; NULL: none */
    uint32_t rank;
    uint32_t ranks;
    uint64_t forks; /* of the process when it was opened */
    kvx_joint_listener joint;

    const kvx_transport_ops *ops; /* (lock) to write, and to read from other threads */
    kvx_domain *domain;
    kvx_pool *pool; /* as ops */
    kvx_puller *puller;
    int transport_fd; /* -1: none */

    kvx_mutex lock;
    kvx_session *session;  /* (lock) */
    kvx_control *control;  /* (lock) in part, see control.h */
    kvx_metrics metrics;   /* histograms: (lock) */
    kvx_map ways;          /* (lock) link -> kvx_way */
    kvx_list ways_changed; /* (lock) */
    kvx_node_phase phase;  /* (lock) */
    bool is_for_good;      /* (lock) closing, not only changing the pool */
    bool is_draining;      /* (lock) */
    bool is_changing;      /* (lock) somebody changes the pool */
    bool end_awaited;      /* (lock) somebody waits on ended_fd */
    bool is_stopping;      /* (lock) the thread ends */
    bool has_news;         /* (lock) the loop must look before it sleeps */
    bool has_more;         /* (lock) with progress = caller: not done at the last look */
    uint64_t sleep_until;  /* (lock) 0: awake */
    uint64_t bye_until;    /* (lock) how long LEAVING waits for sockets */
    bool events_watched;   /* (lock) somebody waits on events_fd */
    bool events_told;      /* (lock) events_fd is readable */

    int events_fd; /* eventfd: events to poll */
    int ended_fd;  /* eventfd: drained, or quiet */
    int epoll_fd;  /* with progress = caller: all that a caller waits for; else -1 */
    pthread_t thread;
    _Atomic bool has_thread;
};

/* fork.c: how often this process is the child of a fork that happened after the first call. */
KVX_CHECKED kvx_status kvx_forks_watch(uint64_t *forks_out);
bool kvx_forks_is(uint64_t forks);

/* parts.c: the pool and what belongs to it. */
void kvx_node_pool_set(kvx_node *node, kvx_pool *pool);
KVX_CHECKED kvx_status kvx_node_pool_open(
        kvx_node *node, const kvx_layout *layout, kvx_hello **hello_out);
/* The engine of the parts that are open. */
KVX_CHECKED kvx_status kvx_node_puller_open(kvx_node *node);
/* Everything of the pool but the pool itself; accepts any stage. */
void kvx_node_parts_close(kvx_node *node);

/* hello.c */
KVX_CHECKED kvx_status kvx_node_hello(const kvx_node *node, uint64_t epoch, kvx_hello **hello_out);

/* loop.c */
KVX_CHECKED kvx_status kvx_node_thread_start(kvx_node *node);
void kvx_node_thread_stop(kvx_node *node);
/* One round without waiting; true: there is more to do at once. */
bool kvx_node_round(kvx_node *node, bool may_block);
/* Get ready to wait; false: there is something to do first. */
bool kvx_node_settle(kvx_node *node);
/* Wait until it is quiet, or drained if it is not closing, progressing if that is the caller's.
 * KVX_NEVER: for ever. False: the time ran out. */
bool kvx_node_wait_ended(kvx_node *node, uint64_t timeout_ns);

/* wait.c: milliseconds for poll(2). */
int kvx_node_poll_ms(uint64_t now, uint64_t until);

/* Around every use of the session. leave: sends what was queued, tells of events, and wakes the
 * loop if it has to look (`news`: there may be jobs or joint steps). */
void kvx_node_enter(kvx_node *node) KVX_ACQUIRES(&node->lock);
void kvx_node_leave(kvx_node *node, bool news) KVX_RELEASES(&node->lock);

/* hooks.c */
kvx_session_sink kvx_node_sink(kvx_node *node);
kvx_puller_hooks kvx_node_puller_hooks(kvx_node *node);
void kvx_node_domain_params(kvx_node *node, uint64_t epoch, kvx_domain_params *params_out);
/* Tell the puller of data paths that are wanted or dropped (progressing thread). */
void kvx_node_ways_work(kvx_node *node);
void kvx_node_ways_fini(kvx_node *node);

/* node.c: a kvx_node_open() that reports joint steps. */
KVX_CHECKED kvx_status kvx_node_open_joint(
        const kvx_node_params *params, const kvx_joint_listener *joint, kvx_node **node_out);
/* Begin what kvx_node_close() waits for. */
void kvx_node_begin_close(kvx_node *node);

/* calls.c: a rank of a group's subscription. */
KVX_CHECKED kvx_status kvx_node_subscribe_joint(kvx_node *node, const kvx_subscription *subscription,
        const kvx_pull_params *early, kvx_subscription_id *id_out);
KVX_CHECKED kvx_status kvx_node_pull_check(
        kvx_node *node, kvx_subscription_id id, const kvx_pull_params *pull);
void kvx_node_joint_release(kvx_node *node, kvx_subscription_id id);
void kvx_node_joint_deliver(kvx_node *node, kvx_subscription_id id);
/* Fail for a cause, KVX_CANCELLED among them; one that ended is left alone. */
void kvx_node_fail(kvx_node *node, kvx_subscription_id id, kvx_status cause);
/* Copy a parameter struct of a caller that may be older. KVX_INVALID: its size is 0, or larger
 * than ours. */
KVX_CHECKED kvx_status kvx_params_take(
        void *ours, size_t our_size, const void *theirs, size_t their_size);

#endif
