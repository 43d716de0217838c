/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for a node, and progressing it from outside. */
#include <poll.h>

#include "node/node.h"

int kvx_node_event_fd(kvx_node *node)
{
    if (node == NULL || !kvx_forks_is(node->forks))
        return -1;
    kvx_node_enter(node);
    node->events_watched = true;
    kvx_node_leave(node, false);
    return node->epoll_fd >= 0 ? node->epoll_fd : node->events_fd;
}

/* With progress = caller the last progress has set the timer; whatever came since has made the
 * descriptor readable. */
kvx_status kvx_node_arm(kvx_node *node)
{
    KVX_ENSURE(node != NULL, KVX_INVALID);
    KVX_ENSURE(kvx_forks_is(node->forks), KVX_FORKED);
    kvx_node_enter(node);
    const bool is_busy = kvx_session_has_event(node->session) || node->has_more;
    kvx_node_leave(node, false);
    return is_busy ? KVX_AGAIN : KVX_OK;
}

/* Whether there is more to do at once. The loop is run once more at the end, because only then
 * does its descriptor stand for what the round began to watch. */
static bool progress(kvx_node *node)
{
    const bool has_more = kvx_node_round(node, false) || !kvx_node_settle(node) ||
                          kvx_control_run(node->control, false);

    kvx_node_enter(node);
    node->has_more = has_more;
    kvx_node_leave(node, false);
    return has_more;
}

kvx_status kvx_node_progress(kvx_node *node)
{
    KVX_ENSURE(node != NULL, KVX_INVALID);
    KVX_ENSURE(kvx_forks_is(node->forks), KVX_FORKED);
    KVX_ENSURE(!node->has_thread, KVX_INVALID);
    return progress(node) ? KVX_AGAIN : KVX_OK;
}

/* Rounded up, so that nobody spins through the last millisecond. */
int kvx_node_poll_ms(uint64_t now, uint64_t until)
{
    if (until == KVX_NEVER)
        return -1;
    if (now >= until)
        return 0;
    const uint64_t left_ms = (until - now + KVX_NS_PER_MS - 1) / KVX_NS_PER_MS;
    return left_ms > INT32_MAX ? INT32_MAX : (int)left_ms;
}

bool kvx_node_wait(kvx_node *node, kvx_event *event_out, uint32_t timeout_ms)
{
    const uint64_t until = kvx_now() + timeout_ms * KVX_NS_PER_MS;
    struct pollfd waited = { .fd = kvx_node_event_fd(node), .events = POLLIN };

    event_out->kind = KVX_EVENT_NONE;
    if (waited.fd < 0)
        return false;
    for (;;) {
        if (node->settings.progress == KVX_PROGRESS_CALLER)
            (void)progress(node);
        if (kvx_node_poll(node, event_out))
            return true;
        const uint64_t now = kvx_now();
        if (now >= until)
            return false;
        if (kvx_node_arm(node) == KVX_OK)
            (void)poll(&waited, 1, kvx_node_poll_ms(now, until));
    }
}
