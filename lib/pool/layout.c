/* SPDX-License-Identifier: Apache-2.0 */
#include "kvx/layout.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "pool/pool.h"
#include "pool/text.h"

/* Where the sentence goes. */
typedef struct reason {
    char *text;
    size_t size;
} reason;

static kvx_status refuse(const reason *why, const char *format, ...) KVX_PRINTF(2, 3);
static kvx_status refuse(const reason *why, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    if (why->text != NULL && why->size > 0)
        (void)vsnprintf(why->text, why->size, format, args);
    va_end(args);
    return KVX_INVALID;
}

static uint64_t stride_of(const kvx_region *region)
{
    return region->page_stride != 0 ? region->page_stride : region->page_bytes;
}

uint64_t kvx_region_span(const kvx_region *region, uint32_t page_count)
{
    if (page_count == 0)
        return 0;
    return stride_of(region) * (page_count - 1) + region->page_bytes;
}

static uintptr_t start_of(const kvx_region *region)
{
    return (uintptr_t)region->base;
}

/* Past the last byte; region_check() made sure that it does not overflow. */
static uintptr_t end_of(const kvx_layout *layout, const kvx_region *region)
{
    const uint32_t pages = layout->components[region->component].page_count;

    return start_of(region) + (uintptr_t)kvx_region_span(region, pages);
}

static kvx_status component_check(const kvx_layout *layout, uint32_t index, const reason *why)
{
    const kvx_component *component = &layout->components[index];

    if (!kvx_text_is_name(component->name, KVX_NAME_MAX))
        return refuse(why, "component %u: its name is missing, over %d bytes or not text", index,
                KVX_NAME_MAX - 1);
    if (!kvx_text_is_name(component->axis, KVX_NAME_MAX))
        return refuse(why,
                "component %u (%s): its axis tag is missing, over %d bytes or not text; say how "
                "heads and tokens lie in a page, like \"token,latent\"",
                index, component->name, KVX_NAME_MAX - 1);
    if (component->page_count == 0)
        return refuse(why, "component %u (%s): page_count is 0", index, component->name);
    for (uint32_t i = 0; i < index; i++)
        if (strcmp(layout->components[i].name, component->name) == 0)
            return refuse(why, "component %u (%s): component %u has the same name", index,
                    component->name, i);
    return KVX_OK;
}

static kvx_status size_check(const kvx_layout *layout, uint32_t index, const reason *why)
{
    const kvx_region *region = &layout->regions[index];
    const uint32_t pages = layout->components[region->component].page_count;
    uint64_t bytes = 0;
    uintptr_t end = 0;

    if (region->page_bytes == 0)
        return refuse(why, "region %u (%s, layer %u): page_bytes is 0", index, region->role,
                region->layer);
    if (stride_of(region) < region->page_bytes)
        return refuse(why, "region %u (%s, layer %u): page_stride %llu is less than page_bytes %llu",
                index, region->role, region->layer, (unsigned long long)region->page_stride,
                (unsigned long long)region->page_bytes);
    if (__builtin_mul_overflow(stride_of(region), (uint64_t)(pages - 1), &bytes) ||
            __builtin_add_overflow(bytes, region->page_bytes, &bytes) ||
            __builtin_add_overflow(start_of(region), bytes, &end))
        return refuse(why,
                "region %u (%s, layer %u): %u pages with a stride of %llu bytes leave the "
                "address space",
                index, region->role, region->layer, pages, (unsigned long long)stride_of(region));
    return KVX_OK;
}

static kvx_status region_check(const kvx_layout *layout, uint32_t index, const reason *why)
{
    const kvx_region *region = &layout->regions[index];

    if (!kvx_text_is_name(region->role, KVX_NAME_MAX))
        return refuse(why, "region %u: its role is missing, over %d bytes or not text", index,
                KVX_NAME_MAX - 1);
    if (region->component >= layout->component_count)
        return refuse(why, "region %u (%s, layer %u): component %u is not among the %u", index,
                region->role, region->layer, region->component, layout->component_count);
    if (region->memory_kind != KVX_MEMORY_HOST && region->memory_kind != KVX_MEMORY_ROCM)
        return refuse(why, "region %u (%s, layer %u): memory kind %d is unknown", index,
                region->role, region->layer, (int)region->memory_kind);
    if (region->base == NULL)
        return refuse(
                why, "region %u (%s, layer %u): base is NULL", index, region->role, region->layer);
    return size_check(layout, index, why);
}

/* Sorting is by index, so that a check needs no memory of its own. */
typedef int (*region_order)(const kvx_region *a, const kvx_region *b);
typedef struct sort_context {
    const kvx_region *regions;
    region_order order;
} sort_context;

static int compare_indices(const void *a, const void *b, void *arg)
{
    const sort_context *context = arg;
    const uint16_t i = *(const uint16_t *)a;
    const uint16_t j = *(const uint16_t *)b;
    const int order = context->order(&context->regions[i], &context->regions[j]);

    return order != 0 ? order : (int)i - (int)j;
}

static void sort_regions(
        const kvx_layout *layout, uint16_t *indices, uint32_t count, region_order order)
{
    sort_context context = { .regions = layout->regions, .order = order };

    qsort_r(indices, count, sizeof(*indices), compare_indices, &context);
}

