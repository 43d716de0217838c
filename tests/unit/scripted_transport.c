/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/scripted_transport.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/seed.h"

#define PENDING_MAX 512
#define LAST_GASP   0xee

typedef struct pending {
    bool is_used;
    uint64_t id;
    uint64_t number;
    kvx_ep *ep;
    const uint8_t *source;
    uint8_t *destination;
    uint64_t length_bytes;
    uint64_t due_tick;
} pending;

struct kvx_domain {
    scripted_params params;
    transport_script script;
    uint64_t random;
    uint64_t tick;
    uint64_t taken;
    uint64_t last_id;
    uint32_t connects;
    uint32_t endpoints;
    uint32_t keys;
    uint32_t pending_count;
    pending pending[PENDING_MAX];
};

struct kvx_ep {
    kvx_domain *domain;
    bool is_proven;
    bool is_closing;
    bool is_dead; /* get() said so */
    uint32_t keys;
};

struct kvx_rkey {
    kvx_ep *ep;
    scripted_key key;
};

kvx_domain *scripted_create(const scripted_params *params)
{
    kvx_domain *domain = calloc(1, sizeof(*domain));

    cr_assert(domain != NULL);
    domain->params = *params;
    domain->random = params->seed;
    domain->script.take_max = UINT32_MAX;
    domain->script.delay_max = 1;
    return domain;
}

void scripted_destroy(kvx_domain *domain)
{
    cr_assert_eq(domain->endpoints, 0);
    cr_assert_eq(domain->keys, 0);
    cr_assert_eq(domain->pending_count, 0);
    free(domain);
}

transport_script *scripted_script(kvx_domain *domain)
{
    return &domain->script;
}

uint32_t scripted_pending(const kvx_domain *domain)
{
    return domain->pending_count;
}

uint64_t scripted_pending_bytes(const kvx_domain *domain)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < PENDING_MAX; i++)
        bytes += domain->pending[i].is_used ? domain->pending[i].length_bytes : 0;
    return bytes;
}

uint64_t scripted_taken(const kvx_domain *domain)
{
    return domain->taken;
}

uint32_t scripted_connects(const kvx_domain *domain)
{
    return domain->connects;
}

uint32_t scripted_endpoints(const kvx_domain *domain)
{
    return domain->endpoints;
}

uint32_t scripted_keys(const kvx_domain *domain)
{
    return domain->keys;
}

uint64_t scripted_last_id(const kvx_domain *domain)
{
    return domain->last_id;
}

static void domain_query(const kvx_domain *domain, kvx_domain_limits *limits_out)
{
    *limits_out = domain->params.limits;
}

static kvx_status ep_connect(kvx_domain *domain, const void *address, size_t length, char *why,
        size_t why_size, kvx_ep **ep_out)
{
    cr_assert(address != NULL && length > 0);
    if (domain->script.connect_status != KVX_OK) {
        (void)snprintf(why, why_size, "wrong host");
        return domain->script.connect_status;
    }
    kvx_ep *ep = calloc(1, sizeof(*ep));
    cr_assert(ep != NULL);
    ep->domain = domain;
    domain->connects++;
    domain->endpoints++;
    *ep_out = ep;
    return KVX_OK;
}

static kvx_status ep_probe(kvx_ep *ep, char *why, size_t why_size, kvx_ep_info *info_out)
{
    transport_script *script = &ep->domain->script;

    cr_assert(!ep->is_closing && !ep->is_proven);
    if (script->probe_again > 0) {
        script->probe_again -= script->probe_again != SCRIPTED_FOR_EVER;
        return KVX_AGAIN;
    }
    if (script->probe_status != KVX_OK) {
        (void)snprintf(why, why_size, "not permitted");
        return script->probe_status;
    }
    ep->is_proven = true;
    *info_out = (kvx_ep_info){ .read_mode = KVX_READ_ONE_SIDED, .lane = "script" };
    return KVX_OK;
}

/* What is under way may write until the very end. */
static void reads_abandon(kvx_ep *ep)
{
    kvx_domain *domain = ep->domain;

    for (uint32_t i = 0; i < PENDING_MAX; i++) {
        pending *read = &domain->pending[i];
        if (!read->is_used || read->ep != ep)
            continue;
        domain->params.wrote(domain->params.arg, read->destination, read->length_bytes);
        memset(read->destination, LAST_GASP, read->length_bytes);
        read->is_used = false;
        domain->pending_count--;
    }
}

static kvx_status ep_disconnect(kvx_ep *ep)
{
    transport_script *script = &ep->domain->script;

    cr_assert_eq(ep->keys, 0, "keys are forgotten before the endpoint is closed");
    ep->is_closing = true;
    if (script->close_again > 0) {
        script->close_again -= script->close_again != SCRIPTED_FOR_EVER;
        return KVX_AGAIN;
    }
    reads_abandon(ep);
    ep->domain->endpoints--;
    free(ep);
    return KVX_OK;
}

