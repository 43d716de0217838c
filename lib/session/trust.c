/* SPDX-License-Identifier: Apache-2.0 */
/* Trust: until when the owner surely keeps the pages, as the reader may believe (L2). It counts
 * from when the message was sent that the owner answers, so no delay can stretch it. */
#include "session/core.h"

/* margin plus 0.1 % of the lease: what two clocks may drift apart within it. */
static uint64_t margin_ns(const kvx_session *session, const kvx_sub *sub)
{
    return session->settings.margin_ns + sub->lease_ns / 1000;
}

void kvx_trust_extend(kvx_session *session, kvx_sub *sub, uint64_t sent_ns)
{
    const uint64_t until = sent_ns + sub->lease_ns;
    const uint64_t margin = margin_ns(session, sub);

    if (sent_ns == 0 || until <= margin || until - margin <= sub->trust_until)
        return;
    sub->trust_until = until - margin;
    if (sub->state == KVX_SUB_PULLING) {
        sub->needs_trust = true;
        kvx_sub_queue(session, sub);
    }
}

/* Renew in bulk: what is due, and what will be within a third of its pause. */
void kvx_trust_renew(kvx_session *session, kvx_link *link, uint64_t now)
{
    kvx_message message = { .type = KVX_MESSAGE_RENEW };
    uint32_t count = 0;

    kvx_list_foreach (node, &link->subs) {
        kvx_sub *sub = KVX_LIST_ENTRY(node, kvx_sub, on_link);
        if (sub->state == KVX_SUB_WAITING || sub->state >= KVX_SUB_DRAINING ||
                sub->renew_at > now + sub->lease_ns / 9 || count == KVX_WIRE_RENEW_MAX)
            continue;
        session->renew_items[count++] = (kvx_renew_item){ sub->job.nonce, sub->generation };
        sub->renew_at = now + sub->lease_ns / 3;
        kvx_sub_arm(session, sub);
    }
    if (count == 0)
        return;
    message.renew.sequence = kvx_link_next_sequence(link, now);
    message.renew.items = session->renew_items;
    message.renew.count = count;
    session->sink.send(session->sink.arg, link->id, &message);
    kvx_count(&session->metrics->renewals, count);
}

static void lease_item(kvx_session *session, kvx_link *link, const kvx_lease_item *item,
        uint64_t sent_ns, uint64_t now)
{
    kvx_sub *sub = kvx_map_find(&session->subs, item->nonce);

    if (sub == NULL || sub->link != link || sub->state >= KVX_SUB_DRAINING)
        return;
    if (item->status == KVX_OK) {
        kvx_trust_extend(session, sub, sent_ns);
        kvx_sub_arm(session, sub);
        return;
    }
    /* Once RELEASE is out, only RELEASED, the deadline or loss decide. */
    if (sub->state != KVX_SUB_CONFIRM && sub->state != KVX_SUB_VALID)
        kvx_sub_fail(session, sub, item->status, "the owner refused to renew", now);
}

void kvx_trust_lease(kvx_session *session, kvx_link *link, const kvx_message *message, uint64_t now)
{
    const uint64_t sent_ns = kvx_link_sent(link, message->lease.sequence);

    kvx_link_answered(link, message->lease.sequence);
    for (uint32_t i = 0; i < message->lease.count; i++) {
        const kvx_lease_item item = kvx_wire_lease_at(message->lease.view, i);
        lease_item(session, link, &item, sent_ns, now);
    }
}
