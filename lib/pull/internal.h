/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the pull engine share. A task is a job at work; a path is the way to one
 * remote node; a slot is one read, from its first post until it is in place. */
#ifndef KVX_PULL_INTERNAL_H
#define KVX_PULL_INTERNAL_H

#include "pull/pull.h"

#include "base/clock.h"
#include "base/list.h"
#include "kvx/plan.h"

#define KVX_PULL_BATCH       64            /* reads of one get() */
#define KVX_PULL_PLAN_VISITS 16384         /* page visits of one step */
#define KVX_PULL_RETRY_NS    KVX_NS_PER_MS /* pause between tries of what makes no noise */
#define KVX_PULL_PROBE_NS    KVX_NS_PER_SECOND
#define KVX_PULL_WHY_BYTES   192

typedef enum kvx_path_state {
    KVX_PATH_WANTED,  /* no endpoint; the next step connects */
    KVX_PATH_PROBING, /* connected, not proven */
    KVX_PATH_OPEN,    /* proven, keys imported */
    KVX_PATH_CLOSING, /* disconnect() has begun and not returned KVX_OK */
    KVX_PATH_BROKEN,  /* no endpoint; status says why */
} kvx_path_state;

typedef struct kvx_pull_path {
    kvx_list node; /* in kvx_puller.paths */
    kvx_link_id link;
    kvx_path_state state;
    kvx_hello *remote;
    uint32_t remote_path;
    uint32_t *remote_regions; /* for each local region, the remote one of the same name */
    kvx_ep *ep;
    kvx_rkey **rkeys; /* one per local region, set while open */
    kvx_list reads;   /* slots posted on ep */
    uint32_t task_count;
    uint64_t probe_until_ns;
    uint64_t close_since_ns;
    kvx_status status; /* not KVX_OK: after the close it is broken, not connected again */
    char why[KVX_PULL_WHY_BYTES];
    bool is_answered; /* data_ready was reported */
    bool was_ready;   /* and was KVX_OK: worth another try when it broke later */
    bool is_dropped;
    bool is_dead; /* the transport says that ep is: close it once nothing is posted on it */
    bool is_late; /* the close takes longer than close_ns */
} kvx_pull_path;

/* Where emitting a task's reads stands. */
typedef struct kvx_pull_position {
    uint32_t region; /* region_count: all are emitted */
    kvx_plan_cursor cursor;
} kvx_pull_position;

/* Each job has one, except where there was no memory for it. */
typedef struct kvx_pull_task {
    kvx_list node; /* in kvx_puller.tasks */
    kvx_pull_job *job;
    kvx_pull_path *path; /* NULL: it was not there at the start, the task has failed */

    /* preparing */
    uint32_t component; /* being taken and planned; component_count: all are planned */
    uint32_t taken;     /* pages of it that were taken */
    kvx_plan *plans[KVX_COMPONENT_MAX]; /* NULL: no pages */
    bool is_planned;

    /* reading */
    kvx_pull_position position;
    kvx_list reposts; /* slots whose endpoint was closed under them, to be posted first */
    uint32_t reads;   /* posted and not ended */
    kvx_pull_stats stats;

    /* ending */
    kvx_status status; /* first failure */
    kvx_page page;     /* at which it happened, if has_page */
    bool has_page;
    bool is_parked; /* waits for trust */
    bool is_barred; /* the session forbade posting: a stop is on its way */
    bool is_failure_told;
    bool is_stopped;
    bool is_stuck; /* its reads are given up, but the close under them has not completed */
    bool is_held_told;
    uint64_t drain_until_ns; /* while it is stopped */
} kvx_pull_task;

/* One read. Free slots are in window.free, posted ones in a path's reads, others in a task's
 * reposts or in the batch. */
typedef struct kvx_pull_slot {
    kvx_list node;
    uint64_t id; /* of its latest post; each post takes a new one */
    kvx_pull_task *task;
    uint32_t region;
    kvx_page page; /* first destination page */
    uint64_t remote_off;
    uint64_t local_off;
    uint64_t length_bytes;
    bool is_posted;
} kvx_pull_slot;

typedef struct kvx_pull_window {
    kvx_pull_slot *slots;
    uint32_t slot_count;
    kvx_list free;
    uint64_t bytes_max;
    uint64_t bytes;  /* posted */
    uint32_t posted; /* slots posted */
} kvx_pull_window;

