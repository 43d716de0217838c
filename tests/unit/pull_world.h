/* SPDX-License-Identifier: Apache-2.0 */
/* A pull engine between a scripted transport and a session that only keeps book: which page
 * belongs to which job, what was reported for each job, in an order that is allowed. What was
 * pulled is compared byte by byte when a job is done; a job's memory is freed when it ends. */
#ifndef KVX_TEST_PULL_WORLD_H
#define KVX_TEST_PULL_WORLD_H

#include "pull/pull.h"

#include "unit/scripted_transport.h"

#define WORLD_JOBS_MAX       64
#define WORLD_LINKS_MAX      4
#define WORLD_COMPONENTS_MAX 3

typedef struct world_shape {
    uint32_t component_count;
    uint32_t layer_count; /* regions of each component */
    uint32_t page_count;  /* of each component, on both sides */
    uint64_t page_bytes;  /* of component 0; the next ones have a byte more each */
    uint64_t local_pad;   /* stride minus bytes */
    uint64_t remote_pad;
    kvx_domain_limits limits;
    kvx_settings settings;
    uint64_t seed;
} world_shape;

/* Enough for most tests; change what matters. */
world_shape world_shape_small(void);

typedef struct world_job {
    kvx_pull_job *job;   /* NULL: it ended, or was never made */
    kvx_status may_post; /* what the session says */
    /* what was told */
    uint32_t planned;
    uint32_t done;
    uint32_t failed;
    uint32_t held;
    uint32_t quiet;
    uint32_t asked; /* may_post calls */
    bool is_stopped;
    bool waits_for_trust;
    kvx_status status;
    bool has_page;
    kvx_page page;
    kvx_pull_stats stats;
} world_job;

typedef struct world_link {
    uint32_t answers;
    kvx_status status;
    bool has_info;
    char why[192];
} world_link;

typedef struct world {
    world_shape shape;
    uint64_t now;
    kvx_puller *puller;
    kvx_domain *domain;
    transport_script *script;
    kvx_metrics *metrics;
    kvx_pool *pool;
    kvx_hello *hello;
    uint8_t *local;
    uint8_t *remote;
    uint64_t local_bytes;
    uint64_t remote_bytes;
    world_job jobs[WORLD_JOBS_MAX];
    uint32_t job_count;
    uint32_t *owners[WORLD_COMPONENTS_MAX]; /* 1 + job of each page; 0: nobody's */
    world_link links[WORLD_LINKS_MAX];
} world;

/* With links connected and proven up to link_count. */
world *world_create(const world_shape *shape, uint32_t link_count);
/* Drops the links, and expects the engine to become idle. */
void world_destroy(world *w);

void world_connect(world *w, kvx_link_id link);
bool world_step(world *w);
/* Step without letting time pass, while there is something to do at once; at most steps. */
void world_run(world *w, uint32_t steps);
/* The same, to the next due time if there is nothing to do, up to a time. */
void world_run_until(world *w, uint64_t until);

/* Pull count pages of every component into the pages first, first + stride, ... The source pages
 * are the mirrored ones, in runs of run_pages, skip of them left out at the front. */
typedef struct world_pull {
    kvx_link_id link;
    uint32_t first;
    uint32_t stride;
    uint32_t count;
    uint32_t skip;
    uint32_t run_pages;
} world_pull;
world_job *world_job_make(world *w, const world_pull *pull);
world_job *world_job_start(world *w, const world_pull *pull);
void world_job_stop(world *w, world_job *job);

uint64_t world_metric(const _Atomic uint64_t *metric);

#endif
