/* SPDX-License-Identifier: Apache-2.0 */
#include "pair/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define TOKENS_MAX          (1 << 30)
#define TAIL_MARK           UINT64_C(0x7461696c)
#define GENERATED_BYTES_MAX (UINT64_C(4) << 30)

/* Where a reader stands, for messages. */
typedef struct trace_line {
    const char *name;
    size_t number;
    char *why;
} trace_line;

__attribute__((format(printf, 2, 3))) static bool line_fail(
        const trace_line *line, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = snprintf(line->why, TRACE_WHY_MAX, "%s:%zu: ", line->name, line->number);
    if (length > 0 && length < TRACE_WHY_MAX)
        (void)vsnprintf(line->why + length, TRACE_WHY_MAX - (size_t)length, format, args);
    va_end(args);
    return false;
}

uint64_t trace_mix(uint64_t value)
{
    value ^= value >> 31;
    value *= UINT64_C(0x9e6c63d0876a9a47);
    value ^= value >> 29;
    value *= UINT64_C(0xd1b54a32d192ed03);
    return value ^ (value >> 32);
}

static bool read_length(const trace_line *line, const json_t *object, const char *key,
        json_int_t min, uint32_t *length_out)
{
    const json_t *value = json_object_get(object, key);
    if (value == NULL)
        return line_fail(line, "%s is missing", key);
    if (!json_is_integer(value))
        return line_fail(line, "%s is not a whole number", key);

    const json_int_t number = json_integer_value(value);
    if (number < min || number > TOKENS_MAX)
        return line_fail(line,
                "%s is %" JSON_INTEGER_FORMAT ", allowed are %" JSON_INTEGER_FORMAT " to %d", key,
                number, min, TOKENS_MAX);
    *length_out = (uint32_t)number;
    return true;
}

/* Ids beyond the last whole block name no content that could be shared; they are checked and
 * left out. */
static bool read_blocks(const trace_line *line, const json_t *object, trace_request *request)
{
    const json_t *ids = json_object_get(object, "hash_ids");
    if (!json_is_array(ids))
        return line_fail(line, "hash_ids is %s", ids == NULL ? "missing" : "not a list");

    const size_t id_count = json_array_size(ids);
    const uint32_t whole = request->tokens / TRACE_BLOCK_TOKENS;
    request->block_count = id_count < whole ? (uint32_t)id_count : whole;
    request->prefixes = calloc(request->block_count + 1, sizeof(*request->prefixes));
    if (request->prefixes == NULL)
        return line_fail(line, "out of memory");

    uint64_t prefix = 0;
    for (size_t i = 0; i < id_count; i++) {
        const json_t *id = json_array_get(ids, i);
        if (!json_is_integer(id))
            return line_fail(line, "hash_ids[%zu] is not a whole number", i);
        prefix = trace_mix(prefix + trace_mix((uint64_t)json_integer_value(id) + 1));
        if (i < request->block_count)
            request->prefixes[i] = prefix;
    }
    return true;
}

static bool read_request(const trace_line *line, const json_t *object, trace_request *request)
{
    if (!json_is_object(object))
        return line_fail(line, "not a JSON object");
    if (!json_is_number(json_object_get(object, "timestamp")))
        return line_fail(line, "timestamp is missing or not a number");
    request->room = line->number;
    return read_length(line, object, "input_length", 1, &request->tokens) &&
           read_length(line, object, "output_length", 0, &request->output_tokens) &&
           read_blocks(line, object, request);
}

static bool read_line(
        const trace_line *line, const char *text, size_t length, trace_request *request)
{
    json_error_t error;
    json_t *object = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    if (object == NULL)
        return line_fail(line, "column %d: %s", error.column, error.text);
    const bool is_read = read_request(line, object, request);
    json_decref(object);
    return is_read;
}

static bool trace_add(request_trace *trace, size_t *capacity, const trace_request *request)
{
    if (trace->count == *capacity) {
        const size_t grown = *capacity == 0 ? 64 : *capacity * 2;
        trace_request *requests = realloc(trace->requests, grown * sizeof(*requests));
        if (requests == NULL)
            return false;
        trace->requests = requests;
        *capacity = grown;
    }
    trace->requests[trace->count++] = *request;
    trace->tokens += request->tokens;
    return true;
}

static bool is_blank(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (strchr(" \t\r", text[i]) == NULL || text[i] == '\0')
            return false;
    return true;
}

/* Take one line into the trace, or leave it out where the limits say so. */
static bool take_line(const trace_line *line, const char *text, size_t length, uint32_t tokens_max,
        request_trace *trace, size_t *capacity)
{
    trace_request request = { 0 };
    if (!read_line(line, text, length, &request)) {
        free(request.prefixes);
        return false;
    }
    if (tokens_max != 0 && request.tokens > tokens_max) {
        free(request.prefixes);
        return true;
    }
    if (!trace_add(trace, capacity, &request)) {
        free(request.prefixes);
        return line_fail(line, "out of memory");
    }
    return true;
}

