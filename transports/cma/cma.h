/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the cma transport: process_vm_readv between processes of one Linux host.
 *
 * A process number may come to mean another process, and a process may become another program.
 * So a domain keeps a random nonce in its memory, its address says where and what it is, and
 * every call reads it too, last, and then asks the pidfd whether the process still lives. The
 * kernel looks up the process's memory once per call: the nonce proves whose memory it was. */
#ifndef KVX_CMA_H
#define KVX_CMA_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "kvx/transport.h"

#include "transport/queue.h"

#define KVX_CMA_ADDRESS_MAGIC UINT32_C(0x616d636b) /* "kcma" */
#define KVX_CMA_KEY_MAGIC     UINT32_C(0x6b6d636b) /* "kcmk" */
#define KVX_CMA_NONCE_BYTES   16
#define KVX_CMA_BOOT_ID_BYTES 36
/* The kernel takes 1024 entries a side; one of them is the nonce. */
#define KVX_CMA_ENTRIES_MAX 1023

/* Where a process is and who may read it. */
typedef struct kvx_cma_process {
    uint64_t pid;
    uint64_t pid_namespace;  /* inode */
    uint64_t user_namespace; /* inode */
    uint64_t uid;
    uint64_t gid;
    uint8_t boot_id[KVX_CMA_BOOT_ID_BYTES];
} kvx_cma_process;

typedef struct kvx_cma_address {
    uint64_t identity;
    kvx_cma_process process;
    uint64_t nonce_at; /* address in that process */
    uint8_t nonce[KVX_CMA_NONCE_BYTES];
} kvx_cma_address;

struct kvx_mr {
    kvx_domain *domain;
    uint64_t base;
    uint64_t length_bytes;
};

struct kvx_rkey {
    kvx_ep *ep;
    uint64_t base; /* address in the peer's process */
    uint64_t length_bytes;
};

struct kvx_ep {
    kvx_domain *domain;
    kvx_cma_address peer;
    int pidfd;   /* -1: the kernel has none (before 5.3) */
    int stat_fd; /* then /proc/PID/stat, open; else -1 */
    kvx_read_queue queue;
    bool is_proven;
    bool is_dead;
    bool is_cautious; /* the next call takes one read: the one before failed as a whole */
};

/* One process_vm_readv in the making. */
typedef struct kvx_cma_call {
    struct iovec local[KVX_CMA_ENTRIES_MAX + 1];
    struct iovec remote[KVX_CMA_ENTRIES_MAX + 1];
    uint32_t local_count;
    uint32_t remote_count;
    uint32_t read_count; /* reads that it takes bytes of */
    uint64_t length_bytes;
} kvx_cma_call;

struct kvx_domain {
    kvx_domain_params params;
    uint32_t call_entries; /* most entries of a call on each side, without the nonce */
    uint64_t call_bytes;   /* most bytes of a call */
    kvx_cma_address self;
    uint8_t *nonce; /* a page of its own, that no child of this process inherits */
    kvx_read_pool pool;
    kvx_cma_call call;
};

/* How a call that moves or proves bytes ended. */
typedef enum kvx_cma_outcome {
    KVX_CMA_PROVEN,     /* the bytes counted are in place and are the peer's */
    KVX_CMA_BAD_MEMORY, /* the peer is proven, the first byte cannot be read or written */
    KVX_CMA_FORBIDDEN,  /* the kernel does not let us */
    KVX_CMA_OTHER,      /* another process, or the domain has closed */
    KVX_CMA_GONE,       /* the process has ended */
} kvx_cma_outcome;

/* Do a call. bytes_out counts the leading bytes in place, set on KVX_CMA_PROVEN only. */
kvx_cma_outcome kvx_cma_call_run(const kvx_ep *ep, kvx_cma_call *call, uint64_t *bytes_out);
/* Read the nonce alone. */
kvx_cma_outcome kvx_cma_prove(const kvx_ep *ep);

/* Facts of this process. KVX_UNSUPPORTED: /proc does not tell (logged). */
kvx_status kvx_cma_process_read(kvx_cma_process *process_out);
/* A reason why one process will not read another, with the remedy; NULL: none known. */
const char *kvx_cma_refusal(const kvx_cma_process *reader, const kvx_cma_process *owner);
/* What to do where the kernel forbids what kvx_cma_refusal() saw no reason against. */
const char *kvx_cma_forbidden_reason(void);

kvx_status kvx_cma_address_pack(
        const kvx_cma_address *address, void *buffer, size_t size, size_t *length_out);
kvx_status kvx_cma_address_unpack(const void *data, size_t length, kvx_cma_address *address_out);

kvx_status kvx_cma_connect(kvx_domain *domain, const void *address, size_t length, char *why,
        size_t why_size, kvx_ep **ep_out);
kvx_status kvx_cma_probe(kvx_ep *ep, char *why, size_t why_size, kvx_ep_info *info_out);
kvx_status kvx_cma_disconnect(kvx_ep *ep);
kvx_status kvx_cma_import_key(
        kvx_ep *ep, const void *key, size_t key_length, uint64_t length_bytes, kvx_rkey **rkey_out);
void kvx_cma_forget_key(kvx_rkey *rkey);

kvx_status kvx_cma_get(kvx_ep *ep, const kvx_read *reads, uint32_t count, uint32_t *taken_out);
bool kvx_cma_progress(kvx_domain *domain);

#endif
