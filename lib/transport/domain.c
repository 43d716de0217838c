/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/domain.h"

#include "base/log.h"
#include "memory/memory.h"

static bool limits_are_sane(const kvx_domain_limits *limits)
{
    return limits->read_bytes_max > 0 && limits->segments_max > 0 &&
           limits->reads_in_flight_max > 0 && limits->memory_kinds != 0;
}

kvx_status kvx_domain_open(const kvx_transport_ops *ops, const kvx_domain_params *params,
        kvx_domain **domain_out, kvx_domain_limits *limits_out)
{
    KVX_ENSURE(params->struct_size == sizeof(*params), KVX_INVALID);
    KVX_ENSURE(params->completed != NULL && params->identity != 0, KVX_INVALID);
    KVX_ENSURE(params->authorize != NULL && params->served_end != NULL, KVX_INVALID);

    kvx_domain *domain;
    KVX_TRY(ops->open(params, &domain));
    kvx_domain_limits limits = { 0 };
    ops->query(domain, &limits);
    if (!limits_are_sane(&limits)) {
        kvx_log(KVX_LOG_ERROR, "transport %s: its limits are not usable", ops->name);
        ops->close(domain);
        return KVX_INVALID;
    }
    *domain_out = domain;
    *limits_out = limits;
    return KVX_OK;
}

kvx_status kvx_domain_reg(const kvx_transport_ops *ops, kvx_domain *domain, void *base,
        uint64_t length_bytes, kvx_memory_kind kind, kvx_mr **mr_out)
{
    kvx_domain_limits limits = { 0 };
    ops->query(domain, &limits);
    if ((unsigned)kind >= 64 || (limits.memory_kinds >> kind & 1) == 0) {
        kvx_log(KVX_LOG_ERROR, "transport %s: does not register %s memory", ops->name,
                kvx_memory_kind_name(kind));
        return KVX_UNSUPPORTED;
    }
    char why[160] = "";
    const kvx_status status = kvx_memory_check(kind, base, length_bytes, why, sizeof(why));
    if (status != KVX_OK) {
        kvx_log(KVX_LOG_ERROR, "transport %s: cannot register: %s", ops->name, why);
        return status;
    }
    return ops->reg(domain, base, length_bytes, kind, mr_out);
}

kvx_status kvx_read_check(const kvx_read *read, const kvx_domain_limits *limits)
{
    KVX_ENSURE(read->rkey != NULL && read->segments != NULL, KVX_INVALID);
    KVX_ENSURE(read->length_bytes > 0 && read->length_bytes <= limits->read_bytes_max, KVX_INVALID);
    KVX_ENSURE(read->segment_count > 0 && read->segment_count <= limits->segments_max, KVX_INVALID);

    uint64_t left = read->length_bytes;
    for (uint32_t i = 0; i < read->segment_count; i++) {
        const kvx_segment *segment = &read->segments[i];
        KVX_ENSURE(segment->base != NULL && segment->length_bytes > 0, KVX_INVALID);
        KVX_ENSURE(segment->length_bytes <= left, KVX_INVALID);
        left -= segment->length_bytes;
    }
    return left == 0 ? KVX_OK : KVX_INVALID;
}

kvx_status kvx_domain_get(const kvx_transport_ops *ops, const kvx_domain_limits *limits, kvx_ep *ep,
        const kvx_read *reads, uint32_t count, uint32_t *taken_out)
{
    uint32_t good = 0;
    while (good < count && kvx_read_check(&reads[good], limits) == KVX_OK)
        good++;
    if (good == 0) {
        kvx_log(KVX_LOG_ERROR, "transport %s: a read is malformed", ops->name);
        return KVX_INVALID;
    }
    return ops->get(ep, reads, good, taken_out);
}
