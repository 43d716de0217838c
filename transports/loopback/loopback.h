/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the loopback transport: domains of one process, which copy from each other. */
#ifndef KVX_LOOPBACK_H
#define KVX_LOOPBACK_H

#include <stdbool.h>
#include <stdint.h>

#include "kvx/transport.h"

#include "transport/queue.h"

#define KVX_LOOPBACK_ADDRESS_MAGIC UINT32_C(0x616c786b) /* "kxla" */
#define KVX_LOOPBACK_KEY_MAGIC     UINT32_C(0x6b6c786b) /* "kxlk" */

/* Bounds of one progress call, about a millisecond. */
#define KVX_LOOPBACK_STEP_BYTES (UINT64_C(4) << 20)
#define KVX_LOOPBACK_STEP_READS 512

struct kvx_mr {
    kvx_domain *domain;
    uint64_t serial; /* never reused in this process: names the registration in keys */
    char *base;
    uint64_t length_bytes;
};

struct kvx_rkey {
    kvx_ep *ep;
    uint64_t serial;
    uint64_t length_bytes;
};

struct kvx_ep {
    kvx_domain *domain;
    uint64_t peer; /* identity of the remote domain */
    kvx_read_queue queue;
    bool is_proven;
    bool is_dead;
};

struct kvx_domain {
    kvx_domain_params params;
    kvx_read_pool pool;
    /* What ended in the present progress call, told after the registry's lock is given back. */
    struct {
        uint64_t id;
        kvx_status status;
    } ended[KVX_LOOPBACK_STEP_READS];
    uint32_t ended_count;
};

/* Registry of what is live in this process. Between begin and end nothing that was found can
 * go away: closing and unregistering wait for every reader, which is a progress call at most. */
kvx_status kvx_loopback_domain_add(kvx_domain *domain);
void kvx_loopback_domain_remove(kvx_domain *domain);
kvx_status kvx_loopback_mr_add(kvx_mr *mr);
void kvx_loopback_mr_remove(kvx_mr *mr);
void kvx_loopback_find_begin(void);
void kvx_loopback_find_end(void);
bool kvx_loopback_domain_is_live(uint64_t identity);
const kvx_mr *kvx_loopback_mr_find(uint64_t serial);
/* Random number of this process; 0 before the first domain. */
uint64_t kvx_loopback_process(void);

kvx_status kvx_loopback_address(kvx_domain *domain, void *buffer, size_t size, size_t *length_out);
kvx_status kvx_loopback_connect(kvx_domain *domain, const void *address, size_t length, char *why,
        size_t why_size, kvx_ep **ep_out);
kvx_status kvx_loopback_probe(kvx_ep *ep, char *why, size_t why_size, kvx_ep_info *info_out);
kvx_status kvx_loopback_disconnect(kvx_ep *ep);
kvx_status kvx_loopback_import_key(
        kvx_ep *ep, const void *key, size_t key_length, uint64_t length_bytes, kvx_rkey **rkey_out);
void kvx_loopback_forget_key(kvx_rkey *rkey);

#endif
