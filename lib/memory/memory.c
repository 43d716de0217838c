/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/memory.h"

#include <stdio.h>

/* Special kinds first: host memory takes whatever no other provider knows. */
static const kvx_memory_provider *const providers[] = {
    &kvx_memory_host,
};

#define PROVIDER_COUNT (sizeof(providers) / sizeof(providers[0]))

const char *kvx_memory_kind_name(kvx_memory_kind kind)
{
    switch (kind) {
    case KVX_MEMORY_HOST: return "host";
    case KVX_MEMORY_ROCM: return "rocm";
    }
    return "unknown";
}

const kvx_memory_provider *kvx_memory_find(kvx_memory_kind kind)
{
    for (size_t i = 0; i < PROVIDER_COUNT; i++) {
        if (providers[i]->kind == kind)
            return providers[i];
    }
    return NULL;
}

kvx_memory_kind kvx_memory_classify(const void *pointer)
{
    for (size_t i = 0; i < PROVIDER_COUNT; i++) {
        if (providers[i]->owns(pointer))
            return providers[i]->kind;
    }
    return KVX_MEMORY_HOST;
}

kvx_status kvx_memory_check(
        kvx_memory_kind kind, const void *base, uint64_t length_bytes, char *why, size_t why_size)
{
    const kvx_memory_provider *provider = kvx_memory_find(kind);
    if (provider == NULL) {
        (void)snprintf(why, why_size, "memory of kind %s is not available in this version",
                kvx_memory_kind_name(kind));
        return KVX_UNSUPPORTED;
    }
    KVX_TRY(provider->probe(why, why_size));

    const kvx_memory_kind found = kvx_memory_classify(base);
    if (found != kind) {
        (void)snprintf(why, why_size, "the range at %p is %s memory, not %s", base,
                kvx_memory_kind_name(found), kvx_memory_kind_name(kind));
        return KVX_INVALID;
    }
    return provider->check(base, length_bytes, why, why_size);
}
