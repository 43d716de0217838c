/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"

static kvx_status params_check(const kvx_plan_params *params)
{
    KVX_ENSURE(params->source != NULL || params->source_count == 0, KVX_INVALID);
    KVX_ENSURE(params->destination != NULL || params->page_count == 0, KVX_INVALID);
    KVX_ENSURE(params->source_count > 0 || params->page_count == 0, KVX_INVALID);
    /* A run holds a page at least. */
    const uint64_t pages = (uint64_t)params->source_skip + params->page_count;
    KVX_ENSURE(params->source_count <= pages, KVX_INVALID);
    return KVX_OK;
}

static kvx_status buffers_allocate(kvx_plan *plan, uint32_t page_count)
{
    /* One more, so that an empty plan is not taken for a lack of memory. */
    for (uint32_t i = 0; i < 2; i++) {
        plan->buffers[i] = malloc(((size_t)page_count + 1) * sizeof(kvx_plan_run));
        KVX_ENSURE(plan->buffers[i] != NULL, KVX_NO_MEMORY);
    }
    plan->radix.from = (void *)plan->buffers[0];
    plan->radix.to = (void *)plan->buffers[1];
    return KVX_OK;
}

kvx_status kvx_plan_begin(const kvx_plan_params *params, kvx_plan **plan_out)
{
    KVX_ENSURE(params != NULL && plan_out != NULL, KVX_INVALID);
    KVX_ENSURE(params->struct_size == sizeof(*params), KVX_INVALID);
    if (params_check(params) != KVX_OK) {
        kvx_log(KVX_LOG_ERROR,
                "plan: %u source runs less %u pages do not line up with %u destination pages",
                params->source_count, params->source_skip, params->page_count);
        return KVX_INVALID;
    }
    kvx_plan *plan = calloc(1, sizeof(*plan));
    KVX_ENSURE(plan != NULL, KVX_NO_MEMORY);
    if (buffers_allocate(plan, params->page_count) != KVX_OK) {
        kvx_plan_destroy(&plan);
        return KVX_NO_MEMORY;
    }
    plan->params = *params;
    plan->skip_left = params->source_skip;
    plan->is_sorted = true;
    *plan_out = plan;
    return KVX_OK;
}

void kvx_plan_destroy(kvx_plan **plan)
{
    if (plan == NULL || *plan == NULL)
        return;
    free((*plan)->buffers[0]);
    free((*plan)->buffers[1]);
    free(*plan);
    *plan = NULL;
}

static kvx_status refuse(kvx_plan *plan, kvx_page page, const char *what)
{
    kvx_log(KVX_LOG_ERROR, "plan: page %u %s", page, what);
    plan->phase = PLAN_REFUSED;
    plan->bad_page = page;
    return KVX_INVALID;
}

static bool run_is_inside(const kvx_plan *plan, const kvx_page_run *run)
{
    const uint32_t pool_pages = plan->params.source_pool_pages;

    return run->count > 0 && run->first < pool_pages && run->count <= pool_pages - run->first;
}

/* Begin a run: leave out its pages that are to be skipped. */
static kvx_status run_open(kvx_plan *plan, const kvx_page_run *run)
{
    if (!run_is_inside(plan, run))
        return refuse(plan, run->first, "begins a run that is not in the source pool");
    const uint32_t skip = plan->skip_left < run->count ? plan->skip_left : run->count;
    plan->source_in_at = skip;
    plan->skip_left -= skip;
    plan->is_run_open = true;
    return KVX_OK;
}

/* Pair pages of the present run, as many as the budget allows. */
static kvx_status run_expand(kvx_plan *plan, const kvx_page_run *run, uint32_t *budget)
{
    const kvx_page *destination = plan->params.destination;
    kvx_page_pair *pairs = plan->radix.from;

    while (plan->source_in_at<run->count && * budget> 0) {
        const uint32_t index = plan->pair_count;
        const kvx_page source = run->first + plan->source_in_at;
        if (index == plan->params.page_count)
            return refuse(plan, source, "of the source table has no destination");
        if (destination[index] >= plan->params.destination_pool_pages)
            return refuse(plan, destination[index], "is not in the destination pool");
        if (index > 0 && source < pairs[index - 1].source)
            plan->is_sorted = false;
        pairs[index] = (kvx_page_pair){ .source = source, .destination = destination[index] };
        plan->pair_count++;
        plan->source_in_at++;
        (*budget)--;
    }
    return KVX_OK;
}

/* All runs are paired; did the destination table end with them? */
static kvx_status expand_end(kvx_plan *plan)
{
    if (plan->pair_count < plan->params.page_count)
        return refuse(plan, plan->params.destination[plan->pair_count],
                "of the destination table has no source");
    plan->radix.count = plan->pair_count;
    plan->phase = plan->is_sorted ? PLAN_MERGING : PLAN_SORTING;
    return KVX_OK;
}

static kvx_status expand_step(kvx_plan *plan, uint32_t *budget)
{
    while (plan->source_at < plan->params.source_count) {
        const kvx_page_run *run = &plan->params.source[plan->source_at];
        if (*budget == 0)
            return KVX_OK;
        if (!plan->is_run_open) {
            KVX_TRY(run_open(plan, run));
            (*budget)--;
        }
        KVX_TRY(run_expand(plan, run, budget));
        if (plan->source_in_at < run->count)
            return KVX_OK;
        plan->source_at++;
        plan->is_run_open = false;
    }
    return expand_end(plan);
}

static bool pair_continues(const kvx_plan_run *run, const kvx_page_pair *pair)
{
    return pair->source > run->source && pair->source - run->source == run->count &&
           pair->destination > run->destination &&
           pair->destination - run->destination == run->count;
}

static void merge_step(kvx_plan *plan, uint32_t *budget)
{
    const kvx_page_pair *pairs = plan->radix.from;
    kvx_plan_run *runs = (void *)plan->radix.to;

    for (; plan->merge_at<plan->pair_count && * budget> 0; plan->merge_at++, (*budget)--) {
        const kvx_page_pair *pair = &pairs[plan->merge_at];
        if (plan->run_count > 0 && pair_continues(&runs[plan->run_count - 1], pair)) {
            runs[plan->run_count - 1].count++;
            continue;
        }
        runs[plan->run_count++] = (kvx_plan_run){
            .source = pair->source, .destination = pair->destination, .count = 1
        };
    }
    plan->runs = runs;
    if (plan->merge_at == plan->pair_count)
        plan->phase = PLAN_DONE;
}

kvx_status kvx_plan_step(kvx_plan *plan, uint32_t budget_pages, kvx_page *bad_page_out)
{
    uint32_t budget = budget_pages;

    KVX_ENSURE(plan != NULL && budget_pages > 0, KVX_INVALID);
    if (plan->phase == PLAN_EXPANDING)
        (void)expand_step(plan, &budget);
    if (plan->phase == PLAN_SORTING && kvx_radix_step(&plan->radix, &budget))
        plan->phase = PLAN_MERGING;
    if (plan->phase == PLAN_MERGING)
        merge_step(plan, &budget);
    if (plan->phase == PLAN_REFUSED) {
        if (bad_page_out != NULL)
            *bad_page_out = plan->bad_page;
        return KVX_INVALID;
    }
    return plan->phase == PLAN_DONE ? KVX_OK : KVX_AGAIN;
}

const kvx_plan_run *kvx_plan_runs(const kvx_plan *plan, uint32_t *count_out)
{
    if (plan->phase != PLAN_DONE) {
        *count_out = 0;
        return NULL;
    }
    *count_out = plan->run_count;
    return plan->runs;
}