/* Reads of one get(), in the order in which they are given to the transport. */
typedef struct kvx_pull_batch {
    uint32_t count;
    uint32_t repost_count; /* the first ones came from reposts */
    uint64_t bytes;
    kvx_read reads[KVX_PULL_BATCH];
    kvx_segment segments[KVX_PULL_BATCH];
    kvx_pull_slot *slots[KVX_PULL_BATCH];
    kvx_pull_position before[KVX_PULL_BATCH]; /* position from which it was emitted */
} kvx_pull_batch;

struct kvx_puller {
    kvx_settings settings;
    const kvx_transport_ops *ops;
    kvx_domain *domain;
    const kvx_pool *pool;
    kvx_metrics *metrics;
    kvx_puller_hooks hooks;
    uint64_t read_bytes_max;
    kvx_pull_window window;
    kvx_pull_batch batch;
    kvx_list paths;
    kvx_list tasks; /* in the order of their turns */
    /* Jobs that have no task; chained through kvx_pull_job.pull. */
    kvx_pull_job *refused;      /* there was no memory; failed() is due */
    kvx_pull_job *unbegun;      /* stopped; quiet() is due */
    kvx_link_id *refused_links; /* there was no memory; data_ready() is due; room for peers_max */
    uint32_t refused_link_count;

    bool is_due;     /* the next step has work */
    bool is_full;    /* in this step a read was kept back by a window */
    bool is_drained; /* in this step a read ended */
    uint64_t due_ns;
};

static inline bool kvx_task_may_work(const kvx_pull_task *task)
{
    return task->status == KVX_OK && !task->is_stopped && !task->is_barred;
}

/* window.c */
KVX_CHECKED kvx_status kvx_window_init(
        kvx_pull_window *window, uint32_t slot_count, uint64_t bytes_max);
void kvx_window_fini(kvx_pull_window *window);
/* A free slot with a new id, in no list; NULL: none. */
kvx_pull_slot *kvx_window_take(kvx_pull_window *window);
void kvx_window_give(kvx_pull_window *window, kvx_pull_slot *slot);
/* Give a slot that was taken before an id for its next post. */
void kvx_window_renew(const kvx_pull_window *window, kvx_pull_slot *slot);
/* The slot of a posted read; NULL: that id is dead. */
kvx_pull_slot *kvx_window_find(const kvx_pull_window *window, uint64_t id);
/* The transport has accepted it; the transport is done with it or will never be. */
void kvx_slot_post(kvx_puller *puller, kvx_pull_slot *slot);
void kvx_slot_unpost(kvx_puller *puller, kvx_pull_slot *slot);

/* path.c */
/* Where a new task may read; NULL: the task has failed. */
kvx_pull_path *kvx_path_find_for(kvx_puller *puller, kvx_pull_task *task, uint64_t now);
void kvx_path_free(kvx_pull_path *path);
/* Connect, in the next step. */
void kvx_path_want(kvx_puller *puller, kvx_pull_path *path, uint64_t now);
void kvx_paths_step(kvx_puller *puller, uint64_t now);
/* When it needs another step without other news. */
uint64_t kvx_path_due(const kvx_pull_path *path, uint64_t now);

/* close.c */
/* Begin to close its endpoint, if there is one, whatever is posted on it. */
void kvx_path_close(kvx_puller *puller, kvx_pull_path *path, uint64_t now);
/* Go on with a close that has begun. */
void kvx_path_close_step(kvx_puller *puller, kvx_pull_path *path, uint64_t now);

void kvx_path_fail_tasks(kvx_puller *puller, const kvx_pull_path *path, kvx_status status);

/* task.c */
/* Record the first failure; it is reported in the present step. */
void kvx_task_fail(kvx_pull_task *task, kvx_status status);
void kvx_task_fail_at(kvx_pull_task *task, kvx_status status, kvx_page page);
/* A slice of taking and planning; returns page visits left of the budget. */
uint32_t kvx_task_prepare(kvx_puller *puller, kvx_pull_task *task, uint32_t budget_visits);
/* Unlink and free; the job is forgotten. */
void kvx_task_free(kvx_puller *puller, kvx_pull_task *task);

/* post.c */
/* Post a batch, if the task may and the window allows. */
void kvx_task_post(kvx_puller *puller, kvx_pull_task *task);
/* Whether it has something to post and nothing but a window holds it back. */
bool kvx_task_wants_post(const kvx_puller *puller, const kvx_pull_task *task);
/* Whether every read was emitted and none has to be posted again. */
bool kvx_task_is_emitted(const kvx_puller *puller, const kvx_pull_task *task);

/* quiet.c */
/* Report what became of every task, and close what does not drain. */
void kvx_tasks_settle(kvx_puller *puller, uint64_t now);

#endif
