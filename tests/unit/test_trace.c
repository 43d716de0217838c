/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pair/trace.h"
#include "support/seed.h"

static const trace_limits no_limits;

static bool parse(const char *text, const trace_limits *limits, request_trace *trace, char *why)
{
    return trace_parse("t.jsonl", text, strlen(text), limits, trace, why);
}

#define LINE(tokens, ids)                                                                        \
    "{\"timestamp\": 1, \"input_length\": " #tokens ", \"output_length\": 7, \"hash_ids\": " ids \
    "}\n"

Test(trace, lines_become_requests_whose_room_is_the_line_number)
{
    request_trace trace;
    char why[TRACE_WHY_MAX];
    cr_assert(parse(LINE(700, "[0, 1]") "\n" LINE(100, "[5]"), &no_limits, &trace, why));
    cr_expect_eq(trace.count, 2);
    cr_expect_eq(trace.tokens, 800);
    cr_expect_eq(trace.requests[0].room, 1);
    cr_expect_eq(trace.requests[0].tokens, 700);
    cr_expect_eq(trace.requests[0].output_tokens, 7);
    cr_expect_eq(trace.requests[0].block_count, 1, "only whole blocks are shared");
    cr_expect_eq(trace.requests[1].room, 3, "a blank line counts");
    cr_expect_eq(trace.requests[1].block_count, 0);
    trace_free(&trace);
    cr_expect_eq(trace.count, 0);
}

Test(trace, a_last_line_without_newline_and_windows_line_ends_are_read)
{
    request_trace trace;
    char why[TRACE_WHY_MAX];
    const char *text = "{\"timestamp\":0.5,\"input_length\":512,\"output_length\":0,"
                       "\"hash_ids\":[9],\"more\":null}\r\n"
                       "{\"timestamp\":0,\"input_length\":1,\"output_length\":0,\"hash_ids\":[]}";
    cr_assert(parse(text, &no_limits, &trace, why), "%s", why);
    cr_expect_eq(trace.count, 2);
    cr_expect_eq(trace.requests[0].block_count, 1);
    trace_free(&trace);
}

Test(trace, requests_share_content_as_far_as_their_ids_agree)
{
    request_trace trace;
    char why[TRACE_WHY_MAX];
    cr_assert(parse(LINE(1600, "[1, 2, 3, 4]") LINE(1600, "[1, 2, 5, 4]") LINE(1600, "[2, 1, 3]"),
            &no_limits, &trace, why));
    const trace_request *a = &trace.requests[0];
    const trace_request *b = &trace.requests[1];
    const trace_request *c = &trace.requests[2];
    cr_expect_eq(trace_origin(a, 0), trace_origin(b, 0));
    cr_expect_eq(trace_origin(a, 1023), trace_origin(b, 512));
    cr_expect_neq(trace_origin(a, 1024), trace_origin(b, 1024));
    cr_expect_neq(trace_origin(a, 1536), trace_origin(b, 1536), "the tail is the room's own");
    cr_expect_neq(trace_origin(a, 0), trace_origin(c, 0));
    cr_expect_neq(trace_origin(a, 512), trace_origin(c, 512), "an id counts with what is before");
    cr_expect_neq(trace_fingerprint(a), trace_fingerprint(b));
    trace_free(&trace);
}

Test(trace, limits_cap_the_number_and_leave_out_large_requests_but_keep_rooms)
{
    request_trace trace;
    char why[TRACE_WHY_MAX];
    const char *text = LINE(10, "[]") LINE(9000, "[]") LINE(20, "[]") LINE(30, "[]") "garbage\n";
    cr_assert(parse(text, &(trace_limits){ .requests_max = 3, .tokens_max = 8000 }, &trace, why));
    cr_expect_eq(trace.count, 3, "what comes after the cap is not read");
    cr_expect_eq(trace.requests[1].room, 3);
    cr_expect_eq(trace.requests[2].room, 4);
    trace_free(&trace);
}

struct bad_line {
    char text[200];
    char why[100];
};

