/* SPDX-License-Identifier: Apache-2.0 */
/* kvx-decode: runs the requests of a trace as a decode engine would: subscribes to rooms, takes
 * pages when a room is ready, pulls, checks every byte, lets the request live, frees. */
#include "engine.h"

#include "pair/host.h"
#include "pair/options.h"
#include "pair/progress.h"
#include "pair/report.h"
#include "pair/setup.h"

#include <signal.h>
#include <string.h>

#define CLOSE_MS        2000
#define CLOSE_SIGNAL_MS 300
#define WAIT_LEAVE_MS   10
/* How long what is under way may take to end when nobody waits for it any more. */
#define LEAVE_NS (300 * HOST_NS_PER_MS)
/* How long failed rooms may take to end once the run is over. */
#define END_NS (700 * HOST_NS_PER_MS)

typedef struct decode_run {
    pair_setup setup;
    decode_engine engine;
    progress_bar bar;
    bool was_up;         /* ever */
    bool is_refused;     /* for good */
    uint64_t started_ns; /* of the first subscription */
    uint64_t down_ns;    /* since when the peer is not up */
    uint64_t ended_ns;   /* when the loop was left */
    uint64_t ending_ns;  /* since when nothing new is begun; 0: not ending */
    char lost_text[192]; /* why the peer is not up */
} decode_run;

static void run_end(decode_run *run)
{
    if (run->ending_ns != 0)
        return;
    run->ending_ns = host_now_ns();
    run->engine.is_ending = true;
}

static void on_up(decode_run *run)
{
    kvx_ep_info info = { 0 };
    const char *transport =
            kvx_node_transport(kvx_group_node(run->setup.group, 0), (kvx_peer_id){ 0 }, &info);
    decode_report *const report = &run->engine.report;

    run->engine.is_up = true;
    (void)snprintf(report->transport, sizeof(report->transport), "%s",
            transport == NULL ? "unknown" : transport);
    (void)snprintf(report->read_mode, sizeof(report->read_mode), "%s",
            info.read_mode == KVX_READ_ONE_SIDED ? "one-sided" : "served");
    progress_clear(&run->bar);
    (void)fprintf(run->setup.out, "connected to %s: %s, %s%s%s\n", run->setup.address,
            report->transport, report->read_mode, info.lane[0] == '\0' ? "" : ", ", info.lane);
    if (!run->was_up)
        run->started_ns = host_now_ns();
    run->was_up = true;
}

static void on_lost(decode_run *run, const kvx_event *event)
{
    if (run->engine.is_up || run->down_ns == 0)
        run->down_ns = host_now_ns();
    if (run->engine.is_up) {
        progress_clear(&run->bar);
        (void)fprintf(run->setup.out, "prefill at %s is lost%s%s\n", run->setup.address,
                event->text[0] == '\0' ? "" : ": ", event->text);
    }
    run->engine.is_up = false;
    (void)snprintf(run->lost_text, sizeof(run->lost_text), "%s",
            event->text[0] == '\0' ? kvx_status_text(event->status) : event->text);
    run->is_refused = event->status == KVX_MISMATCH || event->status == KVX_UNREACHABLE ||
                      event->status == KVX_REFUSED || event->status == KVX_PROTOCOL;
    if (run->is_refused || (run->was_up && run->setup.options.reconnect_s == 0))
        run_end(run);
}

static void take_event(decode_run *run, const kvx_event *event)
{
    if (event->kind == KVX_EVENT_PEER_UP)
        on_up(run);
    else if (event->kind == KVX_EVENT_PEER_LOST)
        on_lost(run, event);
    else
        engine_event(&run->engine, event);
}

/* Give up on a peer that stays away. */
static void judge_absence(decode_run *run)
{
    if (run->engine.is_up || run->ending_ns != 0)
        return;
    const pair_options *const options = &run->setup.options;
    const int limit_s = run->was_up ? options->reconnect_s : options->connect_s;
    if (host_now_ns() - run->down_ns >= (uint64_t)limit_s * HOST_NS_PER_SECOND)
        run_end(run);
}

static uint32_t wait_ms(const decode_run *run)
{
    if (run->engine.verifying > 0)
        return 1;
    return 20;
}

static bool is_over(const decode_run *run)
{
    if (engine_is_done(&run->engine))
        return true;
    return run->ending_ns != 0 && host_now_ns() - run->ending_ns > END_NS;
}

