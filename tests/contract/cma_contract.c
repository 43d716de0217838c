/* SPDX-License-Identifier: Apache-2.0 */
/* What cma refuses, and how it tells the process it means from every other. */
#include <criterion/criterion.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cma/cma.h"
#include "contract.h"

#include "transport/domain.h"

TestSuite(cma, .timeout = 60);

static const uid_t nobody = 65534;

static void become_nobody(void)
{
    cr_assert_eq(setgid(nobody), 0);
    cr_assert_eq(setuid(nobody), 0);
}

static void need_root(void)
{
    if (geteuid() != 0)
        cr_skip_test("needs to be root, to become another user");
}

/* Connect to an address and expect a refusal whose text says a word. */
static void expect_refusal(const blob *address, const char *word)
{
    test_reader *const reader = reader_open(kvx_transport_find("cma"), NULL);
    char why[256] = "";
    kvx_ep *ep = NULL;
    cr_expect_eq(reader_connect(reader, address, why, sizeof(why), &ep), KVX_UNREACHABLE);
    cr_expect_not_null(strstr(why, word), "\"%s\" does not say \"%s\"", why, word);
    cr_expect_null(ep);
    reader_close(reader);
}

/* An owner's address with something else in it. */
static kvx_cma_address address_open(const test_owner *owner)
{
    kvx_cma_address address;
    cr_assert_eq(kvx_cma_address_unpack(
                         owner->offer.address.data, owner->offer.address.length, &address),
            KVX_OK);
    return address;
}

static blob address_close(const kvx_cma_address *address)
{
    blob packed;
    cr_assert_eq(kvx_cma_address_pack(address, packed.data, sizeof(packed.data), &packed.length),
            KVX_OK);
    return packed;
}

static test_owner *start(const owner_traits *traits)
{
    return owner_start(kvx_transport_find("cma"), traits);
}

Test(cma, an_owner_of_another_user_is_refused)
{
    need_root();
    test_owner *const owner = start(&(owner_traits){ 0 });
    become_nobody();
    expect_refusal(&owner->offer.address, "another user or group");
    owner_stop(owner);
}

Test(cma, a_reader_with_the_capability_reads_another_user)
{
    need_root();
    test_owner *const owner = start(&(owner_traits){ .uid = nobody });
    test_reader *const reader = reader_open(kvx_transport_find("cma"), NULL);
    char why[256] = "";
    kvx_ep *ep = NULL;
    cr_expect_eq(reader_connect(reader, &owner->offer.address, why, sizeof(why), &ep), KVX_OK, "%s",
            why);
    if (ep != NULL)
        cr_expect_eq(reader->ops->disconnect(ep), KVX_OK);
    reader_close(reader);
    owner_stop(owner);
}

Test(cma, what_the_kernel_forbids_is_refused_by_the_probe)
{
    need_root();
    test_owner *const owner = start(&(owner_traits){ .uid = nobody, .is_undumpable = true });
    become_nobody();
    expect_refusal(&owner->offer.address, "forbids");
    owner_stop(owner);
}

Test(cma, an_owner_in_another_pid_namespace_is_refused)
{
    need_root();
    test_owner *const owner = start(&(owner_traits){ .has_own_pid_namespace = true });
    expect_refusal(&owner->offer.address, "shareProcessNamespace");
    owner_stop(owner);
}

Test(cma, an_owner_in_another_user_namespace_is_refused)
{
    test_owner *const owner = start(&(owner_traits){ 0 });
    kvx_cma_address address = address_open(owner);
    address.process.user_namespace++;
    const blob packed = address_close(&address);
    expect_refusal(&packed, "user namespace");
    owner_stop(owner);
}

Test(cma, an_owner_on_another_host_is_refused)
{
    test_owner *const owner = start(&(owner_traits){ 0 });
    kvx_cma_address address = address_open(owner);
    address.process.boot_id[3] ^= 1;
    const blob packed = address_close(&address);
    expect_refusal(&packed, "another host");
    owner_stop(owner);
}

Test(cma, a_process_that_is_not_the_owner_is_refused)
{
    test_owner *const owner = start(&(owner_traits){ 0 });
    kvx_cma_address address = address_open(owner);
    address.nonce[7] ^= 1;
    blob packed = address_close(&address);
    expect_refusal(&packed, "another one");

    address = address_open(owner);
    address.nonce_at = 4096; /* nothing is mapped there */
    packed = address_close(&address);
    expect_refusal(&packed, "another one");

    address = address_open(owner);
    address.process.pid = INT32_MAX; /* above every possible number */
    packed = address_close(&address);
    expect_refusal(&packed, "ended");
    owner_stop(owner);
}

