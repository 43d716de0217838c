/* SPDX-License-Identifier: Apache-2.0 */
/* A registered pool: an owned copy of the layout, and each region's registration. */
#ifndef KVX_POOL_POOL_H
#define KVX_POOL_POOL_H

#include "base/check.h"
#include "kvx/layout.h"
#include "kvx/transport.h"

typedef struct kvx_pool {
    kvx_component components[KVX_COMPONENT_MAX];
    uint32_t component_count;
    kvx_region *regions; /* page_stride filled in */
    uint32_t region_count;
    kvx_mr **mrs; /* one per region, while attached */
    const kvx_transport_ops *ops;
    char *strings;
} kvx_pool;

/* Copy and check a layout. KVX_INVALID: logged which thing is wrong. */
KVX_CHECKED kvx_status kvx_pool_create(const kvx_layout *layout, kvx_pool **pool_out);
/* Frees; detaches first if needed. */
void kvx_pool_destroy(kvx_pool **pool);

/* Register every region on a domain. On failure nothing stays registered. */
KVX_CHECKED kvx_status kvx_pool_attach(
        kvx_pool *pool, const kvx_transport_ops *ops, kvx_domain *domain);
void kvx_pool_detach(kvx_pool *pool);

/* Bytes of one page of a component, over all its regions. */
uint64_t kvx_pool_page_bytes(const kvx_pool *pool, uint32_t component);
/* Bytes that a region spans, from page 0 to the end of the last page. */
uint64_t kvx_region_span(const kvx_region *region, uint32_t page_count);

/* Turn a page table into runs (pages + 1 each step). runs_out has room for count; returns how
 * many runs. Pure. */
uint32_t kvx_runs_from_pages(const kvx_page *pages, uint32_t count, kvx_page_run *runs_out);
/* Sum of the runs' pages; KVX_INVALID: a run is empty or leaves the pool of page_count pages. */
KVX_CHECKED kvx_status kvx_runs_check(
        const kvx_page_run *runs, uint32_t count, uint32_t page_count, uint32_t *pages_out);

#endif
