/* SPDX-License-Identifier: Apache-2.0 */
/* The pull engine: turns jobs into planned reads within a window, and makes them quiet when they
 * are stopped. It works through a transport's table and takes now as an argument, so that a
 * simulated transport and a virtual clock drive the same code. One thread at a time.
 *
 * Quiet (L4): a stopped job posts nothing more; its posted reads get drain_ns to end, then the
 * endpoint they are on is closed, and only when the close has completed is the job quiet; other
 * jobs' reads that were on it are posted again, on a new endpoint, only then too. A close that
 * takes longer than close_ns holds the pages of every job with a read on it. */
#ifndef KVX_PULL_PULL_H
#define KVX_PULL_PULL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"
#include "config/settings.h"
#include "kvx/transport.h"
#include "metrics/metrics.h"
#include "pool/pool.h"
#include "session/session.h"
#include "wire/message.h"

typedef struct kvx_puller kvx_puller;

/* How the engine asks and reports. Each may lock and call the session function of that name. */
typedef struct kvx_puller_hooks {
    void *arg;
    kvx_status (*take)(void *arg, kvx_pull_job *job, uint32_t component, uint32_t first,
            uint32_t count, kvx_page *page_out);
    kvx_status (*may_post)(void *arg, kvx_pull_job *job); /* samples the clock itself, freshly */
    void (*planned)(void *arg, kvx_pull_job *job);
    void (*done)(void *arg, kvx_pull_job *job, const kvx_pull_stats *stats);
    void (*failed)(void *arg, kvx_pull_job *job, kvx_status status, bool has_page, kvx_page page);
    void (*quiet)(void *arg, kvx_pull_job *job, const kvx_pull_stats *stats);
    void (*held)(void *arg, kvx_pull_job *job);
    /* The data path of a link is proven, or never will be. */
    void (*data_ready)(void *arg, kvx_link_id link, kvx_status status, const char *why,
            const kvx_ep_info *info);
} kvx_puller_hooks;

typedef struct kvx_puller_params {
    const kvx_settings *settings; /* window, caps, drain and close bounds; copied */
    const kvx_transport_ops *ops;
    kvx_domain *domain;   /* its completed() must call kvx_puller_completed() */
    const kvx_pool *pool; /* local pool, attached */
    kvx_metrics *metrics;
    kvx_puller_hooks hooks;
} kvx_puller_params;

KVX_CHECKED kvx_status kvx_puller_create(const kvx_puller_params *params, kvx_puller **puller_out);
/* Nothing may be in flight: every job quiet, every path dropped and gone. Frees, and clears. */
void kvx_puller_destroy(kvx_puller **puller);

/* Open the data path to a remote node: connect, probe (tried for up to 1 s), import its keys.
 * data_ready follows from kvx_puller_step(). `remote` is copied. `path` tells which of its paths. */
void kvx_puller_connect(
        kvx_puller *puller, kvx_link_id link, const kvx_hello *remote, uint32_t path, uint64_t now);
/* End it once no job uses it. */
void kvx_puller_drop(kvx_puller *puller, kvx_link_id link);

void kvx_puller_start(kvx_puller *puller, kvx_pull_job *job, uint64_t now);
void kvx_puller_stop(kvx_puller *puller, kvx_pull_job *job, uint64_t now);
/* A job that waited for trust may go on. */
void kvx_puller_resume(kvx_puller *puller, kvx_pull_job *job);

/* From the domain's completed(), only ever inside kvx_puller_step(). */
void kvx_puller_completed(kvx_puller *puller, uint64_t read_id, kvx_status status);

/* One bounded slice of work: a piece of planning, a batch of reads, one progress of the domain,
 * drains and closes that are due. Returns true when there is more to do at once. */
bool kvx_puller_step(kvx_puller *puller, uint64_t now);
/* When a step is due without other news; KVX_NEVER: not. */
uint64_t kvx_puller_next_due(const kvx_puller *puller);
/* No jobs and no paths. */
bool kvx_puller_is_idle(const kvx_puller *puller);

#endif
