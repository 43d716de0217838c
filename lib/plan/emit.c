/* SPDX-License-Identifier: Apache-2.0 */
/* Replaying a plan over one region. */
#include "plan/plan.h"

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Whether pages that follow each other touch, on both sides. */
static bool is_dense(const kvx_plan_geometry *geometry)
{
    return geometry->source_stride == geometry->page_bytes &&
           geometry->destination_stride == geometry->page_bytes;
}

/* Bytes from the cursor to where the piece must end. */
static uint64_t piece_left(
        const kvx_plan_run *run, const kvx_plan_geometry *geometry, const kvx_plan_cursor *cursor)
{
    const uint64_t pages = is_dense(geometry) ? run->count - cursor->page : 1;

    return pages * geometry->page_bytes - cursor->offset;
}

static void cursor_advance(kvx_plan_cursor *cursor, const kvx_plan_run *run,
        const kvx_plan_geometry *geometry, uint64_t length_bytes)
{
    const uint64_t offset = cursor->offset + length_bytes;

    cursor->page += (uint32_t)(offset / geometry->page_bytes);
    cursor->offset = offset % geometry->page_bytes;
    if (cursor->page == run->count) {
        cursor->page = 0;
        cursor->run++;
    }
}

uint32_t kvx_plan_emit(const kvx_plan *plan, const kvx_plan_geometry *geometry,
        kvx_plan_cursor *cursor, kvx_plan_read *reads, uint32_t max)
{
    uint32_t emitted = 0;
    uint32_t run_count = 0;
    const kvx_plan_run *runs = kvx_plan_runs(plan, &run_count);

    if (geometry->page_bytes == 0 || geometry->read_bytes_max == 0)
        return 0;
    while (emitted < max && cursor->run < run_count) {
        const kvx_plan_run *run = &runs[cursor->run];
        const uint64_t source = (uint64_t)run->source + cursor->page;
        const uint64_t destination = (uint64_t)run->destination + cursor->page;
        const uint64_t length = smaller(piece_left(run, geometry, cursor), geometry->read_bytes_max);
        reads[emitted++] = (kvx_plan_read){
            .source_off = source * geometry->source_stride + cursor->offset,
            .destination_off = destination * geometry->destination_stride + cursor->offset,
            .length_bytes = length,
            .destination = (kvx_page)destination,
        };
        cursor_advance(cursor, run, geometry, length);
    }
    return emitted;
}
