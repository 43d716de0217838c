/* SPDX-License-Identifier: Apache-2.0 */
/* A node's work, round by round: sockets, timers, orders to the puller, reads; by its own thread
 * or by the caller's progress. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "node/node.h"

/* Steps of the puller between two looks at the sockets; a step takes up to a millisecond. */
#define STEPS_MAX 4
/* Looks at the sockets before timers and reads have their turn. */
#define WORK_MAX 64
/* How long ago the sockets may have been looked at when timers are handled; how often to try. */
#define FRESH_NS  (10 * KVX_NS_PER_MS)
#define LOOKS_MAX 3
/* How long the other sides have to hang up after our BYE. */
#define BYE_NS (100 * KVX_NS_PER_MS)

/* --- around the session --- */

static void eventfd_set(int fd)
{
    const uint64_t one = 1;

    (void)!write(fd, &one, sizeof(one)); /* full means: set already */
}

static void eventfd_clear(int fd)
{
    uint64_t count;

    (void)!read(fd, &count, sizeof(count));
}

void kvx_node_enter(kvx_node *node)
{
    kvx_lock(&node->lock);
}

static void tell_events(kvx_node *node) KVX_REQUIRES(&node->lock);
static void tell_events(kvx_node *node)
{
    const bool tells = node->events_watched && kvx_session_has_event(node->session);

    if (tells == node->events_told)
        return;
    if (tells)
        eventfd_set(node->events_fd);
    else
        eventfd_clear(node->events_fd);
    node->events_told = tells;
}

static bool must_wake(const kvx_node *node) KVX_REQUIRES(&node->lock);
static bool must_wake(const kvx_node *node)
{
    return node->sleep_until != 0 &&
           (node->has_news || kvx_control_has_work(node->control) ||
                   kvx_session_next_due(node->session) < node->sleep_until);
}

void kvx_node_leave(kvx_node *node, bool news)
{
    kvx_control_flush(node->control);
    tell_events(node);
    if (news)
        node->has_news = true;
    const bool wakes = must_wake(node);
    if (wakes)
        node->sleep_until = 0; /* once is enough */
    kvx_unlock(&node->lock);
    if (wakes)
        kvx_control_wake(node->control);
}

/* --- a round --- */

/* False: there is more to read. */
static bool read_sockets(kvx_node *node)
{
    for (int i = 0; i < WORK_MAX; i++) {
        kvx_node_enter(node);
        const bool has_more = kvx_control_work(node->control);
        kvx_node_leave(node, false);
        if (!has_more)
            return true;
    }
    return false;
}

static bool is_due(kvx_node *node)
{
    kvx_node_enter(node);
    const bool is = kvx_session_next_due(node->session) <= kvx_now();
    kvx_node_leave(node, false);
    return is;
}

/* What came before the timers' time is handled before the timers are: the sockets are read again,
 * and once more if we were held up between reading and looking at the clock. */
static void tick(kvx_node *node)
{
    bool is_fresh = false;

    if (!is_due(node))
        return;
    for (int i = 0; i < LOOKS_MAX && !is_fresh; i++) {
        const uint64_t before = kvx_now();
        (void)kvx_control_run(node->control, false);
        (void)read_sockets(node);
        is_fresh = kvx_now() - before < FRESH_NS;
    }
    kvx_node_enter(node);
    kvx_session_tick(node->session, kvx_now());
    kvx_control_check_suspects(node->control);
    kvx_node_leave(node, false);
}

static void give_orders(kvx_node *node)
{
    for (;;) {
        kvx_job_order order;
        kvx_node_enter(node);
        kvx_pull_job *job = kvx_session_next_job(node->session, &order);
        kvx_node_leave(node, false);
        if (job == NULL)
            return;
        switch (order) {
        case KVX_JOB_START: kvx_puller_start(node->puller, job, kvx_now()); break;
        case KVX_JOB_STOP: kvx_puller_stop(node->puller, job, kvx_now()); break;
        case KVX_JOB_TRUST: kvx_puller_resume(node->puller, job); break;
        }
    }
}

static void tell_joints(kvx_node *node)
{
    if (node->joint.told == NULL)
        return;
    for (;;) {
        kvx_subscription_id id;
        kvx_joint_step step;
        kvx_status status;
        kvx_node_enter(node);
        const bool is_any = kvx_session_next_joint(node->session, &id, &step, &status);
        kvx_node_leave(node, false);
        if (!is_any)
            return;
        node->joint.told(node->joint.arg, node->joint.index, id, step, status);
    }
}

static bool pull(kvx_node *node)
{
    bool has_more = true;

    if (node->puller == NULL) /* between two pools */
        return false;
    for (int i = 0; i < STEPS_MAX && has_more; i++) {
        kvx_node_ways_work(node);
        give_orders(node);
        has_more = kvx_puller_step(node->puller, kvx_now());
        tell_joints(node);
    }
    return has_more;
}

/* --- the way to the end --- */

static void say_bye(kvx_node *node, uint64_t now) KVX_REQUIRES(&node->lock);
static void say_bye(kvx_node *node, uint64_t now)
{
    kvx_session_say_bye(node->session, now);
    if (node->is_for_good)
        kvx_control_leave(node->control);
    node->bye_until = now + BYE_NS;
    node->phase = KVX_NODE_LEAVING;
    node->has_news = true;
}