static int compare_u64(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int by_identity(const kvx_region *a, const kvx_region *b)
{
    if (a->component != b->component)
        return compare_u64(a->component, b->component);
    if (a->layer != b->layer)
        return compare_u64(a->layer, b->layer);
    return strcmp(a->role, b->role);
}

static int by_start(const kvx_region *a, const kvx_region *b)
{
    return compare_u64(start_of(a), start_of(b));
}

/* Order inside a stripe of one stride, then by start. */
static int by_phase(const kvx_region *a, const kvx_region *b)
{
    const int order = compare_u64(start_of(a) % stride_of(a), start_of(b) % stride_of(b));

    return order != 0 ? order : by_start(a, b);
}

static kvx_status identity_check(const kvx_layout *layout, uint16_t *indices, const reason *why)
{
    sort_regions(layout, indices, layout->region_count, by_identity);
    for (uint32_t i = 1; i < layout->region_count; i++) {
        const kvx_region *region = &layout->regions[indices[i]];
        if (by_identity(&layout->regions[indices[i - 1]], region) == 0)
            return refuse(why, "region %u (%s, layer %u): region %u has the same role and layer",
                    indices[i], region->role, region->layer, indices[i - 1]);
    }
    return KVX_OK;
}

static kvx_status refuse_overlap(
        const kvx_layout *layout, uint16_t first, uint16_t second, const reason *why)
{
    const kvx_region *a = &layout->regions[first];
    const kvx_region *b = &layout->regions[second];

    return refuse(why, "region %u (%s, layer %u) overlaps region %u (%s, layer %u)", first, a->role,
            a->layer, second, b->role, b->layer);
}

static uint64_t phase_of(const kvx_region *region)
{
    return start_of(region) % stride_of(region);
}

/* Regions of one stride, in order of phase: legal if they take different bytes of it. Equal
 * phases are also legal one behind the other; by start, neighbours decide about that. Partly equal
 * phases are not looked at so closely: nobody lays out a pool so. */
static kvx_status stripe_check(
        const kvx_layout *layout, const uint16_t *indices, uint32_t count, const reason *why)
{
    const kvx_region *regions = layout->regions;
    const uint64_t stride = stride_of(&regions[indices[0]]);
    uint16_t last = indices[0]; /* reaches farthest into the stripe */

    for (uint32_t i = 1; i < count; i++) {
        const kvx_region *before = &regions[indices[i - 1]];
        const kvx_region *region = &regions[indices[i]];
        if (phase_of(region) == phase_of(before) && start_of(region) < end_of(layout, before))
            return refuse_overlap(layout, indices[i - 1], indices[i], why);
        const uint64_t reach = phase_of(&regions[last]) + regions[last].page_bytes;
        if (phase_of(region) != phase_of(before) && phase_of(region) < reach)
            return refuse_overlap(layout, last, indices[i], why);
        if (phase_of(region) + region->page_bytes > reach)
            last = indices[i];
    }
    const uint64_t reach = phase_of(&regions[last]) + regions[last].page_bytes;
    if (reach > stride && reach - stride > phase_of(&regions[indices[0]]))
        return refuse_overlap(layout, last, indices[0], why);
    return KVX_OK;
}

/* How many regions at the front have ranges that form a chain; they must share one stride. */
static kvx_status chain_check(const kvx_layout *layout, const uint16_t *indices, uint32_t count,
        uint32_t *length_out, const reason *why)
{
    const kvx_region *regions = layout->regions;
    uint16_t last = indices[0]; /* ends last, so a region that overlaps any overlaps this one */
    uint32_t i = 1;

    for (; i < count; i++) {
        const kvx_region *region = &regions[indices[i]];
        const uintptr_t end = end_of(layout, &regions[last]);
        if (start_of(region) >= end)
            break;
        if (stride_of(region) != stride_of(&regions[last]))
            return refuse_overlap(layout, last, indices[i], why);
        if (end_of(layout, region) > end)
            last = indices[i];
    }
    *length_out = i;
    return KVX_OK;
}

static kvx_status overlap_check(const kvx_layout *layout, uint16_t *indices, const reason *why)
{
    uint32_t count = 0;

    sort_regions(layout, indices, layout->region_count, by_start);
    for (uint32_t begin = 0; begin < layout->region_count; begin += count) {
        KVX_TRY(chain_check(layout, indices + begin, layout->region_count - begin, &count, why));
        sort_regions(layout, indices + begin, count, by_phase);
        KVX_TRY(stripe_check(layout, indices + begin, count, why));
    }
    return KVX_OK;
}

static kvx_status counts_check(const kvx_layout *layout, const reason *why)
{
    if (layout->component_count == 0 || layout->component_count > KVX_COMPONENT_MAX)
        return refuse(why, "component_count is %u, must be 1 to %d", layout->component_count,
                KVX_COMPONENT_MAX);
    if (layout->region_count == 0 || layout->region_count > KVX_REGION_MAX)
        return refuse(
                why, "region_count is %u, must be 1 to %d", layout->region_count, KVX_REGION_MAX);
    if (layout->components == NULL || layout->regions == NULL)
        return refuse(why, "components or regions is NULL");
    return KVX_OK;
}

kvx_status kvx_layout_check(const kvx_layout *layout, char *why, size_t why_size)
{
    uint16_t indices[KVX_REGION_MAX];
    reason sentence = { 0 };

    sentence.text = why;
    sentence.size = why_size;
    if (layout == NULL)
        return refuse(&sentence, "the layout is NULL");
    KVX_TRY(counts_check(layout, &sentence));
    for (uint32_t i = 0; i < layout->component_count; i++)
        KVX_TRY(component_check(layout, i, &sentence));
    for (uint32_t i = 0; i < layout->region_count; i++) {
        KVX_TRY(region_check(layout, i, &sentence));
        indices[i] = (uint16_t)i;
    }
    KVX_TRY(identity_check(layout, indices, &sentence));
    return overlap_check(layout, indices, &sentence);
}

uint32_t kvx_pages_for_tokens(uint32_t tokens, uint32_t page_tokens)
{
    if (page_tokens == 0)
        return 0;
    return tokens / page_tokens + (tokens % page_tokens != 0);
}
