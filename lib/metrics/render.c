/* SPDX-License-Identifier: Apache-2.0 */
/* Prometheus text, format 0.0.4. */
#include "metrics/metrics.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"

#define FAILED_PREFIX "failed_"
#define FAILED_HELP   "pulls and subscriptions failed, by cause"

/* Where the text goes; it is counted on past the end, so that the caller learns the size. */
typedef struct text_page {
    char *buffer;
    size_t size;
    size_t length;
    const char *labels; /* "" or `rank="0"` */
} text_page;

/* Bounds of the histograms' buckets. */
static const struct {
    uint64_t limit_ns;
    const char *seconds;
} bounds[] = {
    { 1000, "1e-06" },
    { 2500, "2.5e-06" },
    { 5000, "5e-06" },
    { 10000, "1e-05" },
    { 25000, "2.5e-05" },
    { 50000, "5e-05" },
    { 100000, "0.0001" },
    { 250000, "0.00025" },
    { 500000, "0.0005" },
    { 1000000, "0.001" },
    { 2500000, "0.0025" },
    { 5000000, "0.005" },
    { 10000000, "0.01" },
    { 25000000, "0.025" },
    { 50000000, "0.05" },
    { 100000000, "0.1" },
    { 250000000, "0.25" },
    { 500000000, "0.5" },
    { 1000000000, "1" },
    { 2500000000, "2.5" },
    { 5000000000, "5" },
    { 10000000000, "10" },
    { 25000000000, "25" },
    { 50000000000, "50" },
    { 100000000000, "100" },
};

static void page_add(text_page *page, const char *format, ...) KVX_PRINTF(2, 3);
static void page_add(text_page *page, const char *format, ...)
{
    const size_t used = page->length < page->size ? page->length : page->size;
    va_list args;
    va_start(args, format);
    const int count = vsnprintf(
            page->size == used ? NULL : page->buffer + used, page->size - used, format, args);
    va_end(args);
    if (count > 0)
        page->length += (size_t)count;
}

static void head_add(
        text_page *page, const char *name, const char *unit, const char *help, const char *type)
{
    page_add(page, "# HELP kvx_%s%s %s\n", name, unit, help);
    page_add(page, "# TYPE kvx_%s%s %s\n", name, unit, type);
}

/* One sample, with one label more than the caller's if there is one. */
static void sample_add(text_page *page, const char *name, const char *unit, const char *label,
        const char *label_value, uint64_t value)
{
    const char *labels = page->labels;
    const char *comma = labels[0] != '\0' && label != NULL ? "," : "";
    page_add(page, "kvx_%s%s", name, unit);
    if (label != NULL)
        page_add(page, "{%s%s%s=\"%s\"}", labels, comma, label, label_value);
    else if (labels[0] != '\0')
        page_add(page, "{%s}", labels);
    page_add(page, " %llu\n", (unsigned long long)value);
}

/* The counters of failures are one family; its head stands before the first of them. */
static void counter_add(
        text_page *page, const char *name, const char *help, const _Atomic uint64_t *counter)
{
    const uint64_t value = atomic_load_explicit(counter, memory_order_relaxed);
    if (strncmp(name, FAILED_PREFIX, strlen(FAILED_PREFIX)) == 0) {
        const char *cause = name + strlen(FAILED_PREFIX);
        if (strcmp(cause, "expired") == 0)
            head_add(page, "failed", "_total", FAILED_HELP, "counter");
        sample_add(page, "failed", "_total", "cause", cause, value);
        return;
    }
    head_add(page, name, "_total", help, "counter");
    sample_add(page, name, "_total", NULL, NULL, value);
}

static void gauge_add(
        text_page *page, const char *name, const char *help, const _Atomic uint64_t *gauge)
{
    head_add(page, name, "", help, "gauge");
    sample_add(page, name, "", NULL, NULL, atomic_load_explicit(gauge, memory_order_relaxed));
}

static void sum_add(text_page *page, const char *name, uint64_t sum_ns)
{
    page_add(page, "kvx_%s_seconds_sum", name);
    if (page->labels[0] != '\0')
        page_add(page, "{%s}", page->labels);
    page_add(page, " %llu.%09llu\n", (unsigned long long)(sum_ns / KVX_NS_PER_SECOND),
            (unsigned long long)(sum_ns % KVX_NS_PER_SECOND));
}

/* The library counts nanoseconds, Prometheus wants seconds. */
static void hist_add(text_page *page, const char *name_ns, const char *help, const kvx_hist *hist)
{
    char name[64];
    (void)snprintf(name, sizeof(name), "%.*s", (int)(strlen(name_ns) - strlen("_ns")), name_ns);
    head_add(page, name, "_seconds", help, "histogram");
    for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++)
        sample_add(page, name, "_seconds_bucket", "le", bounds[i].seconds,
                kvx_hist_at_most(hist, bounds[i].limit_ns));
    sample_add(page, name, "_seconds_bucket", "le", "+Inf", hist->count);
    sum_add(page, name, hist->sum);
    sample_add(page, name, "_seconds_count", NULL, NULL, hist->count);
}

size_t kvx_metrics_render(const kvx_metrics *metrics, const char *labels, char *buffer, size_t size)
{
    text_page page = { .buffer = buffer, .size = size, .labels = labels == NULL ? "" : labels };
    if (size > 0)
        buffer[0] = '\0';
#define FIELD_ADD(name, help) counter_add(&page, #name, help, &metrics->name);
    KVX_COUNTER_LIST(FIELD_ADD)
#undef FIELD_ADD
#define FIELD_ADD(name, help) gauge_add(&page, #name, help, &metrics->name);
    KVX_GAUGE_LIST(FIELD_ADD)
#undef FIELD_ADD
#define FIELD_ADD(name, help) hist_add(&page, #name, help, &metrics->name);
    KVX_HIST_LIST(FIELD_ADD)
#undef FIELD_ADD
    return page.length;
}
