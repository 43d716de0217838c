/* SPDX-License-Identifier: Apache-2.0 */
/* A transport in memory that does what a test tells it: reads that take their time, fail or
 * stall, gets that take few reads, probes that wait, closes that take long or hang. It checks how
 * it is used, and an endpoint that is closed writes once more for every read under way before the
 * close completes, as a real one may. */
#ifndef KVX_TEST_SCRIPTED_TRANSPORT_H
#define KVX_TEST_SCRIPTED_TRANSPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "kvx/transport.h"

#define SCRIPTED_FOR_EVER UINT32_MAX

typedef struct scripted_key {
    const uint8_t *base;
    uint64_t length_bytes;
} scripted_key;

/* What to do from now on; may be changed at any time. */
typedef struct transport_script {
    uint32_t take_max;   /* reads taken of one get() */
    uint32_t get_again;  /* so many of the next get() say KVX_AGAIN */
    kvx_status get_fail; /* not KVX_OK: the next get() says so */
    uint32_t delay_max;  /* a read ends after 1 ... delay_max calls of progress() */
    bool is_stalled;     /* no read ends */
    uint64_t fail_at; /* the read of this number (1: the first ever taken) ends with fail_status */
    kvx_status fail_status;
    kvx_status connect_status;
    uint32_t probe_again; /* so many of the next probe() say KVX_AGAIN, then probe_status */
    kvx_status probe_status;
    kvx_status import_status;
    uint32_t close_again; /* so many of the next disconnect() say KVX_AGAIN */
} transport_script;

struct kvx_domain;

/* Both functions get arg. wrote: before each write to local memory. */
typedef struct scripted_params {
    kvx_domain_limits limits;
    uint64_t seed;
    void (*completed)(void *arg, uint64_t id, kvx_status status);
    void (*wrote)(void *arg, const void *base, uint64_t length_bytes);
    void *arg;
} scripted_params;

kvx_domain *scripted_create(const scripted_params *params);
/* Nothing may be open. */
void scripted_destroy(kvx_domain *domain);
transport_script *scripted_script(kvx_domain *domain);
const kvx_transport_ops *scripted_ops(void);

uint32_t scripted_pending(const kvx_domain *domain); /* reads taken and not ended */
uint64_t scripted_pending_bytes(const kvx_domain *domain);
uint64_t scripted_taken(const kvx_domain *domain);     /* reads ever taken */
uint32_t scripted_connects(const kvx_domain *domain);  /* endpoints ever made */
uint32_t scripted_endpoints(const kvx_domain *domain); /* now */
uint32_t scripted_keys(const kvx_domain *domain);      /* now */
uint64_t scripted_last_id(const kvx_domain *domain);   /* of the read taken last */

#endif
