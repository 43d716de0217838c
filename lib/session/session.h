/* SPDX-License-Identifier: Apache-2.0 */
/* The session core: the protocol of a node as a state machine, both sides of it, fed with
 * (event, now) and emitting actions. It reads no clock, does no I/O, takes no lock and starts
 * nothing; its owner serialises all calls. The same code runs under real sockets and under the
 * model's virtual clock.
 *
 * `now` is CLOCK_BOOTTIME, sampled after the message or completion was seen. It may lag, because
 * the process can be stopped between the sample and the call, but must never lead. */
#ifndef KVX_SESSION_SESSION_H
#define KVX_SESSION_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "base/list.h"
#include "config/settings.h"
#include "kvx/node.h"
#include "metrics/metrics.h"
#include "pool/pool.h"
#include "wire/message.h"

/* One control connection, never reused; its owner makes them up. */
typedef uint64_t kvx_link_id;

typedef struct kvx_session kvx_session;

/* A pull as the pull engine sees it; lives in its subscription. Arrays are constant while the
 * engine has it: from kvx_session_next_job() until the engine reports done or quiet. */
typedef struct kvx_pull_job {
    uint64_t nonce;   /* cookie of its reads */
    kvx_link_id link; /* the data path goes with the link */
    uint32_t component_count;
    struct {
        const kvx_page_run *source; /* owner's page table */
        uint32_t source_count;      /* runs */
        uint32_t source_skip;       /* pages left out at its front */
        const kvx_page *destination;
        uint32_t page_count; /* pages to pull; the source has source_skip more */
    } tables[KVX_COMPONENT_MAX];
    void *pull; /* the engine's own; NULL until it has begun */
} kvx_pull_job;

/* What the engine is asked for. */
typedef enum kvx_job_order {
    KVX_JOB_START, /* plan and read */
    KVX_JOB_STOP, /* post nothing more, drain or close, then report quiet (also when never started) */
    KVX_JOB_TRUST, /* trust was extended: a pull that waits for it may post */
} kvx_job_order;

/* What a joint subscription (one rank of a group) tells the group. */
typedef enum kvx_joint_step {
    KVX_JOINT_BYTES_IN, /* all its bytes are in: waits for kvx_session_joint_release() */
    KVX_JOINT_VALID,    /* its owner confirmed: waits for kvx_session_joint_deliver() */
    KVX_JOINT_FAILED,   /* it fails, with status */
} kvx_joint_step;

/* Actions that its owner carries out at once; none may call back into the session. */
typedef struct kvx_session_sink {
    void *arg;
    /* Begin to connect; answer with kvx_session_dialed() or kvx_session_dial_failed(). */
    void (*dial)(void *arg, uint64_t peer, const char *address);
    /* Queue a message on a link. If it cannot be queued, the owner reports the link lost later. */
    void (*send)(void *arg, kvx_link_id link, const kvx_message *message);
    /* Send what is queued (within a bound), then close; the session has forgotten the link. */
    void (*close_link)(void *arg, kvx_link_id link);
    /* Open the data path to what a WELCOME described, and answer with kvx_session_data_ready().
     * The hello lives until drop_data. */
    void (*connect_data)(void *arg, kvx_link_id link, const kvx_hello *remote);
    /* The link is gone: end its data path once no pull uses it. */
    void (*drop_data)(void *arg, kvx_link_id link);
    /* Owner's side: close what still sends for this lease; kvx_session_serve_end() follows for
     * each of its operations. */
    void (*close_sends)(void *arg, uint64_t remote_epoch, uint64_t nonce);
} kvx_session_sink;

typedef struct kvx_session_params {
    const kvx_settings *settings; /* copied */
    const kvx_hello *hello;       /* own description; copied; its epoch is the node's */
    const kvx_pool *pool;         /* for geometry only; outlives the session */
    kvx_metrics *metrics;         /* outlives the session */
    uint64_t nonce_seed;          /* random: where nonces begin */
    kvx_session_sink sink;
} kvx_session_params;

