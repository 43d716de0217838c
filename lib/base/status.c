/* SPDX-License-Identifier: Apache-2.0 */
#include "kvx/status.h"

const char *kvx_status_text(kvx_status status)
{
    switch (status) {
#define STATUS_TEXT(name, value, scope, text) \
    case KVX_##name: return text;
        KVX_STATUS_LIST(STATUS_TEXT)
#undef STATUS_TEXT
    default: return "unknown status";
    }
}

const char *kvx_status_name(kvx_status status)
{
    switch (status) {
#define STATUS_NAME(name, value, scope, text) \
    case KVX_##name: return #name;
        KVX_STATUS_LIST(STATUS_NAME)
#undef STATUS_NAME
    default: return "UNKNOWN";
    }
}

/* A status that we do not know may mean anything, so the caller gives up the most. */
kvx_scope kvx_status_scope(kvx_status status)
{
    switch (status) {
#define STATUS_SCOPE(name, value, scope, text) \
    case KVX_##name: return KVX_SCOPE_##scope;
        KVX_STATUS_LIST(STATUS_SCOPE)
#undef STATUS_SCOPE
    default: return KVX_SCOPE_NODE;
    }
}