Test(cma, a_child_of_the_owner_is_not_the_owner)
{
    test_owner *const owner = start(&(owner_traits){ 0 });
    kvx_cma_address address = address_open(owner);
    cr_assert(owner_order(owner, ORDER_FORK));
    const pid_t child = (pid_t)owner->offer.status;
    cr_assert_gt(child, 0);
    address.process.pid = (uint64_t)child;
    const blob packed = address_close(&address);
    expect_refusal(&packed, "another one");
    (void)kill(child, SIGKILL);
    owner_stop(owner);
}

Test(cma, an_owner_that_became_another_program_is_lost)
{
    test_pair pair = pair_open(NULL);
    cr_assert_eq(pair_get(&pair, 0, 0, 0, 0, 4096), KVX_OK);
    reader_wait(pair.reader, 1);
    cr_expect_eq(pair.reader->status[0], KVX_OK);
    cr_expect_not(owner_order(pair.owner, ORDER_EXEC));
    for (uint64_t id = 1; id < 100; id++)
        cr_assert_eq(pair_get(&pair, id, 0, id * 4096, id * 4096, 4096), KVX_OK);
    reader_wait(pair.reader, 100);
    for (uint64_t id = 1; id < 100; id++)
        cr_expect_eq(pair.reader->status[id], KVX_PEER_LOST);
    pair_close(&pair);
}

/* The numbers stay, the memory behind them is another's: the nonce alone tells. */
Test(cma, bytes_of_a_process_with_another_nonce_never_count)
{
    test_pair pair = pair_open(NULL);
    pair.ep->peer.nonce[0] ^= 1;
    for (uint64_t id = 0; id < 10; id++)
        cr_assert_eq(pair_get(&pair, id, 0, 0, id * 4096, 4096), KVX_OK);
    reader_wait(pair.reader, 10);
    for (uint64_t id = 0; id < 10; id++)
        cr_expect_eq(pair.reader->status[id], KVX_PEER_LOST);
    pair_close(&pair);
}

/* The memory is still the owner's, the pidfd says that its process has ended. */
Test(cma, bytes_of_an_ended_process_never_count)
{
    test_pair pair = pair_open(NULL);
    test_owner *const other = start(&(owner_traits){ 0 });
    const kvx_cma_address address = address_open(other);
    test_reader *const reader = pair.reader;
    kvx_ep *ep = NULL;
    char why[256] = "";
    const blob packed = address_close(&address);
    cr_assert_eq(reader_connect(reader, &packed, why, sizeof(why), &ep), KVX_OK);
    owner_kill(other);
    cr_assert_eq(pair_get(&pair, 0, 0, 0, 0, 4096), KVX_OK);
    const int own_pidfd = pair.ep->pidfd;
    pair.ep->pidfd = ep->pidfd;
    reader_wait(reader, 1);
    cr_expect_eq(reader->status[0], KVX_PEER_LOST);
    pair.ep->pidfd = own_pidfd;
    cr_expect_eq(reader->ops->disconnect(ep), KVX_OK);
    owner_stop(other);
    pair_close(&pair);
}

/* As on a kernel without pidfd_open. */
Test(cma, a_process_can_be_held_by_its_stat_file)
{
    test_pair pair = pair_open(NULL);
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pair.owner->pid);
    cr_assert_eq(close(pair.ep->pidfd), 0);
    pair.ep->pidfd = -1;
    pair.ep->stat_fd = open(path, O_RDONLY | O_CLOEXEC);
    cr_assert_geq(pair.ep->stat_fd, 0);
    cr_assert_eq(pair_get(&pair, 0, 0, 0, 0, 4096), KVX_OK);
    reader_wait(pair.reader, 1);
    cr_expect_eq(pair.reader->status[0], KVX_OK);
    owner_kill(pair.owner);
    cr_expect_eq(kvx_cma_prove(pair.ep), KVX_CMA_GONE);
    cr_assert_eq(pair_get(&pair, 1, 0, 0, 0, 4096), KVX_OK);
    reader_wait(pair.reader, 2);
    cr_expect_eq(pair.reader->status[1], KVX_PEER_LOST);
    pair_close(&pair);
}

/* The memory can be read, the stat file is of a process that has ended but was not waited for. */
Test(cma, a_stat_file_of_an_ended_process_ends_the_endpoint)
{
    test_pair pair = pair_open(NULL);
    test_owner *const other = start(&(owner_traits){ 0 });
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)other->pid);
    cr_assert_eq(close(pair.ep->pidfd), 0);
    pair.ep->pidfd = -1;
    pair.ep->stat_fd = open(path, O_RDONLY | O_CLOEXEC);
    cr_expect_eq(kvx_cma_prove(pair.ep), KVX_CMA_PROVEN);
    owner_kill(other);
    cr_expect_eq(kvx_cma_prove(pair.ep), KVX_CMA_GONE, "a zombie has ended");
    owner_stop(other);
    cr_expect_eq(kvx_cma_prove(pair.ep), KVX_CMA_GONE, "its number is free again");
    pair_close(&pair);
}

