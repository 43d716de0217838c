/* SPDX-License-Identifier: Apache-2.0 */
/* kvx-prefill: computes (here: fills) the cache of requests in trace order, publishes them, and
 * frees their pages when decode has them.
 *
 * A request arrives when a decode subscribes to its room, which takes none of decode's memory: so
 * the two sides agree on what to run as they would over a router, decodes may come and go, and one
 * that starts anew gets from a running or a restarted prefill just what it misses. */
#include "rooms.h"

#include "pair/address.h"
#include "pair/host.h"
#include "pair/options.h"
#include "pair/progress.h"
#include "pair/setup.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CLOSE_SIGNAL_MS 300
#define IDLE_MS         1
#define ALONE_MS        20
#define PEERS_MAX       4096

typedef struct prefill_run {
    pair_setup setup;
    prefill_rooms rooms;
    progress_bar bar;
    uint64_t peers[PEERS_MAX]; /* decodes that are connected */
    uint32_t peer_count;
    uint64_t visits; /* decodes that ever came */
    bool said_bye;   /* the one that left last did so in order */
    bool is_ending;
    uint64_t started_ns; /* when the first decode came */
    uint64_t started_cpu_ns;
    uint64_t ended_ns;
} prefill_run;

static void on_up(prefill_run *run, kvx_peer_id peer)
{
    if (run->visits++ == 0) {
        run->started_ns = host_now_ns();
        run->started_cpu_ns = host_process_cpu_ns();
    }
    run->is_ending = false; /* while we waited for leases another decode came: serve it */
    if (run->peer_count < PEERS_MAX)
        run->peers[run->peer_count++] = peer.value;
}

static void on_lost(prefill_run *run, kvx_peer_id peer, kvx_status status)
{
    uint32_t i = 0;
    while (i < run->peer_count && run->peers[i] != peer.value)
        i++;
    if (i == run->peer_count)
        return;
    run->peers[i] = run->peers[--run->peer_count];
    run->said_bye = status == KVX_OK;
}

static void take_event(prefill_run *run, const kvx_event *event)
{
    switch (event->kind) {
    case KVX_EVENT_PEER_UP: on_up(run, event->peer); return;
    case KVX_EVENT_PEER_LOST: on_lost(run, event->peer, event->status); return;
    case KVX_EVENT_RELEASED: rooms_released(&run->rooms, event); return;
    case KVX_EVENT_PAGES_STUCK:
        (void)fprintf(stderr, "kvx-prefill: room %" PRIu64 ": its pages stay held: %s\n",
                event->room, event->text);
        return;
    case KVX_EVENT_NONE:
    case KVX_EVENT_READY:
    case KVX_EVENT_PULLED:
    case KVX_EVENT_FAILED:
    case KVX_EVENT_PAGES_QUIET:
    case KVX_EVENT_ROOM:
    case KVX_EVENT_CREDIT: return;
    }
}

static void take_events(prefill_run *run, uint32_t timeout_ms)
{
    kvx_event event;
    if (!kvx_group_wait(run->setup.group, &event, timeout_ms))
        return;
    do
        take_event(run, &event);
    while (kvx_group_poll(run->setup.group, &event));
}

static void show_progress(prefill_run *run)
{
    const progress_state state = {
        .done = run->rooms.tokens_done,
        .rooms = run->rooms.released,
        .room_max = run->rooms.count,
        .bytes = run->rooms.bytes_released,
    };
    if (run->visits > 0)
        progress_show(&run->bar, &state);
    setup_write_metrics(&run->setup, false);
}

/* Whether the last decode left in order; then what nobody will read is taken back. */
static bool is_over(prefill_run *run)
{
    if (!run->is_ending && run->peer_count == 0 && run->said_bye) {
        run->is_ending = true;
        rooms_end(&run->rooms);
    }
    return run->is_ending && run->rooms.live == 0;
}

static void run_loop(prefill_run *run)
{
    progress_start(&run->bar, run->setup.out, run->setup.trace.tokens);
    while (host_stop_signal() == 0 && !is_over(run)) {
        /* Without a decode nobody can have asked for a room. */
        const bool is_busy = !run->is_ending && run->peer_count > 0 && rooms_step(&run->rooms);
        const uint32_t idle_ms = run->peer_count > 0 ? IDLE_MS : ALONE_MS;
        take_events(run, is_busy ? 0 : idle_ms);
        show_progress(run);
    }
    run->ended_ns = host_now_ns();
    progress_clear(&run->bar);
}

