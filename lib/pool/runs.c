/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/pool.h"

static bool continues(const kvx_page_run *run, kvx_page page)
{
    return page > run->first && page - run->first == run->count;
}

uint32_t kvx_runs_from_pages(const kvx_page *pages, uint32_t count, kvx_page_run *runs_out)
{
    uint32_t run_count = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (run_count > 0 && continues(&runs_out[run_count - 1], pages[i]))
            runs_out[run_count - 1].count++;
        else
            runs_out[run_count++] = (kvx_page_run){ .first = pages[i], .count = 1 };
    }
    return run_count;
}

kvx_status kvx_runs_check(
        const kvx_page_run *runs, uint32_t count, uint32_t page_count, uint32_t *pages_out)
{
    uint32_t pages = 0;

    for (uint32_t i = 0; i < count; i++) {
        KVX_ENSURE(runs[i].count > 0 && runs[i].first < page_count, KVX_INVALID);
        KVX_ENSURE(runs[i].count <= page_count - runs[i].first, KVX_INVALID);
        KVX_ENSURE(!__builtin_add_overflow(pages, runs[i].count, &pages), KVX_INVALID);
    }
    *pages_out = pages;
    return KVX_OK;
}
