/* SPDX-License-Identifier: Apache-2.0 */
/* Messages as text, for traces. */
#include <stdio.h>

#include "watch.h"

typedef unsigned long long ull;

const char *watch_describe(const kvx_message *m, bool is_decoded)
{
    static char text[160];
    const char *name = kvx_message_name(m->type);

    switch ((unsigned)m->type) {
    case KVX_MESSAGE_SUBSCRIBE:
        snprintf(text, sizeof(text), "%s room %llu nonce %llx reader %u of %u", name,
                (ull)m->subscribe.room, (ull)m->subscribe.nonce, m->subscribe.reader,
                m->subscribe.readers);
        break;
    case KVX_MESSAGE_READY:
        snprintf(text, sizeof(text), "%s nonce %llx room %llu generation %llu echo %llu", name,
                (ull)m->ready.nonce, (ull)m->ready.room, (ull)m->ready.generation.counter,
                (ull)m->ready.echo);
        break;
    case KVX_MESSAGE_RENEW: {
        kvx_renew_item item = is_decoded ? kvx_wire_renew_at(m->renew.view, 0) : m->renew.items[0];
        snprintf(text, sizeof(text), "%s %llu: nonce %llx and %u more", name,
                (ull)m->renew.sequence, (ull)item.nonce, m->renew.count - 1);
        break;
    }
    case KVX_MESSAGE_LEASE: {
        kvx_lease_item item = is_decoded ? kvx_wire_lease_at(m->lease.view, 0) : m->lease.items[0];
        snprintf(text, sizeof(text), "%s %llu: nonce %llx %s and %u more", name,
                (ull)m->lease.sequence, (ull)item.nonce, kvx_status_name(item.status),
                m->lease.count - 1);
        break;
    }
    case KVX_MESSAGE_RELEASED:
    case KVX_MESSAGE_FAILED:
        snprintf(text, sizeof(text), "%s nonce %llx %s", name, (ull)m->released.nonce,
                kvx_status_name(m->released.status));
        break;
    case KVX_MESSAGE_RELEASE:
    case KVX_MESSAGE_ABORT:
    case KVX_MESSAGE_REVOKE:
    case KVX_MESSAGE_DRAINED:
        snprintf(text, sizeof(text), "%s nonce %llx generation %llu", name, (ull)m->about.nonce,
                (ull)m->about.generation.counter);
        break;
    default: snprintf(text, sizeof(text), "%s", name); break;
    }
    return text;
}
