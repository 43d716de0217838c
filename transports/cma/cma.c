/* SPDX-License-Identifier: Apache-2.0 */
/* Cma: processes of one Linux host read each other's host memory by process_vm_readv.
 * The one symbol seen outside this folder is kvx_transport_cma. */
#include "cma/cma.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "base/random.h"
#include "transport/key.h"
#include "transport/setting.h"

#define READS_MAX      8192
#define SEGMENTS_TOTAL 32768
#define SEGMENTS_MAX   1024
#define READ_BYTES_MAX (UINT64_C(1) << 30)

extern const kvx_transport_ops kvx_transport_cma;

/* Measured on scattered 4 KiB pages: past 256 entries a call costs the same per page, and 512
 * of them take about 0.7 ms, as do 4 MiB at 5 GB/s. More would only make calls longer. */
static const struct kvx_transport_setting cma_settings[] = {
    { "call_bytes", "4MiB", "most bytes of one process_vm_readv, 4KiB to 1GiB", 4096,
            UINT64_C(1) << 30 },
    { "call_entries", "512", "most ranges on each side of one process_vm_readv, 1 to 1023", 1,
            KVX_CMA_ENTRIES_MAX },
    { NULL, NULL, NULL, 0, 0 },
};

/* Zeroed before it goes, so that nobody takes what comes to lie there for this domain. */
static void nonce_destroy(kvx_domain *domain)
{
    if (domain->nonce == NULL)
        return;
    explicit_bzero(domain->nonce, KVX_CMA_NONCE_BYTES);
    (void)munmap(domain->nonce, (size_t)sysconf(_SC_PAGESIZE));
    domain->nonce = NULL;
}

/* A child would inherit the nonce and, once its parent has ended, could come by its process
 * number. The kernel clears the page for it. */
