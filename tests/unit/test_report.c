/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pair/metrics_file.h"
#include "pair/report.h"
#include "support/seed.h"

static json_t *json_of(decode_report *report)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    report_print_json(report, out);
    fclose(out);
    json_error_t error;
    json_t *object = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    cr_assert_not_null(object, "%s: %s", error.text, text);
    free(text);
    return object;
}

static void name_transport(decode_report *report)
{
    strcpy(report->transport, "cma");
    strcpy(report->read_mode, "one-sided");
    report->reserve = "ready";
}

Test(report, the_json_object_has_the_promised_names)
{
    static const char *const names[] = { "requests", "failed", "mismatches", "bytes", "pages",
        "reads", "seconds", "gb_per_s", "transport", "read_mode", "usable_us", "wait_us",
        "allocate_us", "plan_us", "wire_us", "confirm_us", "reserve", "idle_page_seconds",
        "failures" };
    decode_report report;
    cr_assert(report_init(&report, 2));
    name_transport(&report);
    report.seconds = 2.0;
    report.requests = 1;
    report_add_pull(&report, &(kvx_pull_stats){ .bytes = 4000000000,
                                     .reads = 5,
                                     .pages = 20,
                                     .wait_ns = 1,
                                     .allocate_ns = 1000,
                                     .plan_ns = 2000,
                                     .wire_ns = 3000,
                                     .confirm_ns = 4000 });
    report_add_failure(&report, KVX_PEER_LOST);
    report_add_failure(&report, REPORT_CAUSE_TOO_LARGE);
    report_add_failure(&report, KVX_PEER_LOST);

    json_t *object = json_of(&report);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        cr_expect_not_null(json_object_get(object, names[i]), "%s", names[i]);
    cr_expect_eq(json_integer_value(json_object_get(object, "requests")), 4);
    cr_expect_eq(json_integer_value(json_object_get(object, "failed")), 3);
    cr_expect_float_eq(json_real_value(json_object_get(object, "gb_per_s")), 2.0, 0.001);
    const json_t *usable = json_object_get(object, "usable_us");
    cr_expect_float_eq(json_real_value(json_object_get(usable, "p50")), 10.0, 0.001);
    cr_expect_not_null(json_object_get(usable, "p99"));
    cr_expect_not_null(json_object_get(usable, "max"));
    const json_t *failures = json_object_get(object, "failures");
    cr_expect_eq(json_integer_value(json_object_get(failures, "peer_lost")), 2);
    cr_expect_eq(json_integer_value(json_object_get(failures, "too_large")), 1);
    json_decref(object);
    report_fini(&report);
}

Test(report, an_empty_run_is_an_object_too)
{
    decode_report report;
    cr_assert(report_init(&report, 1));
    name_transport(&report);
    json_t *object = json_of(&report);
    cr_expect_eq(json_integer_value(json_object_get(object, "requests")), 0);
    json_decref(object);
    report_fini(&report);
}

/* The quantile is one of the samples, and enough of them are at most that. */
Test(report, quantiles_agree_with_counting)
{
    uint64_t random = test_seed();
    for (uint64_t round = test_rounds(50); round > 0; round--) {
        const size_t count = 1 + test_random_below(&random, 300);
        decode_report report;
        uint64_t samples[300];
        cr_assert(report_init(&report, count));
        name_transport(&report);
        for (size_t i = 0; i < count; i++) {
            samples[i] = test_random_below(&random, 1000) * 1000;
            report_add_pull(&report, &(kvx_pull_stats){ .wire_ns = samples[i] });
        }
        json_t *object = json_of(&report);
        const double p99 =
                json_real_value(json_object_get(json_object_get(object, "wire_us"), "p99"));
        size_t below = 0;
        size_t within = 0;
        for (size_t i = 0; i < count; i++) {
            below += (double)samples[i] / 1e3 < p99;
            within += (double)samples[i] / 1e3 <= p99;
        }
        cr_assert_geq(within * 100, count * 99);
        cr_assert_lt(below * 100, count * 99);
        json_decref(object);
        report_fini(&report);
    }
}

Test(report, metrics_of_ranks_are_merged_by_family)
{
    char first[] = "# HELP a x\n# TYPE a counter\na{rank=\"0\"} 1\n# HELP b y\n# TYPE b gauge\n"
                   "b{rank=\"0\",q=\"1\"} 2\nb{rank=\"0\",q=\"2\"} 3\n";
    char second[] = "# HELP a x\n# TYPE a counter\na{rank=\"1\"} 4\n# HELP b y\n# TYPE b gauge\n"
                    "b{rank=\"1\",q=\"1\"} 5\nb{rank=\"1\",q=\"2\"} 6\n";
    char *texts[] = { first, second };
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    metrics_merge(texts, 2, out);
    fclose(out);
    cr_expect_str_eq(text,
            "# HELP a x\n# TYPE a counter\na{rank=\"0\"} 1\na{rank=\"1\"} 4\n# HELP b y\n"
            "# TYPE b gauge\nb{rank=\"0\",q=\"1\"} 2\nb{rank=\"0\",q=\"2\"} 3\n"
            "b{rank=\"1\",q=\"1\"} 5\nb{rank=\"1\",q=\"2\"} 6\n");
    free(text);
}
