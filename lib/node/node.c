/* SPDX-License-Identifier: Apache-2.0 */
/* Opening everything below in order, closing it in reverse, and changing the pool. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/log.h"
#include "base/random.h"
#include "node/node.h"
#include "session/address.h"

#define COMPAT_MAX 255

/* --- opening --- */

static kvx_status check_params(const kvx_node_params *params)
{
    const uint32_t ranks = params->ranks == 0 ? 1 : params->ranks;

    if (params->layout == NULL) {
        kvx_log(KVX_LOG_ERROR, "a node needs a layout: the memory that is pulled from or into");
        return KVX_INVALID;
    }
    if (params->rank >= ranks) {
        kvx_log(KVX_LOG_ERROR, "rank %" PRIu32 " is not below the group's %" PRIu32 " ranks",
                params->rank, ranks);
        return KVX_INVALID;
    }
    if (params->compat != NULL && strlen(params->compat) > COMPAT_MAX) {
        kvx_log(KVX_LOG_ERROR, "compat has %zu bytes, at most %d are allowed",
                strlen(params->compat), COMPAT_MAX);
        return KVX_INVALID;
    }
    return KVX_OK;
}

static kvx_status take_config(kvx_node *node, const kvx_config *config)
{
    if (config != NULL) {
        KVX_TRY(kvx_config_copy(config, &node->config));
    } else {
        KVX_TRY(kvx_config_create(&node->config));
        KVX_TRY(kvx_config_load_env(node->config));
    }
    return kvx_settings_from(node->config, &node->settings);
}

/* A transport stays on the interface that is listened on, if that is one. */
static kvx_status take_bind(kvx_node *node, const char *listen)
{
    kvx_address address;
    char why[256];

    if (listen == NULL || kvx_address_parse(listen, &address, why, sizeof(why)) != KVX_OK ||
            !kvx_address_is_numeric(&address) || kvx_address_is_wildcard(&address))
        return KVX_OK; /* what is malformed is refused when it is listened on */
    node->bind = strdup(address.host);
    return node->bind == NULL ? KVX_NO_MEMORY : KVX_OK;
}

static kvx_status take_params(kvx_node *node, const kvx_node_params *params)
{
    KVX_TRY(kvx_forks_watch(&node->forks));
    KVX_TRY(take_config(node, params->config));
    KVX_TRY(take_bind(node, params->listen));
    node->rank = params->rank;
    node->ranks = params->ranks == 0 ? 1 : params->ranks;
    node->compat = strdup(params->compat == NULL ? "" : params->compat);
    return node->compat == NULL ? KVX_NO_MEMORY : KVX_OK;
}

static kvx_status open_descriptors(kvx_node *node)
{
    node->events_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    node->ended_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (node->events_fd >= 0 && node->ended_fd >= 0)
        return KVX_OK;
    kvx_log(KVX_LOG_ERROR, "rank %" PRIu32 ": too many open files", node->rank);
    return KVX_IO;
}

/* One descriptor for all that a caller waits for: events, and the loop with its timer. */
static kvx_status open_epoll(kvx_node *node)
{
    const int watched[] = { node->events_fd, kvx_control_fd(node->control) };

    if (node->settings.progress != KVX_PROGRESS_CALLER)
        return KVX_OK;
    node->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    for (size_t i = 0; i < sizeof(watched) / sizeof(*watched); i++) {
        struct epoll_event event = { .events = EPOLLIN };
        if (node->epoll_fd < 0 ||
                epoll_ctl(node->epoll_fd, EPOLL_CTL_ADD, watched[i], &event) != 0) {
            kvx_log(KVX_LOG_ERROR, "rank %" PRIu32 ": too many open files", node->rank);
            return KVX_IO;
        }
    }
    return KVX_OK;
}

