/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/message.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Where the sentence goes. */
typedef struct reason {
    char *text;
    size_t size;
} reason;

static kvx_status differ(const reason *why, const char *format, ...) KVX_PRINTF(2, 3);
static kvx_status differ(const reason *why, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    if (why->text != NULL && why->size > 0)
        (void)vsnprintf(why->text, why->size, format, args);
    va_end(args);
    return KVX_MISMATCH;
}

static kvx_status version_match(const kvx_hello *ours, const kvx_hello *theirs, const reason *why)
{
    if (theirs->version_min > ours->version_max || theirs->version_max < ours->version_min)
        return differ(why,
                "protocol version: ours %u-%u, theirs %u-%u; run the same release on both sides",
                ours->version_min, ours->version_max, theirs->version_min, theirs->version_max);
    if (theirs->auth_kind != 0)
        return differ(why,
                "authentication kind %u is not supported: ours 0, theirs %u; switch it off on "
                "the other side",
                theirs->auth_kind, theirs->auth_kind);
    return KVX_OK;
}

static kvx_status rank_match(
        const kvx_hello *ours, const kvx_hello *theirs, bool wanted_here, const reason *why)
{
    if (theirs->ranks != ours->ranks)
        return differ(why, "ranks: ours %u, theirs %u; give both sides the same group size",
                ours->ranks, theirs->ranks);
    if (wanted_here && theirs->rank_wanted != ours->rank)
        return differ(why, "rank: ours %u, theirs wants %u; connect to the address of rank %u",
                ours->rank, theirs->rank_wanted, theirs->rank_wanted);
    if (!wanted_here && theirs->rank != ours->rank_wanted)
        return differ(why, "rank: ours wants %u, theirs %u; connect to the address of rank %u",
                ours->rank_wanted, theirs->rank, ours->rank_wanted);
    if (strcmp(ours->compat, theirs->compat) != 0)
        return differ(why,
                "compat: ours \"%s\", theirs \"%s\"; use the same model, revision and dtype",
                ours->compat, theirs->compat);
    return KVX_OK;
}

static kvx_status component_match(const kvx_hello_component *ours,
        const kvx_hello_component *theirs, uint32_t index, const reason *why)
{
    if (strcmp(ours->name, theirs->name) != 0)
        return differ(why,
                "name of component %u: ours %s, theirs %s; list the same components in the same "
                "order",
                index, ours->name, theirs->name);
    if (ours->page_tokens != theirs->page_tokens)
        return differ(why,
                "page_tokens of component %s: ours %u, theirs %u; set the same page size on both "
                "sides",
                ours->name, ours->page_tokens, theirs->page_tokens);
    if (strcmp(ours->axis, theirs->axis) != 0)
        return differ(why,
                "axis of component %s: ours \"%s\", theirs \"%s\"; use the same attention "
                "backend and cache layout",
                ours->name, ours->axis, theirs->axis);
    return KVX_OK;
}

static kvx_status components_match(const kvx_hello *ours, const kvx_hello *theirs, const reason *why)
{
    if (ours->component_count != theirs->component_count)
        return differ(why, "components: ours %u, theirs %u; list the same components",
                ours->component_count, theirs->component_count);
    for (uint32_t i = 0; i < ours->component_count; i++)
        KVX_TRY(component_match(&ours->components[i], &theirs->components[i], i, why));
    return KVX_OK;
}

static kvx_status region_match(
        const kvx_hello *ours, const kvx_hello *theirs, uint32_t index, const reason *why)
{
    const kvx_hello_region *a = &ours->regions[index];
    const kvx_hello_region *b = &theirs->regions[index];

    if (a->component != b->component || a->layer != b->layer || strcmp(a->role, b->role) != 0)
        return differ(why,
                "region %u: ours %s of layer %u in component %s, theirs %s of layer %u in "
                "component %s; list the same regions in the same order",
                index, a->role, a->layer, ours->components[a->component].name, b->role, b->layer,
                theirs->components[b->component].name);
    if (a->page_bytes != b->page_bytes)
        return differ(why,
                "page_bytes of region %u (%s, layer %u): ours %llu, theirs %llu; use the same "
                "dtype, heads and page size",
                index, a->role, a->layer, (unsigned long long)a->page_bytes,
                (unsigned long long)b->page_bytes);
    return KVX_OK;
}

static kvx_status regions_match(const kvx_hello *ours, const kvx_hello *theirs, const reason *why)
{
    if (ours->region_count != theirs->region_count)
        return differ(why, "regions: ours %u, theirs %u; load the same model and layers",
                ours->region_count, theirs->region_count);
    for (uint32_t i = 0; i < ours->region_count; i++)
        KVX_TRY(region_match(ours, theirs, i, why));
    return KVX_OK;
}

static bool has_transport(const kvx_hello *hello, const char *transport)
{
    for (uint32_t i = 0; i < hello->path_count; i++)
        if (strcmp(hello->paths[i].transport, transport) == 0)
            return true;
    return false;
}

/* The transports of a hello, one after the other, as far as they fit. */
static void transports_list(const kvx_hello *hello, char *text, size_t size)
{
    size_t at = 0;

    (void)snprintf(text, size, "none");
    for (uint32_t i = 0; i < hello->path_count && at < size; i++) {
        const int length =
                snprintf(text + at, size - at, "%s%s", i > 0 ? " " : "", hello->paths[i].transport);
        at += length > 0 ? (size_t)length : 0;
    }
}

static kvx_status paths_match(const kvx_hello *ours, const kvx_hello *theirs, const reason *why)
{
    char mine[KVX_NAME_MAX * KVX_PATH_MAX];
    char other[KVX_NAME_MAX * KVX_PATH_MAX];

    for (uint32_t i = 0; i < theirs->path_count; i++)
        if (has_transport(ours, theirs->paths[i].transport))
            return KVX_OK;
    transports_list(ours, mine, sizeof(mine));
    transports_list(theirs, other, sizeof(other));
    return differ(why, "transport: ours %s, theirs %s; set one that both sides have", mine, other);
}

kvx_status kvx_hello_match(const kvx_hello *ours, const kvx_hello *theirs, bool wanted_here,
        char *why, size_t why_size)
{
    reason sentence = { 0 };

    sentence.text = why;
    sentence.size = why_size;
    KVX_TRY(version_match(ours, theirs, &sentence));
    KVX_TRY(rank_match(ours, theirs, wanted_here, &sentence));
    KVX_TRY(components_match(ours, theirs, &sentence));
    KVX_TRY(regions_match(ours, theirs, &sentence));
    return paths_match(ours, theirs, &sentence);
}
