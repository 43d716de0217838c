/* SPDX-License-Identifier: Apache-2.0 */
/* Loopback domains live on threads of their own: an owner that closes while a reader copies
 * from it waits for the reader, who then sees it gone and never its freed memory. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvx/transport.h"

#define ROUNDS       200
#define REGION_BYTES 65536
#define READS        64

typedef struct offer {
    uint8_t address[KVX_BLOB_MAX];
    size_t address_length;
    uint8_t key[KVX_BLOB_MAX];
    size_t key_length;
} offer;

static const kvx_transport_ops *ops;
static offer shared;
static pthread_barrier_t barrier;
static _Atomic int failures;

static void expect(int is_true, const char *what)
{
    if (is_true)
        return;
    (void)fprintf(stderr, "not so: %s\n", what);
    atomic_fetch_add(&failures, 1);
}

static void completed(void *arg, uint64_t id, kvx_status status)
{
    int *const counts = arg;
    (void)id;
    counts[status == KVX_OK ? 0 : 1]++;
    expect(status == KVX_OK || status == KVX_PEER_LOST || status == KVX_READ_FAILED,
            "a read succeeds or its peer is lost");
}

static kvx_domain *domain_open(uint64_t identity, void *arg)
{
    const kvx_domain_params params = {
        .struct_size = sizeof(params),
        .identity = identity,
        .completed = completed,
        .arg = arg,
    };
    kvx_domain *domain = NULL;
    expect(ops->open(&params, &domain) == KVX_OK, "a domain opens");
    return domain;
}

static void *owner_run(void *arg)
{
    (void)arg;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        kvx_domain *const domain = domain_open(1000 + round, NULL);
        char *const memory = malloc(REGION_BYTES);
        kvx_mr *mr;
        memset(memory, 'k', REGION_BYTES);
        expect(ops->reg(domain, memory, REGION_BYTES, KVX_MEMORY_HOST, &mr) == KVX_OK,
                "memory registers");
        expect(ops->address(domain, shared.address, sizeof(shared.address),
                       &shared.address_length) == KVX_OK,
                "a domain has an address");
        expect(ops->pack_key(mr, shared.key, sizeof(shared.key), &shared.key_length) == KVX_OK,
                "memory has a key");
        (void)pthread_barrier_wait(&barrier); /* the offer is out */
        (void)pthread_barrier_wait(&barrier); /* the reader has posted */
        ops->unreg(mr);
        memset(memory, 'x', REGION_BYTES);
        free(memory);
        ops->close(domain);
    }
    return NULL;
}

static void read_all(kvx_domain *domain, kvx_ep *ep, char *target)
{
    kvx_rkey *rkey = NULL;
    const kvx_segment segment = { target, REGION_BYTES };
    kvx_read read = { .length_bytes = REGION_BYTES, .segments = &segment, .segment_count = 1 };
    uint32_t taken;
    expect(ops->import_key(ep, shared.key, shared.key_length, REGION_BYTES, &rkey) == KVX_OK,
            "a key is imported");
    read.rkey = rkey;
    for (read.id = 0; read.id < READS; read.id++)
        expect(ops->get(ep, &read, 1, &taken) == KVX_OK, "a read is taken");
    (void)pthread_barrier_wait(&barrier);
    while (ops->progress(domain))
        continue;
    ops->forget_key(rkey);
}

static void reader_run(void)
{
    int counts[2] = { 0 };
    kvx_domain *const domain = domain_open(1, counts);
    char *const target = calloc(1, REGION_BYTES);
    for (int round = 0; round < ROUNDS; round++) {
        kvx_ep *ep = NULL;
        kvx_ep_info info;
        char why[128];
        (void)pthread_barrier_wait(&barrier);
        expect(ops->connect(domain, shared.address, shared.address_length, why, sizeof(why), &ep) ==
                                KVX_OK &&
                        ops->probe(ep, why, sizeof(why), &info) == KVX_OK,
                "a live domain is reached");
        read_all(domain, ep, target);
        expect(memchr(target, 'x', REGION_BYTES) == NULL, "no byte of freed memory");
        expect(ops->disconnect(ep) == KVX_OK, "an endpoint ends");
    }
    expect(counts[0] + counts[1] == ROUNDS * READS, "every read completes once");
    (void)printf("%d reads in place, %d lost\n", counts[0], counts[1]);
    free(target);
    ops->close(domain);
}

int main(void)
{
    pthread_t owner;
    ops = kvx_transport_find("loopback");
    if (ops == NULL)
        return 77; /* skipped: not built */
    if (pthread_barrier_init(&barrier, NULL, 2) != 0 ||
            pthread_create(&owner, NULL, owner_run, NULL) != 0)
        return 1;
    reader_run();
    (void)pthread_join(owner, NULL);
    (void)pthread_barrier_destroy(&barrier);
    return atomic_load(&failures) == 0 ? 0 : 1;
}