static void show_progress(decode_run *run)
{
    const decode_engine *const engine = &run->engine;
    const progress_state state = {
        .done = engine->tokens_done,
        .rooms = engine->report.requests,
        .room_max = engine->room_count,
        .bytes = engine->report.bytes,
    };
    if (run->was_up)
        progress_show(&run->bar, &state);
    setup_write_metrics(&run->setup, false);
}

static void run_loop(decode_run *run)
{
    run->down_ns = host_now_ns();
    progress_start(&run->bar, run->setup.out, run->setup.trace.tokens);
    while (host_stop_signal() == 0 && !is_over(run)) {
        kvx_event event;
        if (kvx_group_wait(run->setup.group, &event, wait_ms(run)))
            do
                take_event(run, &event);
            while (kvx_group_poll(run->setup.group, &event));
        judge_absence(run);
        engine_step(&run->engine);
        show_progress(run);
    }
    run->ended_ns = host_now_ns();
    progress_clear(&run->bar);
}

/* Quiet pages let prefill have its own at once; without them it waits for the leases to end. */
static void leave_rooms(decode_run *run)
{
    const uint64_t end_ns = host_now_ns() + LEAVE_NS;
    kvx_event event;
    if (run->engine.waiting == 0)
        return;
    engine_leave(&run->engine);
    while (run->engine.waiting > 0 && host_now_ns() < end_ns)
        if (kvx_group_wait(run->setup.group, &event, WAIT_LEAVE_MS))
            take_event(run, &event);
}

static void explain_end(const decode_run *run)
{
    if (host_stop_signal() != 0)
        (void)fprintf(stderr, "kvx-decode: stopped by %s\n", strsignal(host_stop_signal()));
    else if (run->is_refused)
        (void)fprintf(stderr, "kvx-decode: prefill at %s cannot serve us: %s\n", run->setup.address,
                run->lost_text);
    else if (!run->was_up)
        (void)fprintf(stderr,
                "kvx-decode: no prefill at %s within %d s (%s): start kvx-prefill "
                "there, or see --connect and --connect-s\n",
                run->setup.address, run->setup.options.connect_s,
                run->lost_text[0] == '\0' ? "no answer" : run->lost_text);
    else if (run->ending_ns != 0)
        (void)fprintf(stderr, "kvx-decode: prefill at %s is gone (%s)\n", run->setup.address,
                run->lost_text);
}

/* Print what the run came to; returns the exit status. */
static int run_report(decode_run *run)
{
    decode_engine *const engine = &run->engine;
    decode_report *const report = &engine->report;
    const uint32_t leaked = engine_empty(engine);

    report->not_run = engine->room_count - report->requests;
    if (run->was_up)
        report->seconds = (double)(run->ended_ns - run->started_ns) / 1e9;
    else
        (void)snprintf(report->transport, sizeof(report->transport), "none");
    explain_end(run);
    if (leaked > 0)
        (void)fprintf(stderr, "kvx-decode: %u pages were never freed\n", leaked);
    if (run->was_up)
        report_print(report, run->setup.out);
    if (run->setup.options.json)
        report_print_json(report, stdout);
    const bool is_written = setup_is_written(&run->setup);
    if (host_stop_signal() != 0)
        return 128 + host_stop_signal();
    return report->failed > 0 || report->not_run > 0 || leaked > 0 || !is_written;
}

static int run_pair(decode_run *run)
{
    if (!setup_open_group(&run->setup))
        return 2;
    if (kvx_group_connect(run->setup.group, run->setup.address, &run->engine.peer) != KVX_OK) {
        (void)fprintf(stderr,
                "kvx-decode: cannot connect to %s: say host:port, [addr]:port or "
                "unix:/path\n",
                run->setup.address);
        return 2;
    }
    run_loop(run);
    leave_rooms(run);
    setup_write_metrics(&run->setup, true);
    const int rc = run_report(run);
    if (kvx_group_disconnect(run->setup.group, run->engine.peer) != KVX_OK)
        return rc == 0 ? 1 : rc;
    return rc;
}

int main(int argc, char **argv)
{
    static decode_run run; /* zeroed, and where layouts point to */
    pair_options options;
    if (!options_parse(OPTIONS_DECODE, argc, argv, &options))
        return 2;

    host_keep_streams();
    host_catch_signals();
    int rc = 2;
    const bool is_open = setup_open(&run.setup, &options);
    if (is_open && options.print_config)
        rc = 0;
    else if (is_open && engine_open(&run.engine, &run.setup))
        rc = run_pair(&run);
    engine_close(&run.engine);
    setup_close(&run.setup, host_stop_signal() != 0 ? CLOSE_SIGNAL_MS : CLOSE_MS);
    return rc;
}
