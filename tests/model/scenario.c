/* SPDX-License-Identifier: Apache-2.0 */
#include "scenario.h"

#include <string.h>

#include "engine.h"
#include "network.h"
#include "process.h"
#include "watch.h"

#define ROOMS 2

/* Times are scaled down, so that a run is short; what matters is how they stand to each other. */
#define SET_BOUNDS                                                                               \
    .parked_bytes_max = 1 << 20, .parked_rooms_max = 64, .waiting_max = 16, .tombstones_max = 4, \
    .subscriptions_max = 32, .pulls_max = 8, .pull_bytes_max = 4096, .peers_max = 4,             \
    .connections_max = 16, .handshakes_max = 4, .output_bytes_max = 1 << 20,                     \
    .window_bytes = 1 << 16, .window_reads = 16, .read_bytes_max = 1024
#define SET_SHORT                                                                           \
    .lease_ns = 600 * MS, .margin_ns = 10 * MS, .fence_ns = 300 * MS, .hold_ns = 2000 * MS, \
    .patience_ns = 3000 * MS, .deadline_ns = 2500 * MS, .publication_age_ns = 3500 * MS,    \
    .ping_ns = 100 * MS, .drain_ns = 30 * MS, .close_ns = 100 * MS, .hello_ns = 500 * MS,   \
    .redial_ns = 20 * MS, .tombstone_ns = 1000 * MS, SET_BOUNDS

static const model_set sets[] = {
    { .name = "default",
            .settings = { .lease_ns = 2000 * MS,
                    .margin_ns = 20 * MS,
                    .fence_ns = 500 * MS,
                    .hold_ns = 4000 * MS,
                    .patience_ns = 8000 * MS,
                    .deadline_ns = 4000 * MS,
                    .publication_age_ns = 10000 * MS,
                    .ping_ns = 150 * MS,
                    .peer_timeout_ns = 500 * MS,
                    .drain_ns = 30 * MS,
                    .close_ns = 150 * MS,
                    .hello_ns = 500 * MS,
                    .redial_ns = 20 * MS,
                    .tombstone_ns = 3000 * MS,
                    SET_BOUNDS },
            .lane = KVX_READ_ONE_SIDED,
            .chaos_ns = 6000 * MS },
    { .name = "short",
            .settings = { SET_SHORT, .peer_timeout_ns = 700 * MS },
            .lane = KVX_READ_ONE_SIDED,
            .chaos_ns = 4000 * MS },
    { .name = "lone", /* silence tells nothing: the lease must carry the proof alone */
            .settings = { SET_SHORT, .peer_timeout_ns = 20000 * MS },
            .lane = KVX_READ_ONE_SIDED,
            .chaos_ns = 4000 * MS },
    { .name = "clock",
            .settings = { SET_SHORT, .peer_timeout_ns = 20000 * MS,
                    .lease_confirm = KVX_CONFIRM_CLOCK },
            .lane = KVX_READ_ONE_SIDED,
            .chaos_ns = 4000 * MS },
    { .name = "served",
            .settings = { SET_SHORT, .peer_timeout_ns = 700 * MS },
            .lane = KVX_READ_SERVED,
            .chaos_ns = 4000 * MS },
    { .name = "joint",
            .settings = { SET_SHORT, .peer_timeout_ns = 700 * MS },
            .lane = KVX_READ_ONE_SIDED,
            .is_joint = true,
            .chaos_ns = 4000 * MS },
};

const model_set *scenario_set(size_t index)
{
    return index < sizeof(sets) / sizeof(*sets) ? &sets[index] : NULL;
}

const model_set *scenario_find(const char *name)
{
    for (size_t i = 0; i < sizeof(sets) / sizeof(*sets); i++) {
        if (strcmp(sets[i].name, name) == 0)
            return &sets[i];
    }
    return NULL;
}

static uint64_t choose(world *w, const uint32_t *values, uint32_t count)
{
    return values[world_below(w, count)];
}
#define CHOOSE(w, ...)                             \
    choose((w), (const uint32_t[]){ __VA_ARGS__ }, \
            sizeof((const uint32_t[]){ __VA_ARGS__ }) / sizeof(uint32_t))

