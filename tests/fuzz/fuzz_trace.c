/* SPDX-License-Identifier: Apache-2.0 */
/* A trace from anywhere is read or refused with a message, and every token of what was read has an
 * origin. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "pair/trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const trace_limits limits = { .requests_max = 1000, .tokens_max = 1 << 20 };
    char why[TRACE_WHY_MAX] = "";
    request_trace trace;

    if (!trace_parse("fuzz", (const char *)data, size, &limits, &trace, why)) {
        if (strncmp(why, "fuzz:", 5) != 0)
            abort();
        return 0;
    }
    uint64_t tokens = 0;
    for (size_t i = 0; i < trace.count; i++) {
        const trace_request *request = &trace.requests[i];
        tokens += request->tokens;
        if (request->tokens == 0 || request->tokens > limits.tokens_max || request->room == 0)
            abort();
        if (trace_origin(request, 0) == trace_origin(request, request->tokens - 1) &&
                request->block_count > 1)
            abort();
    }
    if (tokens != trace.tokens || trace.count == 0)
        abort();
    trace_free(&trace);
    return 0;
}
