/* SPDX-License-Identifier: Apache-2.0 */
/* What is checked once, around every transport, so that each gets clean input. */
#ifndef KVX_TRANSPORT_DOMAIN_H
#define KVX_TRANSPORT_DOMAIN_H

#include "base/check.h"
#include "kvx/transport.h"

/* Open and query. KVX_INVALID: params are unusable, or the transport's limits are nonsense. */
KVX_CHECKED kvx_status kvx_domain_open(const kvx_transport_ops *ops,
        const kvx_domain_params *params, kvx_domain **domain_out, kvx_domain_limits *limits_out);

/* Register memory of a kind that the domain takes and that may be registered.
 * KVX_UNSUPPORTED, KVX_INVALID: the reason was logged. */
KVX_CHECKED kvx_status kvx_domain_reg(const kvx_transport_ops *ops, kvx_domain *domain, void *base,
        uint64_t length_bytes, kvx_memory_kind kind, kvx_mr **mr_out);

/* Is a read well formed for a domain with these limits? Says nothing of the remote range, which
 * the transport checks. Cost: O(segments). */
KVX_CHECKED kvx_status kvx_read_check(const kvx_read *read, const kvx_domain_limits *limits);

/* ops->get() for those reads before the first malformed one; KVX_INVALID when that is the
 * first. Cost: O(segments) of all count reads. */
KVX_CHECKED kvx_status kvx_domain_get(const kvx_transport_ops *ops, const kvx_domain_limits *limits,
        kvx_ep *ep, const kvx_read *reads, uint32_t count, uint32_t *taken_out);

#endif