/* Sockets may be given up; data paths may not. */
static bool is_quiet(const kvx_node *node, uint64_t now) KVX_REQUIRES(&node->lock);
static bool is_quiet(const kvx_node *node, uint64_t now)
{
    if (!kvx_list_is_empty(&node->ways_changed) ||
            (node->puller != NULL && !kvx_puller_is_idle(node->puller)))
        return false;
    if (node->is_for_good && kvx_control_is_resolving(node->control))
        return false; /* a look-up cannot be ended, and writes to us */
    return kvx_control_is_quiet(node->control) || now >= node->bye_until;
}

static void advance(kvx_node *node)
{
    kvx_node_enter(node);
    const uint64_t now = kvx_now();
    const bool is_drained = kvx_session_is_drained(node->session);
    if (node->phase == KVX_NODE_CLOSING && is_drained)
        say_bye(node, now);
    else if (node->phase == KVX_NODE_LEAVING && is_quiet(node, now))
        node->phase = KVX_NODE_QUIET;
    if (node->end_awaited && (node->phase == KVX_NODE_QUIET || (node->is_draining && is_drained))) {
        node->end_awaited = false;
        eventfd_set(node->ended_fd);
    }
    kvx_node_leave(node, false);
}

bool kvx_node_round(kvx_node *node, bool may_block)
{
    (void)kvx_control_run(node->control, may_block);
    kvx_node_enter(node);
    node->sleep_until = 0;
    node->has_news = false;
    kvx_node_leave(node, false);

    const bool is_read = read_sockets(node);
    tick(node);
    const bool has_more = pull(node);
    advance(node);
    return has_more || !is_read;
}

static uint64_t next_due(const kvx_node *node) KVX_REQUIRES(&node->lock);
static uint64_t next_due(const kvx_node *node)
{
    uint64_t due =
            kvx_earlier(kvx_session_next_due(node->session), kvx_control_next_due(node->control));

    if (node->puller != NULL)
        due = kvx_earlier(due, kvx_puller_next_due(node->puller));
    if (node->phase == KVX_NODE_LEAVING)
        due = kvx_earlier(due, node->bye_until);
    return due;
}

static void stay_awake(kvx_node *node)
{
    kvx_node_enter(node);
    node->sleep_until = 0;
    kvx_node_leave(node, false);
}

bool kvx_node_settle(kvx_node *node)
{
    kvx_node_enter(node);
    const uint64_t due = next_due(node);
    const bool may_sleep =
            !node->has_news && !kvx_control_has_work(node->control) && due > kvx_now();
    if (may_sleep)
        node->sleep_until = due;
    kvx_node_leave(node, false);
    if (!may_sleep)
        return false;

    kvx_control_arm(node->control, due);
    if (node->transport_fd >= 0 && node->ops->arm(node->domain) != KVX_OK) {
        stay_awake(node);
        return false;
    }
    return true;
}

/* --- its own thread --- */

static bool is_stopping(kvx_node *node)
{
    kvx_node_enter(node);
    const bool is = node->is_stopping;
    kvx_node_leave(node, false);
    return is;
}

static void *thread_main(void *arg)
{
    kvx_node *node = arg;
    bool may_block = false;

    while (!is_stopping(node)) {
        const bool has_more = kvx_node_round(node, may_block);
        may_block = !has_more && kvx_node_settle(node);
    }
    return NULL;
}

/* Signals are the program's: none is delivered to our thread. */
kvx_status kvx_node_thread_start(kvx_node *node)
{
    sigset_t all;
    sigset_t before;
    char name[16];

    node->is_stopping = false; /* no thread runs */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&node->thread, NULL, thread_main, node);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        kvx_log(KVX_LOG_ERROR, "rank %" PRIu32 ": cannot start its thread: %s", node->rank,
                strerror(error));
        return error == EAGAIN ? KVX_NO_MEMORY : KVX_IO;
    }
    node->has_thread = true;
    (void)snprintf(name, sizeof(name), "kvx-node-%" PRIu32, node->rank % 1000000);
    (void)pthread_setname_np(node->thread, name);
    return KVX_OK;
}

void kvx_node_thread_stop(kvx_node *node)
{
    if (!node->has_thread)
        return;
    kvx_node_enter(node);
    node->is_stopping = true;
    kvx_node_leave(node, true);
    (void)pthread_join(node->thread, NULL);
    node->has_thread = false;
}

/* --- waiting for the end --- */

/* The descriptor stays readable from the end on, so that everybody who waits for it sees it. */
static bool has_ended(kvx_node *node)
{
    kvx_node_enter(node);
    const bool is = node->phase == KVX_NODE_RUNNING ? kvx_session_is_drained(node->session)
                                                    : node->phase == KVX_NODE_QUIET;
    if (!is)
        eventfd_clear(node->ended_fd);
    node->end_awaited = !is;
    kvx_node_leave(node, false);
    return is;
}

bool kvx_node_wait_ended(kvx_node *node, uint64_t timeout_ns)
{
    const bool is_caller = !node->has_thread; /* also where it could not be started again */
    const uint64_t begin = kvx_now();
    const uint64_t until = timeout_ns == KVX_NEVER ? KVX_NEVER : begin + timeout_ns;

    for (;;) {
        const bool has_more = is_caller && kvx_node_progress(node) == KVX_AGAIN;
        if (has_ended(node))
            return true;
        const uint64_t now = kvx_now();
        if (now >= until)
            return false;
        if (has_more)
            continue;
        struct pollfd waited = {
            .fd = is_caller ? kvx_control_fd(node->control) : node->ended_fd,
            .events = POLLIN,
        };
        (void)poll(&waited, 1, kvx_node_poll_ms(now, until));
    }
}