KVX_CHECKED kvx_status kvx_session_create(
        const kvx_session_params *params, kvx_session **session_out);
void kvx_session_destroy(kvx_session **session);

/* --- connections --------------------------------------------------------------------------- */

/* A dial succeeded: the session sends HELLO. A peer that is gone meanwhile closes the link. */
void kvx_session_dialed(kvx_session *session, uint64_t peer, kvx_link_id link, uint64_t now);
/* A dial failed: it is tried again after a pause. `why` is for people. */
void kvx_session_dial_failed(
        kvx_session *session, uint64_t peer, kvx_status status, const char *why, uint64_t now);
/* A connection came in and said HELLO, which is given to the session. */
void kvx_session_accepted(kvx_session *session, kvx_link_id link, kvx_hello *hello, uint64_t now);
/* A message came. The session closes the link itself on a protocol error. Unknown links are
 * ignored (they were closed). A decoded hello in it is given to the session. */
void kvx_session_message(kvx_session *session, kvx_link_id link, kvx_message *message, uint64_t now);
/* Silence is judged only after a socket was read empty, since an answer may lie in it. After each
 * kvx_session_tick() the owner takes the suspects one by one, reads the socket of each empty
 * (feeding what comes), and says so with kvx_session_link_idle(), which judges. */
bool kvx_session_next_suspect(kvx_session *session, kvx_link_id *link_out);
void kvx_session_link_idle(kvx_session *session, kvx_link_id link, uint64_t now);
/* The connection broke: reset, end of file, malformed frames, full output. */
void kvx_session_link_lost(kvx_session *session, kvx_link_id link, kvx_status status, uint64_t now);
/* The data path of a link is proven (KVX_OK) or never will be; why is for people. */
void kvx_session_data_ready(
        kvx_session *session, kvx_link_id link, kvx_status status, const char *why, uint64_t now);

/* --- time ---------------------------------------------------------------------------------- */

/* Handle what is due. Call it after sockets were read. */
void kvx_session_tick(kvx_session *session, uint64_t now);
/* When kvx_session_tick() is due; KVX_NEVER: not. */
uint64_t kvx_session_next_due(const kvx_session *session);

/* --- the engine's calls, as in kvx/node.h ---------------------------------------------------- */

KVX_CHECKED kvx_status kvx_session_connect(kvx_session *session, const char *address,
        uint32_t remote_rank, uint64_t now, kvx_peer_id *peer_out);
KVX_CHECKED kvx_status kvx_session_disconnect(kvx_session *session, kvx_peer_id peer, uint64_t now);
KVX_CHECKED kvx_status kvx_session_publish(
        kvx_session *session, const kvx_offer *offer, uint64_t now);
KVX_CHECKED kvx_status kvx_session_reserve(
        kvx_session *session, uint64_t room, uint64_t bytes, uint64_t now);
KVX_CHECKED kvx_status kvx_session_revoke(kvx_session *session, uint64_t room, uint64_t now);
KVX_CHECKED kvx_status kvx_session_abort(kvx_session *session, uint64_t room, uint64_t now);
/* `early` may be NULL. `is_joint`: one rank of a group, see kvx_joint_step. */
KVX_CHECKED kvx_status kvx_session_subscribe(kvx_session *session,
        const kvx_subscription *subscription, const kvx_pull_params *early, bool is_joint,
        uint64_t now, kvx_subscription_id *id_out);
/* Whether kvx_session_pull() would be accepted now, memory apart. */
KVX_CHECKED kvx_status kvx_session_pull_check(
        kvx_session *session, kvx_subscription_id id, const kvx_pull_params *pull);
KVX_CHECKED kvx_status kvx_session_pull(
        kvx_session *session, kvx_subscription_id id, const kvx_pull_params *pull, uint64_t now);
/* Cancel (KVX_CANCELLED), or fail for a group's cause. */
KVX_CHECKED kvx_status kvx_session_fail(
        kvx_session *session, kvx_subscription_id id, kvx_status cause, uint64_t now);
