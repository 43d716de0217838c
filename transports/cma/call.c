/* SPDX-License-Identifier: Apache-2.0 */
#include "cma/cma.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

/* A process that has ended, even if nobody has waited for it yet, makes its pidfd readable. */
static bool pidfd_is_alive(int pidfd)
{
    struct pollfd wanted = { .fd = pidfd, .events = POLLIN };
    int count;
    do {
        count = poll(&wanted, 1, 0);
    } while (count < 0 && errno == EINTR);
    return count == 0;
}

/* The open file belongs to the process and not to its number: it cannot be read once the process
 * is gone, and says Z or X, after the name in parentheses, when it has ended. */
static bool stat_is_alive(int stat_fd)
{
    char text[256];
    const ssize_t got = pread(stat_fd, text, sizeof(text) - 1, 0);
    if (got <= 0)
        return false;
    text[got] = '\0';
    const char *const name_end = strrchr(text, ')');
    return name_end != NULL && name_end[1] == ' ' && strchr("ZX", name_end[2]) == NULL;
}

static bool process_is_alive(const kvx_ep *ep)
{
    return ep->pidfd >= 0 ? pidfd_is_alive(ep->pidfd) : stat_is_alive(ep->stat_fd);
}

static kvx_cma_outcome outcome_from_errno(int error)
{
    switch (error) {
    case ESRCH: return KVX_CMA_GONE;
    case EPERM: return KVX_CMA_FORBIDDEN;
    default: return KVX_CMA_BAD_MEMORY;
    }
}

/* After a call that read the nonce: was it the peer's memory, and does the peer still live? */
static kvx_cma_outcome judge(const kvx_ep *ep, const uint8_t *seen)
{
    if (!process_is_alive(ep))
        return KVX_CMA_GONE;
    const bool is_peer = memcmp(seen, ep->peer.nonce, KVX_CMA_NONCE_BYTES) == 0;
    return is_peer ? KVX_CMA_PROVEN : KVX_CMA_OTHER;
}

static struct iovec nonce_of(const kvx_ep *ep)
{
    return (struct iovec){
        .iov_base = (void *)(uintptr_t)ep->peer.nonce_at,
        .iov_len = KVX_CMA_NONCE_BYTES,
    };
}

kvx_cma_outcome kvx_cma_prove(const kvx_ep *ep)
{
    uint8_t seen[KVX_CMA_NONCE_BYTES] = { 0 };
    const struct iovec local = { .iov_base = seen, .iov_len = sizeof(seen) };
    const struct iovec remote = nonce_of(ep);
    const ssize_t got = process_vm_readv((pid_t)ep->peer.process.pid, &local, 1, &remote, 1, 0);
    if (got == (ssize_t)sizeof(seen))
        return judge(ep, seen);

    const kvx_cma_outcome outcome = got < 0 ? outcome_from_errno(errno) : KVX_CMA_BAD_MEMORY;
    /* A nonce that cannot be read is not there. */
    return outcome == KVX_CMA_BAD_MEMORY ? KVX_CMA_OTHER : outcome;
}

/* A call that ended early did not come to the nonce, so it is read now. That proves what came
 * before: a process's memory is replaced once, by exec, and never comes back. */
static kvx_cma_outcome judge_partial(const kvx_ep *ep, uint64_t got_bytes, uint64_t *bytes_out)
{
    const kvx_cma_outcome outcome = kvx_cma_prove(ep);
    if (outcome != KVX_CMA_PROVEN)
        return outcome;
    if (got_bytes == 0)
        return KVX_CMA_BAD_MEMORY;
    *bytes_out = got_bytes;
    return KVX_CMA_PROVEN;
}

kvx_cma_outcome kvx_cma_call_run(const kvx_ep *ep, kvx_cma_call *call, uint64_t *bytes_out)
{
    uint8_t seen[KVX_CMA_NONCE_BYTES] = { 0 };
    call->local[call->local_count] = (struct iovec){ .iov_base = seen, .iov_len = sizeof(seen) };
    call->remote[call->remote_count] = nonce_of(ep);
    const ssize_t got = process_vm_readv((pid_t)ep->peer.process.pid, call->local,
            call->local_count + 1, call->remote, call->remote_count + 1, 0);
    if (got < 0) {
        const kvx_cma_outcome outcome = outcome_from_errno(errno);
        return outcome == KVX_CMA_BAD_MEMORY ? judge_partial(ep, 0, bytes_out) : outcome;
    }

    const uint64_t got_bytes = (uint64_t)got;
    if (got_bytes == call->length_bytes + sizeof(seen)) {
        const kvx_cma_outcome outcome = judge(ep, seen);
        if (outcome == KVX_CMA_PROVEN)
            *bytes_out = call->length_bytes;
        return outcome;
    }
    const uint64_t wanted_bytes = got_bytes < call->length_bytes ? got_bytes : call->length_bytes;
    return judge_partial(ep, wanted_bytes, bytes_out);
}
