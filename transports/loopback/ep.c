/* SPDX-License-Identifier: Apache-2.0 */
#include "loopback/loopback.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "transport/blob.h"
#include "transport/key.h"

typedef struct address {
    uint64_t identity;
    uint64_t pid;
    uint64_t process;
} address;

kvx_status kvx_loopback_address(kvx_domain *domain, void *buffer, size_t size, size_t *length_out)
{
    kvx_blob blob;
    kvx_blob_begin(&blob, buffer, size, KVX_LOOPBACK_ADDRESS_MAGIC);
    kvx_blob_u64(&blob, domain->params.identity);
    kvx_blob_u64(&blob, (uint64_t)getpid());
    kvx_blob_u64(&blob, kvx_loopback_process());
    return kvx_blob_end(&blob, length_out);
}

static kvx_status address_parse(const void *data, size_t length, address *address_out)
{
    kvx_reader reader;
    KVX_TRY(kvx_blob_open(&reader, data, length, KVX_LOOPBACK_ADDRESS_MAGIC));
    const address parsed = {
        .identity = kvx_read_u64(&reader),
        .pid = kvx_read_u64(&reader),
        .process = kvx_read_u64(&reader),
    };
    KVX_ENSURE(kvx_reader_is_done(&reader), KVX_PROTOCOL);
    *address_out = parsed;
    return KVX_OK;
}

static kvx_status refuse(char *why, size_t why_size, const char *reason)
{
    (void)snprintf(why, why_size, "%s", reason);
    kvx_log(KVX_LOG_ERROR, "loopback: %s", reason);
    return KVX_UNREACHABLE;
}

kvx_status kvx_loopback_connect(kvx_domain *domain, const void *data, size_t length, char *why,
        size_t why_size, kvx_ep **ep_out)
{
    address peer;
    if (address_parse(data, length, &peer) != KVX_OK) {
        (void)snprintf(why, why_size, "the address is not one of loopback, or damaged");
        kvx_log(KVX_LOG_ERROR, "loopback: an address of %zu bytes is malformed", length);
        return KVX_PROTOCOL;
    }
    if (peer.pid != (uint64_t)getpid() || peer.process != kvx_loopback_process())
        return refuse(why, why_size, "loopback reaches its own process only; use transport = cma");

    kvx_ep *ep = calloc(1, sizeof(*ep));
    KVX_ENSURE(ep != NULL, KVX_NO_MEMORY);
    ep->domain = domain;
    ep->peer = peer.identity;
    *ep_out = ep;
    return KVX_OK;
}

kvx_status kvx_loopback_probe(kvx_ep *ep, char *why, size_t why_size, kvx_ep_info *info_out)
{
    kvx_loopback_find_begin();
    const bool is_live = kvx_loopback_domain_is_live(ep->peer);
    kvx_loopback_find_end();
    if (!is_live)
        return refuse(why, why_size, "the peer has closed");

    ep->is_proven = true;
    *info_out = (kvx_ep_info){ .read_mode = KVX_READ_ONE_SIDED };
    (void)snprintf(info_out->lane, sizeof(info_out->lane), "memcpy in pid %d", (int)getpid());
    return KVX_OK;
}

/* Copies happen in progress() only, so none is under way. */
kvx_status kvx_loopback_disconnect(kvx_ep *ep)
{
    kvx_read_queue_clear(&ep->domain->pool, &ep->queue);
    free(ep);
    return KVX_OK;
}

kvx_status kvx_loopback_import_key(
        kvx_ep *ep, const void *data, size_t length, uint64_t length_bytes, kvx_rkey **rkey_out)
{
    kvx_key key;
    KVX_TRY(kvx_key_unpack(data, length, KVX_LOOPBACK_KEY_MAGIC, ep->peer, length_bytes, &key));

    kvx_rkey *rkey = calloc(1, sizeof(*rkey));
    KVX_ENSURE(rkey != NULL, KVX_NO_MEMORY);
    *rkey = (kvx_rkey){ .ep = ep, .serial = key.handle, .length_bytes = key.length_bytes };
    *rkey_out = rkey;
    return KVX_OK;
}

void kvx_loopback_forget_key(kvx_rkey *rkey)
{
    free(rkey);
}
