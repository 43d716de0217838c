/* SPDX-License-Identifier: Apache-2.0 */
#include "pair/report.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define GIB (1024.0 * 1024.0 * 1024.0)

bool report_init(decode_report *report, size_t requests)
{
    *report = (decode_report){ .sample_max = requests };
    for (int i = 0; i < REPORT_STAGE_COUNT; i++) {
        report->stages[i] = calloc(requests, sizeof(*report->stages[i]));
        if (report->stages[i] == NULL) {
            report_fini(report);
            return false;
        }
    }
    return true;
}

void report_fini(decode_report *report)
{
    for (int i = 0; i < REPORT_STAGE_COUNT; i++) {
        free(report->stages[i]);
        report->stages[i] = NULL;
    }
}

void report_add_pull(decode_report *report, const kvx_pull_stats *stats)
{
    report->bytes += stats->bytes;
    report->pages += stats->pages;
    report->reads += stats->reads;
    if (report->sample_count == report->sample_max)
        return;
    const size_t i = report->sample_count++;
    report->stages[REPORT_wait][i] = stats->wait_ns;
    report->stages[REPORT_allocate][i] = stats->allocate_ns;
    report->stages[REPORT_plan][i] = stats->plan_ns;
    report->stages[REPORT_wire][i] = stats->wire_ns;
    report->stages[REPORT_confirm][i] = stats->confirm_ns;
    report->stages[REPORT_usable][i] =
            stats->allocate_ns + stats->plan_ns + stats->wire_ns + stats->confirm_ns;
}

void report_add_failure(decode_report *report, int code)
{
    uint32_t i = 0;
    report->requests++;
    report->failed++;
    while (i < report->cause_count && report->causes[i].code != code)
        i++;
    if (i == REPORT_CAUSES_MAX)
        return;
    if (i == report->cause_count)
        report->causes[report->cause_count++].code = code;
    report->causes[i].count++;
}

static void cause_name(int code, char *name, size_t size)
{
    const char *text =
            code == REPORT_CAUSE_TOO_LARGE ? "too_large" : kvx_status_name((kvx_status)code);
    (void)snprintf(name, size, "%s", text);
    for (char *letter = name; *letter != '\0'; letter++)
        *letter = (char)tolower((unsigned char)*letter);
}

static int compare_samples(const void *left, const void *right)
{
    uint64_t a;
    uint64_t b;
    memcpy(&a, left, sizeof(a));
    memcpy(&b, right, sizeof(b));
    return (a > b) - (a < b);
}

/* What a stage took, in microseconds. */
typedef struct stage_times {
    double p50;
    double p99;
    double max;
} stage_times;

static double sample_at(const uint64_t *samples, size_t count, size_t percent)
{
    const size_t rank = (count * percent + 99) / 100;
    return (double)samples[rank == 0 ? 0 : rank - 1] / 1e3;
}

static stage_times stage_of(decode_report *report, report_stage stage)
{
    uint64_t *const samples = report->stages[stage];
    const size_t count = report->sample_count;
    if (count == 0)
        return (stage_times){ 0 };
    qsort(samples, count, sizeof(*samples), compare_samples);
    return (stage_times){
        .p50 = sample_at(samples, count, 50),
        .p99 = sample_at(samples, count, 99),
        .max = (double)samples[count - 1] / 1e3,
    };
}

static double per(uint64_t amount, double of)
{
    return of > 0.0 ? (double)amount / of : 0.0;
}

static void print_causes(const decode_report *report, FILE *out)
{
    char name[32];
    for (uint32_t i = 0; i < report->cause_count; i++) {
        cause_name(report->causes[i].code, name, sizeof(name));
        (void)fprintf(out, "%s %s %" PRIu64, i == 0 ? ":" : ",", name, report->causes[i].count);
    }
    if (report->retried > 0)
        (void)fprintf(out, "; asked for again %" PRIu64, report->retried);
    if (report->not_run > 0)
        (void)fprintf(out, "; not run %" PRIu64, report->not_run);
    (void)fputc('\n', out);
}

