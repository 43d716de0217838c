/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "contract.h"

#include "base/random.h"
#include "transport/domain.h"

uint8_t pattern_at(uint32_t region, uint64_t off)
{
    const uint64_t mixed = (off + 1 + region * UINT64_C(0x51ed27)) * UINT64_C(0x9e3779b97f4a7c15);
    return (uint8_t)(mixed >> 40);
}

bool pattern_matches(uint32_t region, uint64_t off, const uint8_t *bytes, uint64_t length)
{
    for (uint64_t i = 0; i < length; i++) {
        if (bytes[i] != pattern_at(region, off + i))
            return false;
    }
    return true;
}

static const char *owner_setting(void *arg, const char *key)
{
    const owner_state *const state = arg;
    const struct kvx_transport_setting *row = state->ops->settings;
    while (row != NULL && row->key != NULL && strcmp(row->key, key) != 0)
        row++;
    return row != NULL ? row->default_value : NULL;
}

static void owner_completed(void *arg, uint64_t id, kvx_status status)
{
    (void)arg;
    (void)id;
    (void)status;
    abort(); /* an owner reads nothing */
}

static kvx_status owner_authorize(void *arg, const kvx_served_range *range)
{
    owner_state *const state = arg;
    (void)range;
    state->open_permits++;
    return KVX_OK;
}

static void owner_served_end(void *arg, uint64_t peer, uint64_t cookie)
{
    owner_state *const state = arg;
    (void)peer;
    (void)cookie;
    state->open_permits--;
}

static uint8_t *region_create(uint32_t region)
{
    uint8_t *const bytes =
            mmap(NULL, REGION_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bytes == MAP_FAILED)
        return NULL;
    for (uint64_t i = 0; i < REGION_BYTES; i++)
        bytes[i] = pattern_at(region, i);
    return bytes;
}

static bool offer_fill(owner_state *state, test_offer *out)
{
    out->status = state->ops->address(
            state->domain, out->address.data, sizeof(out->address.data), &out->address.length);
    for (uint32_t i = 0; i < REGION_COUNT && out->status == KVX_OK; i++)
        out->status = state->ops->pack_key(
                state->mrs[i], out->keys[i].data, sizeof(out->keys[i].data), &out->keys[i].length);
    return out->status == KVX_OK;
}

static void owner_unregister(owner_state *state)
{
    for (uint32_t i = 0; i < REGION_COUNT; i++) {
        state->ops->unreg(state->mrs[i]);
        state->mrs[i] = NULL;
    }
}

static bool owner_register(owner_state *state)
{
    for (uint32_t i = 0; i < REGION_COUNT; i++) {
        if (kvx_domain_reg(state->ops, state->domain, state->regions[i], REGION_BYTES,
                    KVX_MEMORY_HOST, &state->mrs[i]) != KVX_OK)
            return false;
    }
    return true;
}

bool owner_open(owner_state *state, const kvx_transport_ops *ops, test_offer *offer_out)
{
    kvx_domain_limits limits;
    kvx_domain_params params = {
        .struct_size = sizeof(params),
        .setting = owner_setting,
        .completed = owner_completed,
        .authorize = owner_authorize,
        .served_end = owner_served_end,
        .arg = state,
    };
    *state = (owner_state){ .ops = ops };
    offer_out->status = kvx_random(&params.identity);
    if (offer_out->status == KVX_OK)
        offer_out->status = kvx_domain_open(ops, &params, &state->domain, &limits);
    if (offer_out->status != KVX_OK)
        return false;
    for (uint32_t i = 0; i < REGION_COUNT; i++)
        state->regions[i] = region_create(i);
    return owner_register(state) && offer_fill(state, offer_out);
}

void owner_state_close(owner_state *state)
{
    owner_unregister(state);
    state->ops->close(state->domain);
    state->domain = NULL;
    for (uint32_t i = 0; i < REGION_COUNT; i++) {
        if (state->regions[i] != NULL)
            (void)munmap(state->regions[i], REGION_BYTES);
        state->regions[i] = NULL;
    }
}

static int child_start(void)
{
    const pid_t child = fork();
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)pause();
        _exit(0);
    }
    return child;
}

bool owner_obey(owner_state *state, test_order order, test_offer *offer_out)
{
    switch (order) {
    case ORDER_OFFER: return offer_fill(state, offer_out);
    case ORDER_REGISTER:
        owner_unregister(state);
        return owner_register(state) && offer_fill(state, offer_out);
    case ORDER_UNREGISTER: owner_unregister(state); return true;
    case ORDER_CLOSE: owner_state_close(state); return true;
    case ORDER_UNMAP: return munmap(state->regions[0] + 4096, 4096) == 0;
    case ORDER_EXEC: return execl("/bin/sleep", "sleep", "60", (char *)NULL) == 0;
    case ORDER_FORK: offer_out->status = child_start(); return true;
    }
    return false;
}

