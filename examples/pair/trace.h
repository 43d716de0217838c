/* SPDX-License-Identifier: Apache-2.0 */
/* Traces of requests: one JSON object a line with timestamp (ms), input_length and output_length
 * (tokens), and hash_ids (one id per block of 512 tokens; equal ids mean an equal prefix). */
#ifndef PAIR_TRACE_H
#define PAIR_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Tokens that one hash id stands for. */
#define TRACE_BLOCK_TOKENS 512
/* Enough for every message of this module. */
#define TRACE_WHY_MAX 512

typedef struct trace_request {
    uint64_t room;          /* number of the line, from 1 */
    uint32_t tokens;        /* of the prompt; > 0 */
    uint32_t output_tokens; /* how long it lives on decode */
    uint32_t block_count;   /* whole blocks: entries of prefixes */
    uint64_t *prefixes;     /* for each whole block, what names it and all before it */
} trace_request;

typedef struct request_trace {
    trace_request *requests;
    size_t count;
    uint64_t tokens; /* of all prompts */
} request_trace;

/* Which requests to take. */
typedef struct trace_limits {
    size_t requests_max; /* 0: all */
    uint32_t tokens_max; /* leave out requests with more; 0: none */
} trace_limits;

/* Read a file. On failure why_out says file:line: what. Free with trace_free(). */
bool trace_load(const char *path, const trace_limits *limits, request_trace *trace_out,
        char why_out[TRACE_WHY_MAX]);

/* The same from memory; name stands for the file in messages. */
bool trace_parse(const char *name, const char *text, size_t size, const trace_limits *limits,
        request_trace *trace_out, char why_out[TRACE_WHY_MAX]);

/* Requests of equal length; every four share their first quarter. */
bool trace_generate(
        size_t requests, uint32_t tokens, request_trace *trace_out, char why_out[TRACE_WHY_MAX]);

/* A zeroed trace is fine; it is zeroed again. */
void trace_free(request_trace *trace);

/* What decides the content at a token: the prefix up to its block, or the room alone where the
 * block is not whole. */
uint64_t trace_origin(const trace_request *request, uint32_t token);

/* Tells whether two sides read the same request. */
uint64_t trace_fingerprint(const trace_request *request);

/* Spreads every bit of the input over all of the output. */
uint64_t trace_mix(uint64_t value);

#endif