static kvx_status key_import(
        kvx_ep *ep, const void *key, size_t key_length, uint64_t length_bytes, kvx_rkey **rkey_out)
{
    scripted_key unpacked;

    cr_assert(ep->is_proven && !ep->is_closing);
    cr_assert_eq(key_length, sizeof(unpacked));
    if (ep->domain->script.import_status != KVX_OK)
        return ep->domain->script.import_status;
    memcpy(&unpacked, key, sizeof(unpacked));
    cr_assert_eq(unpacked.length_bytes, length_bytes, "the length is the registration's");
    kvx_rkey *rkey = calloc(1, sizeof(*rkey));
    cr_assert(rkey != NULL);
    *rkey = (kvx_rkey){ .ep = ep, .key = unpacked };
    ep->keys++;
    ep->domain->keys++;
    *rkey_out = rkey;
    return KVX_OK;
}

static void key_forget(kvx_rkey *rkey)
{
    rkey->ep->keys--;
    rkey->ep->domain->keys--;
    free(rkey);
}

/* Two reads under way into the same bytes: one was posted again too early. */
static void overlap_check(const kvx_domain *domain, const uint8_t *base, uint64_t length_bytes)
{
    for (uint32_t i = 0; i < PENDING_MAX; i++) {
        const pending *read = &domain->pending[i];
        if (read->is_used)
            cr_assert(read->destination + read->length_bytes <= base ||
                              base + length_bytes <= read->destination,
                    "a read into the same bytes is still under way");
    }
}

static pending *pending_free(kvx_domain *domain)
{
    for (uint32_t i = 0; i < PENDING_MAX; i++) {
        if (!domain->pending[i].is_used)
            return &domain->pending[i];
    }
    cr_assert_fail("more reads under way than there is room for");
    return NULL;
}

static void read_take(kvx_ep *ep, const kvx_read *read)
{
    kvx_domain *domain = ep->domain;

    cr_assert(read->rkey != NULL && read->rkey->ep == ep);
    cr_assert_eq(read->segment_count, 1);
    cr_assert_eq(read->segments[0].length_bytes, read->length_bytes);
    cr_assert(read->length_bytes > 0);
    cr_assert_leq(read->length_bytes, domain->params.limits.read_bytes_max);
    cr_assert_leq(read->remote_off + read->length_bytes, read->rkey->key.length_bytes);
    overlap_check(domain, read->segments[0].base, read->length_bytes);
    *pending_free(domain) = (pending){
        .is_used = true,
        .id = read->id,
        .number = ++domain->taken,
        .ep = ep,
        .source = read->rkey->key.base + read->remote_off,
        .destination = read->segments[0].base,
        .length_bytes = read->length_bytes,
        .due_tick = domain->tick + 1 + test_random_below(&domain->random, domain->script.delay_max),
    };
    domain->pending_count++;
    domain->last_id = read->id;
}

static kvx_status ep_get(kvx_ep *ep, const kvx_read *reads, uint32_t count, uint32_t *taken_out)
{
    kvx_domain *domain = ep->domain;
    transport_script *script = &domain->script;
    uint32_t taken = 0;

    cr_assert(ep->is_proven && !ep->is_closing && count > 0);
    cr_assert(!ep->is_dead, "a dead endpoint is left alone");
    if (script->get_fail != KVX_OK) {
        const kvx_status status = script->get_fail;
        script->get_fail = KVX_OK;
        ep->is_dead = status == KVX_PEER_LOST;
        return status;
    }
    if (script->get_again > 0) {
        script->get_again--;
        return KVX_AGAIN;
    }
    while (taken < count && taken < script->take_max &&
            domain->pending_count < domain->params.limits.reads_in_flight_max)
        read_take(ep, &reads[taken++]);
    if (taken == 0)
        return KVX_AGAIN;
    *taken_out = taken;
    return KVX_OK;
}

static void read_end(kvx_domain *domain, pending *read)
{
    const transport_script *script = &domain->script;
    const bool is_bad = script->fail_at != 0 && read->number == script->fail_at;
    const uint64_t id = read->id;

    if (!is_bad) {
        domain->params.wrote(domain->params.arg, read->destination, read->length_bytes);
        memcpy(read->destination, read->source, read->length_bytes);
    }
    read->is_used = false;
    domain->pending_count--;
    domain->params.completed(domain->params.arg, id, is_bad ? script->fail_status : KVX_OK);
}

static bool domain_progress(kvx_domain *domain)
{
    domain->tick++;
    if (domain->script.is_stalled)
        return false;
    for (uint32_t i = 0; i < PENDING_MAX; i++) {
        pending *read = &domain->pending[i];
        if (read->is_used && read->due_tick <= domain->tick)
            read_end(domain, read);
    }
    return domain->pending_count > 0;
}

const kvx_transport_ops *scripted_ops(void)
{
    static const kvx_transport_ops ops = {
        .size = sizeof(ops),
        .name = "scripted",
        .help = "does what a test tells it",
        .query = domain_query,
        .connect = ep_connect,
        .probe = ep_probe,
        .disconnect = ep_disconnect,
        .import_key = key_import,
        .forget_key = key_forget,
        .get = ep_get,
        .progress = domain_progress,
    };
    return &ops;
}