static kvx_status open_session(kvx_node *node, const kvx_hello *hello)
{
    kvx_session_params params = {
        .settings = &node->settings,
        .hello = hello,
        .pool = node->pool,
        .metrics = &node->metrics,
        .sink = kvx_node_sink(node),
    };

    KVX_TRY(kvx_random(&params.nonce_seed));
    KVX_TRY(kvx_session_create(&params, &node->session));
    kvx_control_attach(node->control, node->session);
    return KVX_OK;
}

static kvx_status open_parts(kvx_node *node, const kvx_node_params *params)
{
    kvx_hello *hello = NULL;

    KVX_TRY(open_descriptors(node));
    KVX_TRY(kvx_control_create(&node->settings, &node->metrics, &node->control));
    KVX_TRY(open_epoll(node));
    kvx_status status = kvx_node_pool_open(node, params->layout, &hello);
    if (status == KVX_OK)
        status = open_session(node, hello);
    kvx_hello_destroy(&hello);
    if (status != KVX_OK)
        return status;
    KVX_TRY(kvx_node_puller_open(node));
    if (params->listen != NULL)
        KVX_TRY(kvx_control_listen(node->control, params->listen, node->rank));
    if (node->settings.progress == KVX_PROGRESS_THREAD)
        KVX_TRY(kvx_node_thread_start(node));
    return KVX_OK;
}

static void close_fd(int fd)
{
    if (fd >= 0)
        (void)close(fd);
}

/* A node at any stage of opening. */
static void node_destroy(kvx_node *node)
{
    kvx_node_thread_stop(node);
    kvx_node_parts_close(node);
    kvx_control_destroy(&node->control);
    kvx_session_destroy(&node->session);
    kvx_pool_destroy(&node->pool);
    kvx_node_ways_fini(node);
    kvx_config_destroy(&node->config);
    close_fd(node->epoll_fd);
    close_fd(node->events_fd);
    close_fd(node->ended_fd);
    kvx_mutex_fini(&node->lock);
    free(node->compat);
    free(node->bind);
    free(node);
}

kvx_status kvx_node_open_joint(
        const kvx_node_params *params, const kvx_joint_listener *joint, kvx_node **node_out)
{
    kvx_node_params taken;

    KVX_ENSURE(params != NULL && node_out != NULL, KVX_INVALID);
    KVX_TRY(kvx_params_take(&taken, sizeof(taken), params, params->struct_size));
    KVX_TRY(check_params(&taken));
    kvx_node *node = calloc(1, sizeof(*node));
    KVX_ENSURE(node != NULL, KVX_NO_MEMORY);

    kvx_mutex_init(&node->lock);
    kvx_list_init(&node->ways_changed);
    node->transport_fd = -1;
    node->epoll_fd = -1;
    node->events_fd = -1;
    node->ended_fd = -1;
    if (joint != NULL)
        node->joint = *joint;
    kvx_status status = take_params(node, &taken);
    if (status == KVX_OK)
        status = open_parts(node, &taken);
    if (status != KVX_OK) {
        node_destroy(node);
        return status;
    }
    *node_out = node;
    return KVX_OK;
}

kvx_status kvx_node_open(const kvx_node_params *params, kvx_node **node_out)
{
    return kvx_node_open_joint(params, NULL, node_out);
}

/* --- closing --- */

static void begin_end(kvx_node *node, bool is_for_good)
{
    kvx_node_enter(node);
    if (is_for_good)
        node->is_for_good = true;
    if (node->phase == KVX_NODE_RUNNING) {
        node->phase = KVX_NODE_CLOSING;
        kvx_session_begin_close(node->session, kvx_now());
    }
    kvx_node_leave(node, true);
}

void kvx_node_begin_close(kvx_node *node)
{
    if (kvx_forks_is(node->forks))
        begin_end(node, true);
}

static uint64_t timeout_ns(uint32_t timeout_ms)
{
    return timeout_ms == 0 ? KVX_NEVER : timeout_ms * KVX_NS_PER_MS;
}

