/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "metrics/metrics.h"
#include "support/seed.h"

static kvx_metrics metrics;
static char text[65536];

static kvx_metrics_snapshot taken(void)
{
    kvx_metrics_snapshot snapshot = { .struct_size = sizeof(snapshot) };
    cr_assert_eq(kvx_metrics_snapshot_take(&metrics, &snapshot), KVX_OK);
    return snapshot;
}

static void expect_text(const char *part)
{
    cr_expect_not_null(strstr(text, part), "'%s' is missing in\n%s", part, text);
}

Test(metrics, a_snapshot_has_what_was_counted)
{
    kvx_count(&metrics.published, 3);
    kvx_count(&metrics.parked_rooms, 5);
    kvx_uncount(&metrics.parked_rooms, 2);
    const kvx_metrics_snapshot snapshot = taken();
    cr_expect_eq(snapshot.published, 3);
    cr_expect_eq(snapshot.parked_rooms, 3);
    cr_expect_eq(snapshot.released, 0);
    cr_expect_eq(snapshot.struct_size, sizeof(snapshot));
}

Test(metrics, a_snapshot_of_no_or_a_larger_size_is_invalid)
{
    kvx_metrics_snapshot snapshot = { .published = 7 };
    cr_expect_eq(kvx_metrics_snapshot_take(&metrics, &snapshot), KVX_INVALID);
    snapshot.struct_size = sizeof(snapshot) + 1;
    cr_expect_eq(kvx_metrics_snapshot_take(&metrics, &snapshot), KVX_INVALID);
    cr_expect_eq(snapshot.published, 7);
}

Test(metrics, a_shorter_snapshot_is_filled_as_far_as_it_goes)
{
    kvx_metrics_snapshot snapshot = { .struct_size = offsetof(kvx_metrics_snapshot, lapsed) };
    snapshot.lapsed = 99;
    kvx_count(&metrics.released, 4);
    cr_assert_eq(kvx_metrics_snapshot_take(&metrics, &snapshot), KVX_OK);
    cr_expect_eq(snapshot.released, 4);
    cr_expect_eq(snapshot.lapsed, 99);
    cr_expect_eq(snapshot.struct_size, offsetof(kvx_metrics_snapshot, lapsed));
}

Test(metrics, every_cause_is_counted_once_and_under_its_name)
{
    static const kvx_status lost[] = { KVX_PEER_LOST, KVX_UNREACHABLE, KVX_CLOSED };
    static const kvx_status refused[] = { KVX_REFUSED, KVX_GONE };
    static const kvx_status others[] = { KVX_PROTOCOL, KVX_READ_FAILED, KVX_NO_MEMORY, KVX_IO,
        KVX_INVALID, KVX_MISMATCH, KVX_BUSY, (kvx_status)-999 };
    kvx_metrics_count_failure(&metrics, KVX_EXPIRED);
    kvx_metrics_count_failure(&metrics, KVX_REVOKED);
    kvx_metrics_count_failure(&metrics, KVX_CANCELLED);
    kvx_metrics_count_failure(&metrics, KVX_DEADLINE);
    for (size_t i = 0; i < 3; i++)
        kvx_metrics_count_failure(&metrics, lost[i]);
    for (size_t i = 0; i < 2; i++)
        kvx_metrics_count_failure(&metrics, refused[i]);
    for (size_t i = 0; i < 8; i++)
        kvx_metrics_count_failure(&metrics, others[i]);
    const kvx_metrics_snapshot snapshot = taken();
    cr_expect_eq(snapshot.failed_expired, 1);
    cr_expect_eq(snapshot.failed_revoked, 1);
    cr_expect_eq(snapshot.failed_cancelled, 1);
    cr_expect_eq(snapshot.failed_deadline, 1);
    cr_expect_eq(snapshot.failed_peer_lost, 3);
    cr_expect_eq(snapshot.failed_refused, 2);
    cr_expect_eq(snapshot.failed_protocol, 8);
}

Test(metrics, counters_and_gauges_are_rendered)
{
    kvx_count(&metrics.published, 3);
    kvx_count(&metrics.parked_rooms, 2);
    (void)kvx_metrics_render(&metrics, "rank=\"0\"", text, sizeof(text));
    expect_text("# HELP kvx_published_total rooms published\n"
                "# TYPE kvx_published_total counter\n"
                "kvx_published_total{rank=\"0\"} 3\n");
    expect_text("# TYPE kvx_parked_rooms gauge\nkvx_parked_rooms{rank=\"0\"} 2\n");
}