/* One endpoint that fails must not hold up another, nor be held up by it. */
Test(cma, a_bad_read_ends_while_another_endpoint_is_busy)
{
    test_pair pair = pair_open(NULL);
    test_reader *const reader = pair.reader;
    const blob *const key = &pair.owner->offer.keys[0];
    kvx_ep *other = NULL;
    kvx_rkey *rkey = NULL;
    char why[256] = "";
    uint32_t taken;
    cr_assert_eq(reader_connect(reader, &pair.owner->offer.address, why, sizeof(why), &other),
            KVX_OK, "%s", why);
    cr_assert_eq(
            reader->ops->import_key(other, key->data, key->length, REGION_BYTES, &rkey), KVX_OK);
    for (uint64_t id = 0; id < 2; id++) {
        const kvx_segment segment = { (void *)(uintptr_t)4096, 64 };
        const kvx_read read = {
            .id = id, .rkey = rkey, .length_bytes = 64, .segments = &segment, .segment_count = 1
        };
        cr_assert_eq(reader->ops->get(other, &read, 1, &taken), KVX_OK);
    }
    for (uint64_t id = 2; id < 50; id++) {
        cr_assert_eq(pair_get(&pair, id, 0, 0, 0, 64), KVX_OK);
        (void)reader_progress(reader);
    }
    cr_expect_eq(reader->status[0], KVX_READ_FAILED);
    cr_expect_eq(reader->status[1], KVX_READ_FAILED);
    reader->ops->forget_key(rkey);
    cr_expect_eq(reader->ops->disconnect(other), KVX_OK);
    reader_drain(reader);
    pair_close(&pair);
}

Test(cma, a_page_that_is_gone_fails_its_own_read_only)
{
    test_pair pair = pair_open(NULL);
    test_reader *const reader = pair.reader;
    cr_assert(owner_order(pair.owner, ORDER_UNMAP));
    for (uint64_t id = 0; id < 40; id++)
        cr_assert_eq(pair_get(&pair, id, 0, id * 2048, id * 2048, 2048), KVX_OK);
    cr_assert_eq(pair_get(&pair, 40, 0, 4095, 40 * 2048, 2), KVX_OK);
    reader_wait(reader, 41);
    for (uint64_t id = 0; id < 40; id++) {
        const bool is_gone = id == 2 || id == 3;
        cr_expect_eq(
                reader->status[id], is_gone ? KVX_READ_FAILED : KVX_OK, "read %u", (unsigned)id);
        if (!is_gone)
            cr_expect(pattern_matches(0, id * 2048, reader->local + id * 2048, 2048));
    }
    cr_expect_eq(reader->status[40], KVX_READ_FAILED);
    pair_close(&pair);
}

Test(cma, a_local_address_that_is_not_mapped_fails_its_own_read_only)
{
    test_pair pair = pair_open(NULL);
    test_reader *const reader = pair.reader;
    const kvx_segment bad[] = {
        { (void *)(uintptr_t)4096, 64 },
        { (void *)(UINTPTR_MAX - 4095), 64 }, /* not even an address of a process */
    };
    uint32_t taken;
    for (uint64_t id = 0; id < 30; id++) {
        kvx_segment segment = { reader->local + id * 64, 64 };
        if (id == 10 || id == 20)
            segment = bad[id / 10 - 1];
        const kvx_read read = { .id = id,
            .rkey = pair.rkeys[0],
            .remote_off = id * 64,
            .length_bytes = 64,
            .segments = &segment,
            .segment_count = 1 };
        cr_assert_eq(reader->ops->get(pair.ep, &read, 1, &taken), KVX_OK);
    }
    reader_wait(reader, 30);
    for (uint64_t id = 0; id < 30; id++) {
        const bool is_bad = id == 10 || id == 20;
        cr_expect_eq(reader->status[id], is_bad ? KVX_READ_FAILED : KVX_OK, "read %u", (unsigned)id);
    }
    pair_close(&pair);
}

Test(cma, settings_out_of_range_are_refused_at_open)
{
    static const char *const rows[][3] = {
        { "call_bytes", "4095", NULL },
        { "call_bytes", "2GiB", NULL },
        { "call_bytes", "", NULL },
        { "call_bytes", "1MB", NULL },
        { "call_bytes", "99999999999999999999999", NULL },
        { "call_entries", "0", NULL },
        { "call_entries", "1024", NULL },
        { "call_entries", "-1", NULL },
    };
    const kvx_transport_ops *const ops = kvx_transport_find("cma");
    test_reader *const reader = reader_open(ops, NULL);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        kvx_domain_params params = reader->domain->params;
        kvx_domain *domain = NULL;
        reader->settings = rows[i];
        cr_expect_eq(ops->open(&params, &domain), KVX_INVALID, "row %zu", i);
    }
    reader_close(reader);
}