static kvx_status nonce_map(kvx_domain *domain)
{
    const size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    void *const page = mmap(NULL, page_bytes, PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    KVX_ENSURE(page != MAP_FAILED, KVX_NO_MEMORY);
    domain->nonce = page;
    if (madvise(page, page_bytes, MADV_WIPEONFORK) != 0) {
        kvx_log(KVX_LOG_ERROR, "cma: this kernel cannot keep memory from a child (4.14 can)");
        return KVX_UNSUPPORTED;
    }
    return KVX_OK;
}

static kvx_status nonce_create(kvx_domain *domain)
{
    uint64_t random[KVX_CMA_NONCE_BYTES / sizeof(uint64_t)];
    for (size_t i = 0; i < sizeof(random) / sizeof(random[0]); i++)
        KVX_TRY(kvx_random(&random[i]));
    KVX_TRY(nonce_map(domain));
    memcpy(domain->nonce, random, sizeof(random));
    memcpy(domain->self.nonce, random, sizeof(random));
    domain->self.nonce_at = (uintptr_t)domain->nonce;
    return KVX_OK;
}

static kvx_status settings_read(kvx_domain *domain)
{
    uint64_t entries;
    KVX_TRY(kvx_setting_number(
            &kvx_transport_cma, &domain->params, "call_bytes", &domain->call_bytes));
    KVX_TRY(kvx_setting_number(&kvx_transport_cma, &domain->params, "call_entries", &entries));
    domain->call_entries = (uint32_t)entries;
    return KVX_OK;
}

/* Reading itself is always permitted, so a failure says that the calls are not there. */
static kvx_status self_test(kvx_domain *domain)
{
    uint8_t address[KVX_BLOB_MAX];
    char why[200] = "";
    size_t length;
    kvx_ep *ep;
    kvx_ep_info info;
    KVX_TRY(kvx_cma_address_pack(&domain->self, address, sizeof(address), &length));
    kvx_status status = kvx_cma_connect(domain, address, length, why, sizeof(why), &ep);
    if (status == KVX_OK) {
        status = kvx_cma_probe(ep, why, sizeof(why), &info);
        (void)kvx_cma_disconnect(ep);
    }
    if (status != KVX_UNREACHABLE)
        return status;
    kvx_log(KVX_LOG_ERROR,
            "cma: process_vm_readv or pidfd_open does not work here (is it let through by the "
            "container's seccomp filter?)");
    return KVX_UNSUPPORTED;
}

static void cma_close(kvx_domain *domain)
{
    if (domain == NULL)
        return;
    nonce_destroy(domain);
    kvx_read_pool_fini(&domain->pool);
    free(domain);
}

static kvx_status domain_init(kvx_domain *domain)
{
    domain->self.identity = domain->params.identity;
    KVX_TRY(settings_read(domain));
    KVX_TRY(kvx_cma_process_read(&domain->self.process));
    KVX_TRY(kvx_read_pool_init(&domain->pool, READS_MAX, SEGMENTS_TOTAL));
    KVX_TRY(nonce_create(domain));
    return self_test(domain);
}

static kvx_status cma_open(const kvx_domain_params *params, kvx_domain **domain_out)
{
    kvx_domain *domain = calloc(1, sizeof(*domain));
    KVX_ENSURE(domain != NULL, KVX_NO_MEMORY);
    domain->params = *params;

    const kvx_status status = domain_init(domain);
    if (status != KVX_OK)
        goto fail;

    *domain_out = domain;
    return KVX_OK;

fail:
    cma_close(domain);
    return status;
}

static void cma_query(const kvx_domain *domain, kvx_domain_limits *limits_out)
{
    (void)domain;
    *limits_out = (kvx_domain_limits){
        .read_bytes_max = READ_BYTES_MAX,
        .segments_max = SEGMENTS_MAX,
        .reads_in_flight_max = READS_MAX,
        .memory_kinds = UINT64_C(1) << KVX_MEMORY_HOST,
        .same_process_only = false,
        .same_host_only = true,
    };
}

static kvx_status cma_address(kvx_domain *domain, void *buffer, size_t size, size_t *length_out)
{
    return kvx_cma_address_pack(&domain->self, buffer, size, length_out);
}

static kvx_status cma_reg(kvx_domain *domain, void *base, uint64_t length_bytes,
        kvx_memory_kind kind, kvx_mr **mr_out)
{
    uint64_t end;
    KVX_ENSURE(kind == KVX_MEMORY_HOST, KVX_UNSUPPORTED);
    KVX_ENSURE(base != NULL && length_bytes > 0, KVX_INVALID);
    KVX_ENSURE(!__builtin_add_overflow((uintptr_t)base, length_bytes, &end), KVX_INVALID);

    kvx_mr *mr = calloc(1, sizeof(*mr));
    KVX_ENSURE(mr != NULL, KVX_NO_MEMORY);
    *mr = (kvx_mr){ .domain = domain, .base = (uintptr_t)base, .length_bytes = length_bytes };
    *mr_out = mr;
    return KVX_OK;
}

/* The kernel knows nothing of registrations: a range stays readable after this. */
static void cma_unreg(kvx_mr *mr)
{
    free(mr);
}

static kvx_status cma_pack_key(kvx_mr *mr, void *buffer, size_t size, size_t *length_out)
{
    const kvx_key key = {
        .identity = mr->domain->params.identity,
        .handle = mr->base,
        .length_bytes = mr->length_bytes,
    };
    return kvx_key_pack(&key, KVX_CMA_KEY_MAGIC, buffer, size, length_out);
}

/* Whoever has reads in flight progresses without waiting, so nothing ever needs waking. */
static int cma_event_fd(kvx_domain *domain)
{
    (void)domain;
    return -1;
}

static kvx_status cma_arm(kvx_domain *domain)
{
    return kvx_read_pool_is_idle(&domain->pool) ? KVX_OK : KVX_AGAIN;
}

const kvx_transport_ops kvx_transport_cma = {
    .size = sizeof(kvx_transport_ops),
    .name = "cma",
    .help = "between processes of one Linux host, by process_vm_readv",
    .settings = cma_settings,
    .open = cma_open,
    .close = cma_close,
    .query = cma_query,
    .address = cma_address,
    .connect = kvx_cma_connect,
    .probe = kvx_cma_probe,
    .disconnect = kvx_cma_disconnect,
    .reg = cma_reg,
    .unreg = cma_unreg,
    .pack_key = cma_pack_key,
    .import_key = kvx_cma_import_key,
    .forget_key = kvx_cma_forget_key,
    .get = kvx_cma_get,
    .progress = kvx_cma_progress,
    .event_fd = cma_event_fd,
    .arm = cma_arm,
};