kvx_status kvx_node_close(kvx_node **node, uint32_t timeout_ms)
{
    if (node == NULL || *node == NULL)
        return KVX_OK;
    KVX_ENSURE(kvx_forks_is((*node)->forks), KVX_FORKED);
    begin_end(*node, true);
    if (!kvx_node_wait_ended(*node, timeout_ns(timeout_ms)))
        return KVX_AGAIN;
    node_destroy(*node);
    *node = NULL;
    return KVX_OK;
}

kvx_status kvx_node_drain(kvx_node *node, uint32_t timeout_ms)
{
    KVX_ENSURE(node != NULL && timeout_ms > 0, KVX_INVALID);
    KVX_ENSURE(kvx_forks_is(node->forks), KVX_FORKED);
    kvx_node_enter(node);
    node->is_draining = true;
    kvx_session_begin_drain(node->session);
    kvx_node_leave(node, true);
    return kvx_node_wait_ended(node, timeout_ns(timeout_ms)) ? KVX_OK : KVX_AGAIN;
}

/* --- changing the pool --- */

/* The session forgets its connections and works again, with the new pool. */
static kvx_status restart(kvx_node *node, const kvx_hello *hello)
{
    kvx_node_enter(node);
    const kvx_status status = kvx_session_restart(node->session, hello, node->pool, kvx_now());
    if (status == KVX_OK) {
        node->phase = KVX_NODE_RUNNING;
        node->is_draining = false;
    }
    kvx_node_leave(node, true);
    return status;
}

/* Nobody progresses the node. On failure it keeps its old pool, unregistered, and stays quiet. */
static kvx_status change_pool(kvx_node *node, const kvx_layout *layout)
{
    kvx_pool *old = node->pool;
    kvx_hello *hello = NULL;

    kvx_node_parts_close(node);
    kvx_node_pool_set(node, NULL);
    kvx_status status = kvx_node_pool_open(node, layout, &hello);
    if (status == KVX_OK)
        status = kvx_node_puller_open(node);
    if (status == KVX_OK)
        status = restart(node, hello);
    kvx_hello_destroy(&hello);
    if (status == KVX_OK) {
        kvx_pool_destroy(&old);
        return KVX_OK;
    }
    kvx_node_parts_close(node);
    kvx_pool *unused = node->pool;
    kvx_node_pool_set(node, old);
    kvx_pool_destroy(&unused);
    return status;
}

static kvx_status reregister(kvx_node *node, const kvx_layout *layout, uint32_t timeout_ms)
{
    begin_end(node, false);
    if (!kvx_node_wait_ended(node, timeout_ns(timeout_ms)))
        return KVX_AGAIN;
    kvx_node_thread_stop(node);
    kvx_status status = change_pool(node, layout);
    if (node->settings.progress == KVX_PROGRESS_THREAD) {
        const kvx_status started = kvx_node_thread_start(node);
        status = status == KVX_OK ? started : status;
    }
    return status;
}

/* One thread at a time. */
static bool begin_change(kvx_node *node)
{
    kvx_node_enter(node);
    const bool is_first = !node->is_changing;
    node->is_changing = true;
    kvx_node_leave(node, false);
    return is_first;
}

static void end_change(kvx_node *node)
{
    kvx_node_enter(node);
    node->is_changing = false;
    kvx_node_leave(node, false);
}

kvx_status kvx_node_reregister(kvx_node *node, const kvx_layout *layout, uint32_t timeout_ms)
{
    char why[256];

    KVX_ENSURE(node != NULL && layout != NULL, KVX_INVALID);
    KVX_ENSURE(kvx_forks_is(node->forks), KVX_FORKED);
    if (kvx_layout_check(layout, why, sizeof(why)) != KVX_OK) {
        kvx_log(KVX_LOG_ERROR, "rank %" PRIu32 ": the new pool: %s", node->rank, why);
        return KVX_INVALID;
    }
    KVX_ENSURE(begin_change(node), KVX_BUSY);
    const kvx_status status = reregister(node, layout, timeout_ms);
    end_change(node);
    return status;
}
