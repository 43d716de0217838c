/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * Layout: the shape of a paged cache, as both sides must agree on it.
 *
 * A pool is made of components, each with its own page table (`kv`, later `state`, `index`).
 * A component is made of regions: one buffer each (K or V of a layer, an MLA latent of a
 * layer). Page `i` of a region lies at `base + i * page_stride` and is `page_bytes` long.
 *
 * Data flow:  memory -> transport -> [layout, pool] -> plan -> session -> pull -> node
 */
#ifndef KVX_LAYOUT_H
#define KVX_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include "kvx/memory.h"
#include "kvx/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Longest component, role and axis name, with its terminating zero. */
#define KVX_NAME_MAX 32
/** Most components of a pool. */
#define KVX_COMPONENT_MAX 8
/** Most regions of a pool. */
#define KVX_REGION_MAX 4096

/** Number of a page in its component; page tables are arrays of these. */
typedef uint32_t kvx_page;

/** Pages first, first + 1, ... first + count - 1. */
typedef struct kvx_page_run {
    kvx_page first; /**< number of the first page */
    uint32_t count; /**< pages in the run; never 0 */
} kvx_page_run;

/** One kind of paged state. */
typedef struct kvx_component {
    const char *name;     /**< "kv", ...; both sides must give the same names in the same order */
    uint32_t page_tokens; /**< tokens in a page; 0: pages that do not stand for tokens (a state),
                               moved whole */
    uint32_t page_count;  /**< pages of every region of this component; > 0 */
    const char *axis;     /**< how heads, tokens, K/V lie in a page, for example "token,latent" */
} kvx_component;

/** One buffer of a component. */
typedef struct kvx_region {
    uint32_t component;          /**< index into kvx_layout.components */
    const char *role;            /**< "k", "v", "mla", ... */
    uint32_t layer;              /**< layer of the model */
    void *base;                  /**< address of page 0 */
    uint64_t page_bytes;         /**< bytes of a page; > 0 */
    uint64_t page_stride;        /**< bytes from a page to the next; 0: page_bytes */
    kvx_memory_kind memory_kind; /**< where base lives */
} kvx_region;

/**
 * A whole paged cache. Borrowed for the call that takes it; strings are copied.
 *
 * Thread-safety: plain data.
 */
typedef struct kvx_layout {
    const kvx_component *components; /**< array of component_count */
    uint32_t component_count;        /**< 1 ... KVX_COMPONENT_MAX */
    const kvx_region *regions;       /**< array of region_count, each naming a component */
    uint32_t region_count;           /**< 1 ... KVX_REGION_MAX */
} kvx_layout;

/**
 * Check a layout: counts, names, sizes, strides, overflow, overlapping regions.
 *
 * @param layout     to check
 * @param why        [out] on failure one sentence that names the thing; may be NULL
 * @param why_size   bytes at @p why
 *
 * @retval KVX_INVALID something is wrong, @p why says what
 *
 * Cost: O(n log n) in regions.
 * Thread-safety: any thread.
 */
KVX_API_CHECKED kvx_status kvx_layout_check(const kvx_layout *layout, char *why, size_t why_size);

/**
 * Pages that hold @p tokens tokens of a component, rounded up.
 *
 * @param tokens      number of tokens
 * @param page_tokens tokens in a page; > 0
 * @return number of pages
 *
 * Thread-safety: any thread.
 */
KVX_API uint32_t kvx_pages_for_tokens(uint32_t tokens, uint32_t page_tokens);

#ifdef __cplusplus
}
#endif
#endif