ParameterizedTestParameters(trace, a_malformed_line_is_named_with_file_and_line)
{
    static struct bad_line lines[] = {
        { "nonsense", "t.jsonl:2: column" },
        { "[1]", "t.jsonl:2: not a JSON object" },
        { "{\"input_length\":1,\"output_length\":1,\"hash_ids\":[]}", "timestamp is missing" },
        { "{\"timestamp\":\"a\",\"input_length\":1,\"output_length\":1,\"hash_ids\":[]}",
                "timestamp is missing or not a number" },
        { "{\"timestamp\":1,\"output_length\":1,\"hash_ids\":[]}", "input_length is missing" },
        { "{\"timestamp\":1,\"input_length\":1.5,\"output_length\":1,\"hash_ids\":[]}",
                "input_length is not a whole number" },
        { "{\"timestamp\":1,\"input_length\":0,\"output_length\":1,\"hash_ids\":[]}",
                "input_length is 0, allowed are 1 to" },
        { "{\"timestamp\":1,\"input_length\":4294967297,\"output_length\":1,\"hash_ids\":[]}",
                "input_length is 4294967297" },
        { "{\"timestamp\":1,\"input_length\":1,\"output_length\":-1,\"hash_ids\":[]}",
                "output_length is -1, allowed are 0 to" },
        { "{\"timestamp\":1,\"input_length\":1,\"output_length\":1}", "hash_ids is missing" },
        { "{\"timestamp\":1,\"input_length\":1,\"output_length\":1,\"hash_ids\":7}",
                "hash_ids is not a list" },
        { "{\"timestamp\":1,\"input_length\":1,\"output_length\":1,\"hash_ids\":[1,\"x\"]}",
                "hash_ids[1] is not a whole number" },
        { "{\"timestamp\":1,\"input_length\":1,\"output_length\":1,\"hash_ids\":[]} x",
                "t.jsonl:2: column" },
        { "{\"timestamp\":1,\"input_length\":1,\"input_length\":2,\"output_length\":1,"
          "\"hash_ids\":[]}",
                "t.jsonl:2: column" },
    };
    return cr_make_param_array(struct bad_line, lines, sizeof(lines) / sizeof(lines[0]));
}

ParameterizedTest(struct bad_line *line, trace, a_malformed_line_is_named_with_file_and_line)
{
    request_trace trace = { .count = 99 };
    char why[TRACE_WHY_MAX] = "";
    char text[512];
    snprintf(text, sizeof(text), "%s%s\n%s", LINE(700, "[0, 1]"), line->text, LINE(1, "[]"));
    cr_assert_not(parse(text, &no_limits, &trace, why), "%s", line->text);
    cr_expect_eq(trace.count, 99, "outputs stay untouched on failure");
    cr_expect_not_null(strstr(why, "t.jsonl:2: "), "%s", why);
    cr_expect_not_null(strstr(why, line->why), "%s", why);
}

Test(trace, a_trace_without_requests_is_refused)
{
    request_trace trace;
    char why[TRACE_WHY_MAX];
    cr_expect_not(parse("\n\n", &no_limits, &trace, why));
    cr_expect_not_null(strstr(why, "no request"), "%s", why);
    cr_expect_not(parse(LINE(50, "[]"), &(trace_limits){ .tokens_max = 49 }, &trace, why));
}

Test(trace, a_file_is_read_and_a_missing_one_is_named)
{
    request_trace trace;
    char why[TRACE_WHY_MAX];
    char path[] = "/tmp/kvx-trace-XXXXXX";
    const int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    const char *text = LINE(700, "[0, 1]");
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    cr_expect(trace_load(path, &no_limits, &trace, why), "%s", why);
    cr_expect_eq(trace.count, 1);
    trace_free(&trace);
    unlink(path);
    cr_expect_not(trace_load(path, &no_limits, &trace, why));
    cr_expect_not_null(strstr(why, path), "%s", why);
    cr_expect_not(trace_load("/", &no_limits, &trace, why));
    cr_expect_not_null(strstr(why, "/: cannot read the trace: "), "%s", why);
}

Test(trace, generated_requests_have_the_length_asked_for_and_share_a_quarter)
{
    request_trace trace;
    char why[TRACE_WHY_MAX];
    cr_assert(trace_generate(9, 4100, &trace, why));
    cr_expect_eq(trace.count, 9);
    cr_expect_eq(trace.requests[8].tokens, 4100);
    cr_expect_eq(trace_origin(&trace.requests[0], 1023), trace_origin(&trace.requests[3], 1023));
    cr_expect_neq(trace_origin(&trace.requests[0], 1024), trace_origin(&trace.requests[3], 1024));
    cr_expect_neq(trace_origin(&trace.requests[0], 0), trace_origin(&trace.requests[4], 0));
    trace_free(&trace);
}

/* Any bytes give a trace or a message, never anything else; a sanitizer sees the rest. */
Test(trace, damaged_lines_never_do_worse_than_fail)
{
    uint64_t random = test_seed();
    for (uint64_t round = test_rounds(2000); round > 0; round--) {
        char text[] = LINE(1600, "[1, 2, 3, 4]") LINE(20, "[8]");
        for (uint64_t hits = 1 + test_random_below(&random, 4); hits > 0; hits--)
            text[test_random_below(&random, sizeof(text) - 1)] = (char)test_random(&random);
        request_trace trace;
        char why[TRACE_WHY_MAX] = "";
        if (trace_parse("t", text, sizeof(text) - 1, &no_limits, &trace, why))
            trace_free(&trace);
        else
            cr_expect_eq(strncmp(why, "t:", 2), 0, "%s", why);
    }
}
