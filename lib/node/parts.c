/* SPDX-License-Identifier: Apache-2.0 */
/* The pool, the transport it is registered with, and the engine that pulls into it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/random.h"
#include "node/node.h"
#include "transport/domain.h"

/* Open a transport's domain and register the pool. On failure nothing is open. */
static kvx_status try_transport(
        kvx_node *node, const kvx_transport_ops *ops, uint64_t epoch, bool takes_same_process)
{
    kvx_domain_params params;
    kvx_domain_limits limits;

    kvx_lock(&node->lock);
    node->ops = ops; /* its settings are asked for from inside open() */
    kvx_unlock(&node->lock);
    kvx_node_domain_params(node, epoch, &params);
    kvx_status status = kvx_domain_open(ops, &params, &node->domain, &limits);
    if (status == KVX_OK && limits.same_process_only && !takes_same_process)
        status = KVX_UNSUPPORTED;
    if (status == KVX_OK)
        status = kvx_pool_attach(node->pool, ops, node->domain);
    if (status == KVX_OK)
        return KVX_OK;
    ops->close(node->domain);
    node->domain = NULL;
    return status;
}

/* "cma loopback" */
static void list_transports(char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (size_t i = 0; kvx_transport_at(i) != NULL && used < size; i++)
        used += (size_t)snprintf(
                text + used, size - used, "%s%s", i == 0 ? "" : " ", kvx_transport_at(i)->name);
}

static kvx_status open_named(kvx_node *node, const char *name, uint64_t epoch)
{
    const kvx_transport_ops *ops = kvx_transport_find(name);
    char built[256];

    if (ops != NULL)
        return try_transport(node, ops, epoch, true);
    list_transports(built, sizeof(built));
    kvx_log(KVX_LOG_ERROR,
            "transport '%s' is unknown or was not built; this build has: %s, or say auto", name,
            built);
    return KVX_UNSUPPORTED;
}

/* The first in order of preference that opens and takes the pool; one that stays within the
 * process only when nothing else does. */
static kvx_status open_auto(kvx_node *node, uint64_t epoch)
{
    kvx_status status = KVX_UNSUPPORTED;

    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; kvx_transport_at(i) != NULL; i++) {
            status = try_transport(node, kvx_transport_at(i), epoch, pass == 1);
            if (status == KVX_OK || status == KVX_NO_MEMORY)
                return status;
        }
    }
    kvx_log(KVX_LOG_ERROR, "rank %" PRIu32 ": no transport of this build takes the pool",
            node->rank);
    return status;
}

static kvx_status open_transport(kvx_node *node, uint64_t epoch)
{
    const char *wanted = node->settings.transport;
    const bool is_auto = strcmp(wanted, "auto") == 0;

    if (node->session != NULL) /* another pool on the same transport */
        return try_transport(node, node->ops, epoch, true);
    KVX_TRY(is_auto ? open_auto(node, epoch) : open_named(node, wanted, epoch));
    kvx_log(KVX_LOG_INFO, "rank %" PRIu32 ": transport %s%s", node->rank, node->ops->name,
            is_auto ? ", chosen by auto" : "");
    return KVX_OK;
}

/* Other threads may look at the pool in this moment. */
void kvx_node_pool_set(kvx_node *node, kvx_pool *pool)
{
    kvx_lock(&node->lock);
    node->pool = pool;
    kvx_unlock(&node->lock);
}

kvx_status kvx_node_pool_open(kvx_node *node, const kvx_layout *layout, kvx_hello **hello_out)
{
    kvx_pool *pool;
    uint64_t epoch;

    KVX_TRY(kvx_random(&epoch));
    KVX_TRY(kvx_pool_create(layout, &pool));
    kvx_node_pool_set(node, pool);
    KVX_TRY(open_transport(node, epoch));
    node->transport_fd = node->ops->event_fd(node->domain);
    if (node->transport_fd >= 0)
        KVX_TRY(kvx_control_watch(node->control, node->transport_fd));
    return kvx_node_hello(node, epoch, hello_out);
}

kvx_status kvx_node_puller_open(kvx_node *node)
{
    const kvx_puller_params params = {
        .settings = &node->settings,
        .ops = node->ops,
        .domain = node->domain,
        .pool = node->pool,
        .metrics = &node->metrics,
        .hooks = kvx_node_puller_hooks(node),
    };

    return kvx_puller_create(&params, &node->puller);
}

void kvx_node_parts_close(kvx_node *node)
{
    kvx_puller_destroy(&node->puller);
    if (node->control != NULL)
        kvx_control_unwatch(node->control);
    node->transport_fd = -1;
    if (node->pool != NULL)
        kvx_pool_detach(node->pool);
    if (node->domain != NULL)
        node->ops->close(node->domain);
    node->domain = NULL;
}