static void draw_moods(world *w)
{
    moods *m = &w->moods;

    m->stop = (uint32_t)CHOOSE(w, 0, 0, 2, 5, 12);
    m->stop_owner = (uint32_t)CHOOSE(w, 0, 0, 0, 50, 250);
    m->stop_post = (uint32_t)CHOOSE(w, 0, 0, 60, 250);
    m->forever = 20;
    m->hang = (uint32_t)CHOOSE(w, 0, 20, 60);
    m->cut_pull = (uint32_t)CHOOSE(w, 0, 0, 150);
    m->republish = (uint32_t)CHOOSE(w, 0, 0, 700);
    m->is_net_slow = world_chance(w, 300);
    m->is_data_slow = world_chance(w, 600);
    m->is_engine_slow = world_chance(w, 300);
    m->is_room_contested = world_chance(w, 300);
}

static void draw_settings(world *w)
{
    kvx_settings *s = &w->settings;

    *s = w->set->settings;
    if (world_chance(w, 300))
        s->read_bytes_max = PAGE_BYTES;
    if (world_chance(w, 150))
        s->parked_rooms_max = 1;
    if (world_chance(w, 150))
        s->pulls_max = 1;
    if (world_chance(w, 150))
        s->pull_bytes_max = 3ul * PAGE_BYTES * REGIONS;
    if (world_chance(w, 200))
        s->window_reads = 1;
    if (w->set->is_joint && world_chance(w, 256))
        s->lease_confirm = KVX_CONFIRM_CLOCK;
    if (w->set->lane == KVX_READ_SERVED && world_chance(w, 512))
        s->peer_timeout_ns = 20 * SECOND;
}

static int64_t draw_rate(world *w)
{
    return (int64_t)world_below(w, 3) - 1;
}

static void make_processes(world *w)
{
    uint64_t seed = world_random(w) >> 16;
    uint64_t other = world_chance(w, 256) ? seed : world_random(w) >> 16;
    uint32_t ranks = w->set->is_joint ? 2 : 1;
    bool is_both = !w->set->is_joint && world_chance(w, 200);

    (void)proc_create(w, "P",
            &(proc_params){ draw_rate(w), ranks, 4 + (uint32_t)world_below(w, 3), true, seed });
    (void)proc_create(w, "D0",
            &(proc_params){ draw_rate(w), ranks, 4 + (uint32_t)world_below(w, 3), is_both, other });
    if (!w->set->is_joint)
        (void)proc_create(w, "D1",
                &(proc_params){ draw_rate(w), 1, 4 + (uint32_t)world_below(w, 3), false, other });
}

static uint64_t moment(world *w, uint32_t percent)
{
    return w->t + world_span(w, w->set->chaos_ns * percent / 100);
}

static void plan_publisher(world *w, node *n, uint64_t room)
{
    uint64_t count = CHOOSE(w, 1, 2, 2, 3, 4);

    for (uint64_t i = 0; i < count; i++)
        proc_command_at(n, moment(w, i == 0 ? 40 : 90), engine_publish, NULL, room);
    if (world_chance(w, 150) && room >= 100)
        proc_command_at(n, moment(w, 60), engine_reserve, NULL, room);
    if (world_chance(w, 350))
        proc_command_at(n, moment(w, 100), engine_revoke, NULL, room);
    if (world_chance(w, 60))
        proc_command_at(n, moment(w, 100), engine_abort_room, NULL, room);
}

static void plan_reader(world *w, node *n, const wish *drawn)
{
    wish *want = world_take(w, sizeof(*want));

    *want = *drawn;
    want->is_early = world_chance(w, 150);
    want->skip = want->is_early ? 0 : (uint32_t)CHOOSE(w, 0, 0, 0, 1, 2);
    proc_command_at(n, moment(w, 75) + 100 * MS, engine_subscribe, want, 0);
}

static void plan_readers(world *w)
{
    bool are_two = !w->moods.is_room_contested && world_chance(w, 512);

    for (uint32_t i = 1; i < w->proc_count; i++) {
        node *n = &w->procs[i].nodes[0];
        n->retries = w->moods.is_room_contested ? 12 : 4;
        for (uint32_t r = 0; r < w->procs[i].node_count; r++)
            proc_command_at(
                    &w->procs[i].nodes[r], w->t + world_span(w, 50 * MS), engine_connect, NULL, 0);
        if (are_two || i == 1 || w->moods.is_room_contested)
            plan_reader(w, n,
                    &(wish){ .room = 100,
                            .reader = are_two ? i - 1 : 0,
                            .readers = are_two && w->proc_count > 2 ? 2 : 1 });
        if ((!are_two && i == 2) || world_chance(w, 300))
            plan_reader(w, n, &(wish){ .room = 101, .readers = 1 });
    }
}