static void announce(prefill_run *run)
{
    char bound[SETUP_ADDRESS_MAX] = "";
    char host[128] = "this-host";
    FILE *const out = run->setup.out;

    if (kvx_node_address(kvx_group_node(run->setup.group, 0), bound, sizeof(bound)) != KVX_OK)
        (void)snprintf(bound, sizeof(bound), "%s", run->setup.address);
    const bool is_local = strncmp(bound, "127.", 4) == 0 || strncmp(bound, "[::1]", 5) == 0 ||
                          strncmp(bound, "unix:", 5) == 0;
    (void)fprintf(out, "bound to %s%s\n", bound, is_local ? " (this host only)" : "");
    if (!address_is_wildcard(bound)) {
        (void)fprintf(out, "advertised as %s: kvx-decode --connect %s\n", bound, bound);
        return;
    }
    (void)gethostname(host, sizeof(host) - 1);
    (void)fprintf(out, "advertised as %s%s, on every interface: kvx-decode --connect %s%s\n", host,
            strrchr(bound, ':'), host, strrchr(bound, ':'));
}

/* What a run came to. */
typedef struct prefill_summary {
    double seconds;
    double cpu_s_per_gb;         /* of the whole process */
    double library_cpu_s_per_gb; /* without filling and spoiling pages */
} prefill_summary;

static prefill_summary summarise(const prefill_run *run)
{
    const double gb = (double)run->rooms.bytes_released / 1e9;
    const uint64_t cpu_ns = host_process_cpu_ns() - run->started_cpu_ns;
    prefill_summary summary = { 0 };
    if (run->visits > 0)
        summary.seconds = (double)(run->ended_ns - run->started_ns) / 1e9;
    if (gb > 0.0) {
        summary.cpu_s_per_gb = (double)cpu_ns / 1e9 / gb;
        summary.library_cpu_s_per_gb = (double)(cpu_ns - run->rooms.engine_cpu_ns) / 1e9 / gb;
    }
    return summary;
}

static void print_summary(const prefill_run *run, const prefill_summary *summary)
{
    const prefill_rooms *const rooms = &run->rooms;
    FILE *const out = run->setup.out;

    if (host_stop_signal() != 0)
        (void)fprintf(out, "stopped by %s\n", strsignal(host_stop_signal()));
    (void)fprintf(out,
            "requests      %" PRIu64 " published: %" PRIu64 " released, %" PRIu64
            " lapsed, %" PRIu64 " taken back, %" PRIu64 " still parked; %" PRIu64 " failed\n",
            rooms->published, rooms->released, rooms->lapsed, rooms->taken_back, rooms->live,
            rooms->failed);
    (void)fprintf(out,
            "released      %.2f GiB in %.1f s; %.2f GiB of prefixes were not filled "
            "again\n",
            (double)rooms->bytes_released / (1 << 30), summary->seconds,
            (double)rooms->bytes_shared / (1 << 30));
    (void)fprintf(out, "processor     %.3f s per GB, of which %.3f s beside filling pages\n",
            summary->cpu_s_per_gb, summary->library_cpu_s_per_gb);
}

static void print_json(const prefill_run *run, const prefill_summary *summary)
{
    const prefill_rooms *const rooms = &run->rooms;
    (void)printf("{\"published\": %" PRIu64 ", \"released\": %" PRIu64 ", \"lapsed\": %" PRIu64
                 ", \"taken_back\": %" PRIu64 ", \"parked\": %" PRIu64 ", \"failed\": %" PRIu64
                 ", \"bytes\": %" PRIu64 ", \"seconds\": %.3f, \"cpu_s_per_gb\": %.4f"
                 ", \"library_cpu_s_per_gb\": %.4f}\n",
            rooms->published, rooms->released, rooms->lapsed, rooms->taken_back, rooms->live,
            rooms->failed, rooms->bytes_released, summary->seconds, summary->cpu_s_per_gb,
            summary->library_cpu_s_per_gb);
}

static int run_pair(prefill_run *run)
{
    if (!setup_open_group(&run->setup))
        return 2;
    announce(run);
    run_loop(run);
    setup_write_metrics(&run->setup, true);
    const prefill_summary summary = summarise(run);
    print_summary(run, &summary);
    if (run->setup.options.json)
        print_json(run, &summary);
    return run->rooms.failed > 0 || !setup_is_written(&run->setup);
}

int main(int argc, char **argv)
{
    static prefill_run run; /* zeroed, and where layouts point to */
    pair_options options;
    if (!options_parse(OPTIONS_PREFILL, argc, argv, &options))
        return 2;

    host_keep_streams();
    host_catch_signals();
    int rc = 2;
    const bool is_open = setup_open(&run.setup, &options);
    if (is_open && options.print_config)
        rc = 0;
    else if (is_open && rooms_open(&run.rooms, &run.setup))
        rc = run_pair(&run);
    rooms_close(&run.rooms);
    setup_close(&run.setup, host_stop_signal() != 0 ? CLOSE_SIGNAL_MS : 0);
    return rc;
}
