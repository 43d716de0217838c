/* SPDX-License-Identifier: Apache-2.0 */
/* Verification beside the event loop: a few threads compare pulled requests with what they must
 * hold, so that checking does not delay pulling. */
#ifndef PAIR_VERIFY_H
#define PAIR_VERIFY_H

#include <stdbool.h>
#include <stdint.h>

#include "pair/store.h"

typedef struct page_verifier page_verifier;

/* One request; lives in the caller's memory until it comes back. */
typedef struct verify_job {
    const trace_request *request;
    const cache_table *table;
    store_mismatch found; /* the result */
    struct verify_job *next;
} verify_job;

/* NULL: out of memory or threads. */
page_verifier *verifier_start(const kv_store *store);

void verifier_give(page_verifier *verifier, verify_job *job);

/* A finished job, or NULL. */
verify_job *verifier_take(page_verifier *verifier);

/* End the threads; what they have not finished is dropped. */
void verifier_stop(page_verifier **verifier);

#endif
