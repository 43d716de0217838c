/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>
#include <string.h>

#include "kvx/transport.h"

#include "base/log.h"

/* Written by the build: X(name) for each transport, in order of preference for "auto". */
#include "transport_list.h"

#define DECLARE(name) extern const kvx_transport_ops kvx_transport_##name;
KVX_TRANSPORT_LIST(DECLARE)
#undef DECLARE

#define ENTRY(name) &kvx_transport_##name,
static const kvx_transport_ops *const transports[] = { KVX_TRANSPORT_LIST(ENTRY) NULL };
#undef ENTRY

#define TRANSPORT_COUNT (sizeof(transports) / sizeof(transports[0]) - 1)

static bool ops_are_complete(const kvx_transport_ops *ops)
{
    return ops->name != NULL && ops->help != NULL && ops->open != NULL && ops->close != NULL &&
           ops->query != NULL && ops->address != NULL && ops->connect != NULL &&
           ops->probe != NULL && ops->disconnect != NULL && ops->reg != NULL &&
           ops->unreg != NULL && ops->pack_key != NULL && ops->import_key != NULL &&
           ops->forget_key != NULL && ops->get != NULL && ops->progress != NULL &&
           ops->event_fd != NULL && ops->arm != NULL &&
           (ops->memory_alloc == NULL) == (ops->memory_free == NULL);
}

/* A table that another version of the header built, or with a hole, is not offered: it would
 * die on its first odd path. */
static bool ops_are_usable(const kvx_transport_ops *ops)
{
    if (ops->size == sizeof(*ops) && ops_are_complete(ops))
        return true;
    kvx_log(KVX_LOG_ERROR, "transport %s: its table is incomplete or of another version",
            ops->name != NULL ? ops->name : "without a name");
    return false;
}

const kvx_transport_ops *kvx_transport_at(size_t index)
{
    for (size_t i = 0; i < TRANSPORT_COUNT; i++) {
        if (!ops_are_usable(transports[i]))
            continue;
        if (index == 0)
            return transports[i];
        index--;
    }
    return NULL;
}

const kvx_transport_ops *kvx_transport_find(const char *name)
{
    if (name == NULL)
        return NULL;
    for (size_t i = 0; i < TRANSPORT_COUNT; i++) {
        if (strcmp(transports[i]->name, name) == 0 && ops_are_usable(transports[i]))
            return transports[i];
    }
    return NULL;
}

const char *kvx_read_mode_name(kvx_read_mode mode)
{
    switch (mode) {
    case KVX_READ_ONE_SIDED: return "one-sided";
    case KVX_READ_SERVED: return "served";
    }
    return "unknown";
}