kvx_room_state kvx_session_room(const kvx_session *session, uint64_t room, kvx_status *status_out);
/* Next event of the engine; event_out is not cleared when there is none. */
bool kvx_session_poll(kvx_session *session, kvx_event *event_out);
bool kvx_session_has_event(const kvx_session *session);

/* --- the pull engine's reports ------------------------------------------------------------- */

/* Next order for the engine, in order of need; NULL: none. */
kvx_pull_job *kvx_session_next_job(kvx_session *session, kvx_job_order *order_out);
/* Take destination pages [first, first + count) of a table for the pull (L11), before planning
 * visits them. KVX_BUSY or KVX_INVALID: *page_out is at fault. */
KVX_CHECKED kvx_status kvx_session_job_take(kvx_session *session, kvx_pull_job *job,
        uint32_t component, uint32_t first, uint32_t count, kvx_page *page_out);
/* May the engine post a read now (L2)? KVX_AGAIN: wait for KVX_JOB_TRUST. Other: a
 * KVX_JOB_STOP is on its way. */
KVX_CHECKED kvx_status kvx_session_job_may_post(
        kvx_session *session, kvx_pull_job *job, uint64_t now);
void kvx_session_job_planned(kvx_session *session, kvx_pull_job *job, uint64_t now);
/* Every byte is in; the engine has forgotten the job. A job that was being stopped counts as
 * quiet. */
void kvx_session_job_done(
        kvx_session *session, kvx_pull_job *job, const kvx_pull_stats *stats, uint64_t now);
/* Reading failed; the session answers with KVX_JOB_STOP. */
void kvx_session_job_failed(kvx_session *session, kvx_pull_job *job, kvx_status status,
        bool has_page, kvx_page page, uint64_t now);
/* A stopped job is quiet: nothing writes its pages any more; the engine has forgotten it. */
void kvx_session_job_quiet(
        kvx_session *session, kvx_pull_job *job, const kvx_pull_stats *stats, uint64_t now);
/* A stopped job cannot be made quiet: a close hangs. kvx_session_job_quiet() may follow. */
void kvx_session_job_held(kvx_session *session, kvx_pull_job *job, uint64_t now);

/* --- the group's part (L10) ---------------------------------------------------------------- */

/* Next step of a joint subscription; false: none. */
bool kvx_session_next_joint(kvx_session *session, kvx_subscription_id *id_out,
        kvx_joint_step *step_out, kvx_status *status_out);
/* All ranks' bytes are in: RELEASE. */
void kvx_session_joint_release(kvx_session *session, kvx_subscription_id id, uint64_t now);
/* All ranks' owners confirmed: PULLED. */
void kvx_session_joint_deliver(kvx_session *session, kvx_subscription_id id, uint64_t now);

/* --- the owner's own operations (L12) ------------------------------------------------------ */

/* May a read be served? Counts an operation of ours on that lease until kvx_session_serve_end(). */
KVX_CHECKED kvx_status kvx_session_serve_begin(
        kvx_session *session, uint64_t remote_epoch, uint64_t nonce, uint64_t now);
void kvx_session_serve_end(
        kvx_session *session, uint64_t remote_epoch, uint64_t nonce, uint64_t now);

/* --- ending -------------------------------------------------------------------------------- */

/* Refuse new publications and subscriptions from now on. */
void kvx_session_begin_drain(kvx_session *session);
/* Nothing is parked and nothing is subscribed. */
bool kvx_session_is_drained(const kvx_session *session);
/* Revoke and cancel everything, refuse everything new; quiet when drained (L13). */
void kvx_session_begin_close(kvx_session *session, uint64_t now);
/* Say BYE on every link and forget them; the owner's close_link is called for each. */
void kvx_session_say_bye(kvx_session *session, uint64_t now);
/* A new pool and epoch after begin_close and is_drained: forgets links and peers' connections
 * (dialled peers are dialled again) and takes work again. On failure nothing has changed. */
KVX_CHECKED kvx_status kvx_session_restart(
        kvx_session *session, const kvx_hello *hello, const kvx_pool *pool, uint64_t now);

#endif