void report_print(decode_report *report, FILE *out)
{
    (void)fprintf(out, "requests      %" PRIu64 " of %" PRIu64 " right, %" PRIu64 " failed",
            report->requests - report->failed, report->requests + report->not_run, report->failed);
    print_causes(report, out);
    (void)fprintf(out, "verification  %s, %" PRIu64 " mismatches\n",
            report->is_verified ? "every byte compared" : "off", report->mismatches);
    (void)fprintf(out, "pulled        %.2f GiB in %.1f s, %.2f GB/s (%s, %s)\n",
            (double)report->bytes / GIB, report->seconds, per(report->bytes, report->seconds) / 1e9,
            report->transport, report->read_mode);
    (void)fprintf(out, "not pulled    %.2f GiB of prefixes that were here already\n",
            (double)report->skipped_bytes / GIB);
    (void)fprintf(out, "pages, reads  %" PRIu64 " and %" PRIu64 ": %.2f pages a read\n",
            report->pages, report->reads, per(report->pages, (double)report->reads));
    (void)fprintf(out, "reserve       %s: %.1f page-seconds taken and idle before the wire\n",
            report->reserve, report->idle_page_seconds);
    (void)fprintf(out, "%-13s %12s %12s %12s\n", "microseconds", "p50", "p99", "max");
#define REPORT_STAGE_LINE(name, what)                                                         \
    {                                                                                         \
        const stage_times times = stage_of(report, REPORT_##name);                            \
        (void)fprintf(out, "  %-11s %12.1f %12.1f %12.1f  %s\n", #name, times.p50, times.p99, \
                times.max, what);                                                             \
    }
    REPORT_STAGE_LIST(REPORT_STAGE_LINE)
#undef REPORT_STAGE_LINE
}

static void print_json_causes(const decode_report *report, FILE *out)
{
    char name[32];
    (void)fputs(", \"failures\": {", out);
    for (uint32_t i = 0; i < report->cause_count; i++) {
        cause_name(report->causes[i].code, name, sizeof(name));
        (void)fprintf(out, "%s\"%s\": %" PRIu64, i == 0 ? "" : ", ", name, report->causes[i].count);
    }
    (void)fputc('}', out);
}

void report_print_json(decode_report *report, FILE *out)
{
    (void)fprintf(out,
            "{\"requests\": %" PRIu64 ", \"failed\": %" PRIu64 ", \"not_run\": %" PRIu64
            ", \"retried\": %" PRIu64 ", \"mismatches\": %" PRIu64
            ", \"verified\": %s, \"bytes\": %" PRIu64 ", \"skipped_bytes\": %" PRIu64
            ", \"pages\": %" PRIu64 ", \"reads\": %" PRIu64
            ", \"pages_per_read\": %.3f, \"seconds\": %.3f, \"gb_per_s\": %.4f",
            report->requests, report->failed, report->not_run, report->retried, report->mismatches,
            report->is_verified ? "true" : "false", report->bytes, report->skipped_bytes,
            report->pages, report->reads, per(report->pages, (double)report->reads),
            report->seconds, per(report->bytes, report->seconds) / 1e9);
    (void)fprintf(out,
            ", \"transport\": \"%s\", \"read_mode\": \"%s\", \"reserve\": \"%s\""
            ", \"idle_page_seconds\": %.3f",
            report->transport, report->read_mode, report->reserve, report->idle_page_seconds);
#define REPORT_STAGE_JSON(name, what)                                                           \
    {                                                                                           \
        const stage_times times = stage_of(report, REPORT_##name);                              \
        (void)fprintf(out, ", \"" #name "_us\": {\"p50\": %.1f, \"p99\": %.1f, \"max\": %.1f}", \
                times.p50, times.p99, times.max);                                               \
    }
    REPORT_STAGE_LIST(REPORT_STAGE_JSON)
#undef REPORT_STAGE_JSON
    print_json_causes(report, out);
    (void)fputs("}\n", out);
    (void)fflush(out);
}