static bool bytes_send(int fd, const void *data, size_t size)
{
    const char *at = data;
    while (size > 0) {
        const ssize_t sent = send(fd, at, size, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        at += sent;
        size -= (size_t)sent;
    }
    return true;
}

static bool bytes_receive(int fd, void *data, size_t size)
{
    char *at = data;
    while (size > 0) {
        const ssize_t got = read(fd, at, size);
        if (got <= 0)
            return false;
        at += got;
        size -= (size_t)got;
    }
    return true;
}

/* Wait for an order, progressing meanwhile as a served read needs it. */
static bool order_wait(owner_state *state, int fd, test_order *order_out)
{
    struct pollfd wanted = { .fd = fd, .events = POLLIN };
    bool is_busy;
    do {
        is_busy = state->domain != NULL && state->ops->progress(state->domain);
    } while (poll(&wanted, 1, is_busy ? 0 : 1) <= 0);
    return bytes_receive(fd, order_out, sizeof(*order_out));
}

static void owner_serve(const kvx_transport_ops *ops, int fd)
{
    static owner_state state;
    static test_offer answer;
    test_order next;
    bool is_good = owner_open(&state, ops, &answer);
    while (bytes_send(fd, &answer, sizeof(answer)) && is_good && order_wait(&state, fd, &next))
        is_good = owner_obey(&state, next, &answer);
    _exit(0);
}

static void traits_apply(const owner_traits *traits)
{
    if (traits->uid != 0 && (setgid(traits->uid) != 0 || setuid(traits->uid) != 0))
        _exit(1);
    if (traits->has_own_pid_namespace) {
        if (unshare(CLONE_NEWPID) != 0)
            _exit(1);
        const pid_t child = fork();
        if (child != 0) {
            (void)waitpid(child, NULL, 0);
            _exit(0);
        }
    }
    (void)prctl(PR_SET_DUMPABLE, !traits->is_undumpable);
}

static void owner_fork(test_owner *owner, const owner_traits *traits, const kvx_transport_ops *ops)
{
    int fds[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    owner->pid = fork();
    cr_assert_geq(owner->pid, 0);
    if (owner->pid == 0) {
        (void)close(fds[0]);
        traits_apply(traits);
        owner_serve(ops, fds[1]);
    }
    (void)close(fds[1]);
    owner->fd = fds[0];
    cr_assert(bytes_receive(owner->fd, &owner->offer, sizeof(owner->offer)),
            "the owner's process could not start");
}

static bool stays_in_process(const kvx_transport_ops *ops)
{
    test_reader *const reader = reader_open(ops, NULL);
    const bool stays = reader->limits.same_process_only;
    reader_close(reader);
    return stays;
}

test_owner *owner_start(const kvx_transport_ops *ops, const owner_traits *traits)
{
    test_owner *const owner = calloc(1, sizeof(*owner));
    cr_assert_not_null(owner);
    owner->fd = -1;
    if (stays_in_process(ops))
        (void)owner_open(&owner->state, ops, &owner->offer);
    else
        owner_fork(owner, traits, ops);
    cr_assert_eq(owner->offer.status, KVX_OK, "the owner could not open: %s",
            kvx_status_text(owner->offer.status));
    return owner;
}

bool owner_order(test_owner *owner, test_order order)
{
    if (owner->pid == 0)
        return owner_obey(&owner->state, order, &owner->offer);
    return bytes_send(owner->fd, &order, sizeof(order)) &&
           bytes_receive(owner->fd, &owner->offer, sizeof(owner->offer));
}

/* Returns when it is dead, and leaves it a zombie. */
void owner_kill(test_owner *owner)
{
    siginfo_t info;
    cr_assert_eq(kill(owner->pid, SIGKILL), 0);
    cr_assert_eq(waitid(P_PID, (id_t)owner->pid, &info, WEXITED | WNOWAIT), 0);
}

void owner_stop(test_owner *owner)
{
    if (owner->pid == 0) {
        cr_expect_eq(owner->state.open_permits, 0);
        owner_state_close(&owner->state);
    } else {
        (void)close(owner->fd);
        (void)kill(owner->pid, SIGKILL);
        (void)waitpid(owner->pid, NULL, 0);
    }
    free(owner);
}
