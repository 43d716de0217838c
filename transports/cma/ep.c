/* SPDX-License-Identifier: Apache-2.0 */
#include "cma/cma.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "transport/key.h"

static void ep_free(kvx_ep *ep)
{
    if (ep->pidfd >= 0)
        (void)close(ep->pidfd);
    if (ep->stat_fd >= 0)
        (void)close(ep->stat_fd);
    free(ep);
}

static kvx_status refuse(const kvx_cma_address *peer, const char *reason, char *why, size_t why_size)
{
    (void)snprintf(why, why_size, "pid %d: %s", (int)peer->process.pid, reason);
    kvx_log(KVX_LOG_ERROR, "cma: cannot read pid %d: %s", (int)peer->process.pid, reason);
    return KVX_UNREACHABLE;
}

/* Take hold of the process, whatever its number comes to mean. Returns 0 or an errno. */
static int process_hold(kvx_ep *ep)
{
    char path[64];
    const int pid = (int)ep->peer.process.pid;
    ep->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (ep->pidfd >= 0 || errno != ENOSYS)
        return ep->pidfd >= 0 ? 0 : errno;

    (void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    ep->stat_fd = open(path, O_RDONLY | O_CLOEXEC);
    if (ep->stat_fd >= 0)
        return 0;
    return errno == ENOENT ? ESRCH : errno;
}

static kvx_ep *ep_create(kvx_domain *domain, const kvx_cma_address *peer)
{
    kvx_ep *ep = calloc(1, sizeof(*ep));
    if (ep == NULL)
        return NULL;
    ep->domain = domain;
    ep->peer = *peer;
    ep->pidfd = -1;
    ep->stat_fd = -1;
    return ep;
}

kvx_status kvx_cma_connect(kvx_domain *domain, const void *data, size_t length, char *why,
        size_t why_size, kvx_ep **ep_out)
{
    kvx_cma_address peer;
    if (kvx_cma_address_unpack(data, length, &peer) != KVX_OK) {
        (void)snprintf(why, why_size, "the address is not one of cma, or damaged");
        kvx_log(KVX_LOG_ERROR, "cma: an address of %zu bytes is malformed", length);
        return KVX_PROTOCOL;
    }
    const char *refusal = kvx_cma_refusal(&domain->self.process, &peer.process);
    if (refusal != NULL)
        return refuse(&peer, refusal, why, why_size);

    kvx_ep *ep = ep_create(domain, &peer);
    KVX_ENSURE(ep != NULL, KVX_NO_MEMORY);
    const int error = process_hold(ep);
    if (error != 0) {
        ep_free(ep);
        return refuse(
                &peer, error == ESRCH ? "the process has ended" : strerror(error), why, why_size);
    }
    *ep_out = ep;
    return KVX_OK;
}

static const char *outcome_reason(kvx_cma_outcome outcome)
{
    switch (outcome) {
    case KVX_CMA_FORBIDDEN: return kvx_cma_forbidden_reason();
    case KVX_CMA_GONE: return "the process has ended";
    case KVX_CMA_OTHER:
    case KVX_CMA_BAD_MEMORY:
    case KVX_CMA_PROVEN: break;
    }
    return "the process is another one now, or its node has closed";
}

kvx_status kvx_cma_probe(kvx_ep *ep, char *why, size_t why_size, kvx_ep_info *info_out)
{
    const kvx_cma_outcome outcome = kvx_cma_prove(ep);
    if (outcome != KVX_CMA_PROVEN)
        return refuse(&ep->peer, outcome_reason(outcome), why, why_size);

    ep->is_proven = true;
    *info_out = (kvx_ep_info){ .read_mode = KVX_READ_ONE_SIDED };
    (void)snprintf(info_out->lane, sizeof(info_out->lane), "process_vm_readv pid %d",
            (int)ep->peer.process.pid);
    return KVX_OK;
}

/* The kernel copies inside progress() only, so nothing is under way. */
kvx_status kvx_cma_disconnect(kvx_ep *ep)
{
    kvx_read_queue_clear(&ep->domain->pool, &ep->queue);
    ep_free(ep);
    return KVX_OK;
}

kvx_status kvx_cma_import_key(
        kvx_ep *ep, const void *data, size_t length, uint64_t length_bytes, kvx_rkey **rkey_out)
{
    kvx_key key;
    uint64_t end;
    KVX_TRY(kvx_key_unpack(data, length, KVX_CMA_KEY_MAGIC, ep->peer.identity, length_bytes, &key));
    KVX_ENSURE(!__builtin_add_overflow(key.handle, key.length_bytes, &end), KVX_PROTOCOL);

    kvx_rkey *rkey = calloc(1, sizeof(*rkey));
    KVX_ENSURE(rkey != NULL, KVX_NO_MEMORY);
    *rkey = (kvx_rkey){ .ep = ep, .base = key.handle, .length_bytes = key.length_bytes };
    *rkey_out = rkey;
    return KVX_OK;
}

void kvx_cma_forget_key(kvx_rkey *rkey)
{
    free(rkey);
}
