/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * Plan: from two page tables to few large reads, planned once and replayed over all regions.
 *
 * The source table comes as runs, the destination table as pages; pair i is the i-th page of
 * each. Source pages may repeat; they keep the order of the table. Planning orders the pairs by source page and merges neighbours that are adjacent on both
 * sides. The result is a list of kvx_plan_run, independent of the number of regions; reads are
 * emitted lazily, region by region, within the caps.
 *
 * Everything here is pure: no clock, no I/O, no locks. Planning can be cut into slices.
 *
 * Data flow:  transport -> pool -> [plan] -> session -> pull -> node
 */
#ifndef KVX_PLAN_H
#define KVX_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "kvx/layout.h"
#include "kvx/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Pages adjacent on both sides. */
typedef struct kvx_plan_run {
    kvx_page source;      /**< first page on the remote side */
    kvx_page destination; /**< first page on the local side */
    uint32_t count;       /**< pages; never 0 */
} kvx_plan_run;

/** What to plan. */
typedef struct kvx_plan_params {
    size_t struct_size;              /**< sizeof(kvx_plan_params) */
    const kvx_page_run *source;      /**< source table, in token order; borrowed while planning */
    uint32_t source_count;           /**< runs in source */
    uint32_t source_skip;            /**< pages of the source table to leave out at its front */
    const kvx_page *destination;     /**< destination table; borrowed while planning */
    uint32_t page_count;             /**< pages in destination; source has source_skip more */
    uint32_t destination_pool_pages; /**< pages of the local pool; larger numbers are refused */
    uint32_t source_pool_pages;      /**< pages of the remote pool */
} kvx_plan_params;

/**
 * A plan in the making or made.
 *
 * Thread-safety: one thread at a time.
 */
typedef struct kvx_plan kvx_plan;

/**
 * Begin a plan. Allocates all that planning will need; kvx_plan_step() allocates nothing.
 *
 * @param params   what to plan; the arrays in it stay borrowed until the last kvx_plan_step()
 * @param plan_out [out] the plan; free it with kvx_plan_destroy()
 *
 * @retval KVX_INVALID   a table is missing, or the counts cannot line up
 * @retval KVX_NO_MEMORY out of host memory
 *
 * Cost: O(1) beside the allocation.
 */
KVX_API_CHECKED kvx_status kvx_plan_begin(const kvx_plan_params *params, kvx_plan **plan_out);

/**
 * Plan on for about @p budget_pages steps.
 *
 * @param plan         begun plan
 * @param budget_pages how many page visits to spend; > 0
 * @param bad_page_out [out] set on KVX_INVALID: the destination page or source page at fault; may be NULL
 *
 * @retval KVX_OK      planned; kvx_plan_runs() may be used
 * @retval KVX_AGAIN   not done, call again
 * @retval KVX_INVALID a page is outside its pool, or one table is longer than the other
 *
 * Cost: O(budget_pages). Total over all calls: O(pages), radix order, no comparison sort.
 */
KVX_API_CHECKED kvx_status kvx_plan_step(
        kvx_plan *plan, uint32_t budget_pages, kvx_page *bad_page_out);

/**
 * The runs of a finished plan, in order of source page.
 *
 * @param plan      finished
 * @param count_out [out] number of runs
 * @return the runs; they live as long as the plan
 */
KVX_API const kvx_plan_run *kvx_plan_runs(const kvx_plan *plan, uint32_t *count_out);

/**
 * Free a plan and clear the pointer.
 *
 * @param plan address of the plan; it or what it points at may be NULL
 */
KVX_API void kvx_plan_destroy(kvx_plan **plan);

/** How the pages of one region lie on both sides. */
typedef struct kvx_plan_geometry {
    uint64_t page_bytes;         /**< bytes of a page, equal on both sides */
    uint64_t source_stride;      /**< bytes from a page to the next on the remote side */
    uint64_t destination_stride; /**< the same on the local side */
    uint64_t read_bytes_max;     /**< cap of one read; cut inside a page if a page is larger; > 0 */
} kvx_plan_geometry;

/** Where a replay stands; all zero at the start of a region. */
typedef struct kvx_plan_cursor {
    uint32_t run;    /**< run to emit next */
    uint32_t page;   /**< page inside the run */
    uint64_t offset; /**< bytes inside that page */
} kvx_plan_cursor;

/** One contiguous piece on both sides. */
typedef struct kvx_plan_read {
    uint64_t source_off;      /**< bytes from page 0 of the remote region */
    uint64_t destination_off; /**< bytes from page 0 of the local region */
    uint64_t length_bytes;    /**< never 0, at most read_bytes_max */
    kvx_page destination;     /**< page in which the piece begins, on the local side */
} kvx_plan_read;

/**
 * Emit the next reads of a region.
 *
 * @param plan     finished
 * @param geometry of the region
 * @param cursor   [in,out] where the replay stands
 * @param reads    [out] array of @p max
 * @param max      most reads to emit
 * @return how many were emitted; less than @p max: the region is done
 *
 * Cost: O(emitted).
 */
KVX_API uint32_t kvx_plan_emit(const kvx_plan *plan, const kvx_plan_geometry *geometry,
        kvx_plan_cursor *cursor, kvx_plan_read *reads, uint32_t max);

#ifdef __cplusplus
}
#endif
#endif