Test(metrics, failures_are_one_family)
{
    kvx_metrics_count_failure(&metrics, KVX_GONE);
    (void)kvx_metrics_render(&metrics, "rank=\"0\"", text, sizeof(text));
    expect_text("# TYPE kvx_failed_total counter\n"
                "kvx_failed_total{rank=\"0\",cause=\"expired\"} 0\n"
                "kvx_failed_total{rank=\"0\",cause=\"revoked\"} 0\n");
    expect_text("kvx_failed_total{rank=\"0\",cause=\"refused\"} 1\n");
    const char *head = strstr(text, "# TYPE kvx_failed_total");
    cr_expect_null(strstr(head + 1, "# TYPE kvx_failed"));
}

Test(metrics, without_labels_there_are_no_empty_braces)
{
    (void)kvx_metrics_render(&metrics, NULL, text, sizeof(text));
    expect_text("\nkvx_published_total 0\n");
    expect_text("\nkvx_failed_total{cause=\"expired\"} 0\n");
    expect_text("\nkvx_wait_seconds_bucket{le=\"1\"} 0\n");
    cr_expect_null(strstr(text, "{}"));
    cr_expect_null(strstr(text, "{,"));
}

Test(metrics, a_histogram_is_in_seconds_and_cumulative)
{
    kvx_hist_add(&metrics.wait_ns, 500);
    kvx_hist_add(&metrics.wait_ns, 3000000);
    kvx_hist_add(&metrics.wait_ns, UINT64_C(200000000000));
    (void)kvx_metrics_render(&metrics, "rank=\"0\"", text, sizeof(text));
    expect_text("# TYPE kvx_wait_seconds histogram\n");
    expect_text("kvx_wait_seconds_bucket{rank=\"0\",le=\"1e-06\"} 1\n");
    expect_text("kvx_wait_seconds_bucket{rank=\"0\",le=\"0.0025\"} 1\n");
    expect_text("kvx_wait_seconds_bucket{rank=\"0\",le=\"0.005\"} 2\n");
    expect_text("kvx_wait_seconds_bucket{rank=\"0\",le=\"100\"} 2\n");
    expect_text("kvx_wait_seconds_bucket{rank=\"0\",le=\"+Inf\"} 3\n");
    expect_text("kvx_wait_seconds_sum{rank=\"0\"} 200.003000500\n");
    expect_text("kvx_wait_seconds_count{rank=\"0\"} 3\n");
}

Test(metrics, a_buffer_of_any_size_gets_the_beginning_and_the_size_is_told)
{
    static char cut[sizeof(text)];
    uint64_t random = test_seed();
    const size_t whole = kvx_metrics_render(&metrics, "rank=\"0\"", text, sizeof(text));
    cr_assert_eq(whole, strlen(text));
    cr_expect_eq(kvx_metrics_render(&metrics, "rank=\"0\"", NULL, 0), whole);
    for (uint64_t round = 0; round < test_rounds(300); round++) {
        const size_t size = 1 + test_random_below(&random, whole + 10);
        memset(cut, 'x', sizeof(cut));
        cr_assert_eq(kvx_metrics_render(&metrics, "rank=\"0\"", cut, size), whole);
        const size_t length = size - 1 < whole ? size - 1 : whole;
        cr_assert_eq(strlen(cut), length);
        cr_assert_eq(strncmp(cut, text, length), 0);
        cr_assert_eq(cut[size], 'x');
    }
}

/* Each line is a comment or a name, maybe labels, and a number; buckets never fall. */
Test(metrics, every_line_is_well_formed_and_buckets_never_fall)
{
    uint64_t random = test_seed();
    for (int i = 0; i < 5000; i++)
        kvx_hist_add(&metrics.wire_ns, test_random(&random) >> test_random_below(&random, 64));
    (void)kvx_metrics_render(&metrics, "rank=\"0\"", text, sizeof(text));
    unsigned long long before = 0;
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
            line = strtok_r(NULL, "\n", &rest)) {
        char *end = NULL;
        if (strncmp(line, "# HELP kvx_", 11) == 0 || strncmp(line, "# TYPE kvx_", 11) == 0)
            continue;
        cr_assert_eq(strncmp(line, "kvx_", 4), 0, "%s", line);
        char *value = strrchr(line, ' ');
        cr_assert_not_null(value);
        (void)strtod(value + 1, &end);
        cr_assert_eq(*end, '\0', "%s", line);
        if (strncmp(line, "kvx_wire_seconds_bucket", 23) != 0)
            continue;
        const unsigned long long now = strtoull(value + 1, NULL, 10);
        cr_assert_geq(now, before);
        before = now;
    }
    cr_expect_eq(before, 5000);
}