bool trace_parse(const char *name, const char *text, size_t size, const trace_limits *limits,
        request_trace *trace_out, char why_out[TRACE_WHY_MAX])
{
    const size_t requests_max = limits->requests_max == 0 ? SIZE_MAX : limits->requests_max;
    trace_line line = { .name = name, .why = why_out };
    request_trace made = { 0 };
    size_t capacity = 0;

    for (size_t start = 0; start < size && made.count < requests_max;) {
        const char *end = memchr(text + start, '\n', size - start);
        const size_t length = end == NULL ? size - start : (size_t)(end - text) - start;
        line.number++;
        if (!is_blank(text + start, length) &&
                !take_line(&line, text + start, length, limits->tokens_max, &made, &capacity))
            goto fail;
        start += length + 1;
    }
    if (made.count == 0) {
        (void)line_fail(&line, "no request is left to run");
        goto fail;
    }
    *trace_out = made;
    return true;

fail:
    trace_free(&made);
    return false;
}

/* The whole file in memory, also when it is a pipe. */
static char *read_all(FILE *file, size_t *size_out)
{
    size_t capacity = 1 << 16;
    size_t size = 0;
    char *text = malloc(capacity);

    while (text != NULL) {
        size += fread(text + size, 1, capacity - size, file);
        if (size < capacity)
            break;
        char *grown = realloc(text, capacity * 2);
        if (grown == NULL)
            free(text);
        text = grown;
        capacity *= 2;
    }
    if (text != NULL && ferror(file)) {
        free(text);
        text = NULL;
    }
    *size_out = size;
    return text;
}

bool trace_load(const char *path, const trace_limits *limits, request_trace *trace_out,
        char why_out[TRACE_WHY_MAX])
{
    FILE *file = fopen(path, "re");
    size_t size = 0;
    int error = file == NULL ? errno : 0;
    char *text = file == NULL ? NULL : read_all(file, &size);
    if (text == NULL) {
        if (file != NULL)
            error = errno;
        (void)snprintf(
                why_out, TRACE_WHY_MAX, "%s: cannot read the trace: %s", path, strerror(error));
        if (file != NULL)
            (void)fclose(file);
        return false;
    }
    (void)fclose(file);
    const bool is_loaded = trace_parse(path, text, size, limits, trace_out, why_out);
    free(text);
    return is_loaded;
}

static bool generate_request(size_t number, uint32_t tokens, trace_request *request)
{
    const uint32_t blocks = tokens / TRACE_BLOCK_TOKENS;

    request->room = number;
    request->tokens = tokens;
    request->output_tokens = (uint32_t)(50 + number * 97 % 400);
    request->block_count = blocks;
    request->prefixes = calloc(blocks + 1, sizeof(*request->prefixes));
    if (request->prefixes == NULL)
        return false;

    uint64_t prefix = 0;
    for (uint32_t i = 0; i < blocks; i++) {
        const uint64_t owner = i < blocks / 4 ? (number - 1) / 4 * 2 : number * 2 + 1;
        prefix = trace_mix(prefix + trace_mix(owner << 24 | i));
        request->prefixes[i] = prefix;
    }
    return true;
}

bool trace_generate(
        size_t requests, uint32_t tokens, request_trace *trace_out, char why_out[TRACE_WHY_MAX])
{
    request_trace made = { 0 };
    size_t capacity = 0;
    const uint64_t one_bytes = sizeof(trace_request) +
                               (tokens / TRACE_BLOCK_TOKENS + 1) * sizeof(*made.requests->prefixes);

    if (requests > GENERATED_BYTES_MAX / one_bytes) {
        (void)snprintf(why_out, TRACE_WHY_MAX,
                "%zu requests of %u tokens: only to describe them takes %.1f GiB, at most %d GiB "
                "are taken: choose smaller --requests or --tokens",
                requests, tokens, (double)requests * (double)one_bytes / (1 << 30),
                (int)(GENERATED_BYTES_MAX >> 30));
        return false;
    }
    for (size_t number = 1; number <= requests; number++) {
        trace_request request = { 0 };
        if (generate_request(number, tokens, &request) && trace_add(&made, &capacity, &request))
            continue;
        free(request.prefixes);
        trace_free(&made);
        (void)snprintf(why_out, TRACE_WHY_MAX, "out of memory for %zu requests", requests);
        return false;
    }
    *trace_out = made;
    return true;
}

void trace_free(request_trace *trace)
{
    for (size_t i = 0; i < trace->count; i++)
        free(trace->requests[i].prefixes);
    free(trace->requests);
    *trace = (request_trace){ 0 };
}

uint64_t trace_origin(const trace_request *request, uint32_t token)
{
    const uint32_t block = token / TRACE_BLOCK_TOKENS;
    if (block < request->block_count)
        return request->prefixes[block];
    return trace_mix(request->room ^ TAIL_MARK << 32);
}

uint64_t trace_fingerprint(const trace_request *request)
{
    uint64_t print = trace_mix(request->room << 32 | request->tokens);
    if (request->block_count > 0)
        print ^= request->prefixes[request->block_count - 1];
    return print;
}
