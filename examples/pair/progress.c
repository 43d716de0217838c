/* SPDX-License-Identifier: Apache-2.0 */
#include "pair/progress.h"

#include "pair/host.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define BAR_WIDTH   24
#define TERMINAL_NS (100 * HOST_NS_PER_MS)
#define LINE_NS     (5 * HOST_NS_PER_SECOND)

void progress_start(progress_bar *bar, FILE *out, uint64_t total)
{
    *bar = (progress_bar){
        .out = out,
        .is_terminal = isatty(fileno(out)) == 1,
        .total = total,
        .started_ns = host_now_ns(),
    };
    bar->shown_ns = bar->started_ns;
}

static void format_eta(double seconds, char *text, size_t size)
{
    if (seconds >= 360000.0) {
        (void)snprintf(text, size, "--:--");
        return;
    }
    const unsigned whole = (unsigned)(seconds + 0.5);
    if (whole >= 3600)
        (void)snprintf(text, size, "%u:%02u:%02u", whole / 3600, whole / 60 % 60, whole % 60);
    else
        (void)snprintf(text, size, "%02u:%02u", whole / 60, whole % 60);
}

void progress_show(progress_bar *bar, const progress_state *state)
{
    const uint64_t now_ns = host_now_ns();
    if (now_ns - bar->shown_ns < (bar->is_terminal ? TERMINAL_NS : LINE_NS))
        return;
    bar->shown_ns = now_ns;

    const double seconds = (double)(now_ns - bar->started_ns) / 1e9;
    const double part = bar->total == 0 ? 0.0 : (double)state->done / (double)bar->total;
    char eta[24];
    format_eta(part > 0.0 ? seconds * (1.0 - part) / part : 1e9, eta, sizeof(eta));

    if (bar->is_terminal) {
        char fill[BAR_WIDTH + 1];
        memset(fill, '.', BAR_WIDTH);
        memset(fill, '#', (size_t)(part * BAR_WIDTH));
        fill[BAR_WIDTH] = '\0';
        (void)fprintf(bar->out, "\r[%s] ", fill);
    }
    (void)fprintf(bar->out, "%5.1f %%  %" PRIu64 "/%" PRIu64 " rooms  %.2f GiB  %.2f GB/s  eta %s%s",
            part * 100.0, state->rooms, state->room_max, (double)state->bytes / (1 << 30),
            (double)state->bytes / 1e9 / seconds, eta, bar->is_terminal ? "\x1b[K" : "\n");
    (void)fflush(bar->out);
}

void progress_clear(progress_bar *bar)
{
    if (!bar->is_terminal)
        return;
    (void)fputs("\r\x1b[K", bar->out);
    (void)fflush(bar->out);
}