/* A node that reads and is read. */
static void plan_both(world *w)
{
    if (w->proc_count < 3 || !w->procs[1].is_listening)
        return;
    uint64_t room = world_chance(w, 750) ? 100 : 7; /* may be offered by two owners */
    plan_publisher(w, &w->procs[1].nodes[0], room);
    proc_command_at(&w->procs[2].nodes[0], w->t + world_span(w, 50 * MS), engine_connect, NULL, 1);
    plan_reader(w, &w->procs[2].nodes[0], &(wish){ .peer = 1, .room = room, .readers = 1 });
    plan_reader(w, &w->procs[2].nodes[0], &(wish){ .room = room, .readers = 1 });
}

/* --- mishaps ------------------------------------------------------------------------------------ */

static void cut_one(world *w, void *unused, uint64_t a, uint64_t b)
{
    (void)unused;
    (void)a;
    (void)b;
    network_cut_any(w, world_chance(w, 400));
}

static void kill_one(world *w, void *object, uint64_t is_silent, uint64_t unused)
{
    (void)w;
    (void)unused;
    proc_kill(object, is_silent != 0);
}

static void start_one(world *w, void *object, uint64_t unused, uint64_t unused_too)
{
    proc *p = object;

    (void)unused;
    (void)unused_too;
    proc_restart(p);
    for (uint64_t room = 100; room < 100 + ROOMS && world_chance(w, 600); room++) {
        for (uint32_t r = 0; r < p->node_count; r++)
            proc_command_at(&p->nodes[r], w->t + world_span(w, SECOND), engine_publish, NULL, room);
    }
}

static void plan_mishaps(world *w)
{
    uint64_t cuts = CHOOSE(w, 0, 0, 1, 1, 2, 4);

    for (uint64_t i = 0; i < cuts; i++)
        world_at(w, moment(w, 100), cut_one, NULL, 0, 0);
    if (world_chance(w, 100)) {
        uint64_t at = moment(w, 80);
        world_at(w, at, kill_one, &w->procs[0], world_chance(w, 200), 0);
        world_at(w, at + world_span(w, 300 * MS), start_one, &w->procs[0], 0, 0);
    }
    if (world_chance(w, 50))
        world_at(w, moment(w, 100), kill_one, &w->procs[w->proc_count - 1], world_chance(w, 400), 0);
    if (world_chance(w, 100))
        proc_command_at(&w->procs[1].nodes[0], moment(w, 100), engine_disconnect, NULL, 0);
    if (world_chance(w, 100))
        proc_command_at(&w->procs[0].nodes[0], moment(w, 100), engine_reregister, NULL, 0);
}

static uint64_t longest(const world *w)
{
    const kvx_settings *s = &w->settings;
    uint64_t cycle = s->lease_ns + s->fence_ns;
    uint64_t most = s->publication_age_ns + s->patience_ns + s->hold_ns + s->deadline_ns;

    return most + 6 * cycle + 3 * SECOND;
}

bool scenario_run(world *w, const model_set *set, uint64_t seed, const faults *planted, bool traced)
{
    world_begin(w, set, seed, planted, traced);
    draw_moods(w);
    draw_settings(w);
    w->chaos_end = w->t + set->chaos_ns;
    w->horizon = w->chaos_end + longest(w);
    make_processes(w);
    for (uint32_t r = 0; r < w->procs[0].node_count; r++) {
        for (uint64_t room = 100; room < 100 + ROOMS; room++)
            plan_publisher(w, &w->procs[0].nodes[r], room);
    }
    plan_readers(w);
    plan_both(w);
    plan_mishaps(w);
    world_run(w, w->horizon);
    watch_end(w);
    world_end(w);
    return w->violation[0] == '\0';
}

void scenario_quiet(world *w, const model_set *set, uint32_t readers)
{
    static const char *const names[] = { "D0", "D1", "D2" };

    world_begin(w, set, 1, NULL, false);
    w->is_scripted = true;
    w->script_delay = MS;
    w->settings = set->settings;
    (void)proc_create(w, "P", &(proc_params){ 0, 1, PAGES_MAX, true, 100 });
    for (uint32_t i = 0; i < readers; i++) {
        proc *p = proc_create(w, names[i], &(proc_params){ 0, 1, PAGES_MAX, false, 1000 });
        proc_command(&p->nodes[0], engine_connect, NULL, 0);
    }
    world_run(w, w->t + 100 * MS);
}
