/* SPDX-License-Identifier: Apache-2.0 */
#include "process.h"

#include <string.h>

#include "network.h"
#include "watch.h"

#define SPIN_MAX       50000
#define CANDIDATES_MAX 32

static void run(proc *p);

uint64_t proc_local(const proc *p)
{
    return p->local > p->w->t ? p->local : p->w->t;
}

uint64_t proc_clock_at(const proc *p, uint64_t t)
{
    return p->offset + t + (uint64_t)((int64_t)(t / 1000) * p->rate);
}

uint64_t proc_clock(const proc *p)
{
    uint64_t local = proc_local(p);

    return proc_clock_at(p, local == KVX_NEVER ? p->w->t : local);
}

uint64_t proc_sample(proc *p)
{
    bool is_planted =
            p->is_listening ? p->w->faults.cached_now_owner : p->w->faults.cached_now_reader;

    return is_planted && p->is_cached ? p->cached : proc_clock(p);
}

uint64_t proc_true(const proc *p, uint64_t clock)
{
    if (clock == KVX_NEVER)
        return KVX_NEVER;
    if (clock <= proc_clock_at(p, p->w->t))
        return p->w->t;
    uint64_t ahead = clock - proc_clock_at(p, p->w->t);
    uint64_t at = p->w->t + (uint64_t)((int64_t)ahead - (int64_t)(ahead / 1000) * p->rate);
    while (proc_clock_at(p, at) < clock)
        at += 1 + (clock - proc_clock_at(p, at));
    return at;
}

bool proc_is_running(const proc *p)
{
    return !p->is_dead && !p->is_stopped;
}

uint64_t proc_stopped_ns(const proc *p, uint64_t from, uint64_t to)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < p->stop_count; i++) {
        uint64_t a = p->stops[i].from > from ? p->stops[i].from : from;
        uint64_t b = p->stops[i].to < to ? p->stops[i].to : to;
        if (a < b)
            sum += b - a;
    }
    return sum;
}

static void go_on(world *w, void *object, uint64_t life, uint64_t unused)
{
    proc *p = object;

    (void)unused;
    if (p->life != life || !p->is_stopped || p->is_dead)
        return;
    if (p->local > w->t)
        return; /* stopped again, for longer */
    p->is_stopped = false;
    WORLD_LOG(w, p->name, "goes on");
    run(p);
}

/* The process stands still from where it is now; what the call it is in still does takes effect
 * later. */
static void stop_inside(proc *p, uint64_t length)
{
    uint64_t from = proc_local(p);

    if (from == KVX_NEVER || p->stop_count == STOPS_MAX)
        return;
    uint64_t to = length == KVX_NEVER ? KVX_NEVER : from + length;
    p->stops[p->stop_count++] = (stop_span){ from, to };
    p->cached = proc_clock_at(p, from);
    p->is_cached = true;
    p->local = to;
    WORLD_LOG(p->w, p->name, "STOPPED for %.3f s", length == KVX_NEVER ? 1e9 : (double)length / 1e9);
}

/* The call is over: the rest waits until it goes on. */
static bool is_held_back(proc *p)
{
    if (p->local <= p->w->t)
        return false;
    if (!p->is_stopped) {
        p->is_stopped = true;
        world_at(p->w, p->local, go_on, p, p->life, 0);
    }
    return true;
}

void proc_stop(proc *p, uint64_t length)
{
    stop_inside(p, length);
    (void)is_held_back(p);
}

static uint64_t stop_length(world *w)
{
    const kvx_settings *s = &w->settings;
    uint64_t cycle = s->lease_ns + s->fence_ns;
    uint64_t most[] = { 30 * MS, s->fence_ns / 2, s->fence_ns, s->lease_ns, cycle, 2 * cycle };

    if (world_chance(w, w->moods.forever))
        return KVX_NEVER;
    return world_span(w, most[world_below(w, sizeof(most) / sizeof(*most))]);
}

bool proc_may_stop(proc *p, uint32_t chance)
{
    if (!world_is_chaos(p->w) || !world_chance(p->w, chance))
        return false;
    stop_inside(p, stop_length(p->w));
    return true;
}

static uint32_t stop_chance(const proc *p, const work *it)
{
    if (it->kind != ITEM_FRAME)
        return p->w->moods.stop;
    uint32_t type = it->end->first->type;
    bool is_word = type == KVX_MESSAGE_RENEW || type == KVX_MESSAGE_RELEASE ||
                   type == KVX_MESSAGE_DRAINED || type == KVX_MESSAGE_SUBSCRIBE;
    return is_word && p->w->moods.stop_owner > 0 ? p->w->moods.stop_owner : p->w->moods.stop;
}

static void execute(proc *p, work *it, uint64_t now)
{
    switch (it->kind) {
    case ITEM_FRAME: network_read(it->end, now); break;
    case ITEM_FIN: network_read_end(it->end, now); break;
    case ITEM_IDLE: network_idle(it->end, now); break;
    case ITEM_COMMAND:
        if (!it->node->is_over)
            it->command->run(it->node, now, it->command->object, it->command->a);
        break;
    case ITEM_TICK: node_tick(it->node, now); break;
    case ITEM_STEP: node_step(it->node, now); break;
    case ITEM_POLL: node_poll(it->node); break;
    case ITEM_NONE: break;
    }
    (void)p;
}

static uint32_t collect(proc *p, work *found)
{
    uint32_t count = 0;

    for (end *e = p->ends; e != NULL && count < CANDIDATES_MAX - 8; e = e->next) {
        if (!e->is_closed && (e->first != NULL || e->has_fin))
            found[count++] = (work){ .kind = e->first != NULL ? ITEM_FRAME : ITEM_FIN, .end = e };
        else if (!e->is_closed && e->is_suspect)
            found[count++] = (work){ .kind = ITEM_IDLE, .end = e };
    }
    if (p->commands != NULL)
        found[count++] = (work){ .kind = ITEM_COMMAND, .node = p->commands->node };
    for (uint32_t i = 0; i < p->node_count; i++) {
        node *n = &p->nodes[i];
        if (n->is_over)
            continue;
        if (n->has_step || n->has_orders)
            found[count++] = (work){ .kind = ITEM_STEP, .node = n };
        if (n->has_poll)
            found[count++] = (work){ .kind = ITEM_POLL, .node = n };
    }
    return count;
}

static bool pick_tick(proc *p, work *out)
{
    for (uint32_t i = 0; i < p->node_count; i++) {
        node *n = &p->nodes[i];
        if (n->is_over)
            continue;
        if (n->has_tick || kvx_session_next_due(n->session) <= proc_clock(p)) {
            *out = (work){ .kind = ITEM_TICK, .node = n };
            return true;
        }
        if (kvx_puller_next_due(n->puller) <= proc_clock(p)) {
            *out = (work){ .kind = ITEM_STEP, .node = n };
            return true;
        }
    }
    return false;
}

static bool pick(proc *p, work *out)
{
    work found[CANDIDATES_MAX];
    uint32_t count = collect(p, found);

    if (count == 0) {
        p->is_cached = false;
        return pick_tick(p, out);
    }
    if (count > 1 && world_chance(p->w, 64) && pick_tick(p, out))
        return true;
    *out = found[count == 1 ? 0 : world_below(p->w, count)];
    if (out->kind == ITEM_COMMAND) {
        out->command = p->commands;
        p->commands = p->commands->next;
        if (p->commands == NULL)
            p->commands_last = &p->commands;
    }
    return true;
}

static bool take_held(proc *p, work *out)
{
    if (!p->has_held)
        return false;
    *out = p->held;
    p->has_held = false;
    bool is_gone = out->end != NULL && out->end->is_closed;
    return !is_gone && !(out->node != NULL && out->node->is_over);
}

/* Stops before or after the clock is read. */
static bool stops_at(proc *p, work *it)
{
    if (!world_is_chaos(p->w))
        return false;
    uint32_t chance = stop_chance(p, it);
    if (chance == 0 || !world_chance(p->w, chance))
        return false;
    if (it->kind == ITEM_IDLE || world_chance(p->w, 512)) { /* empty at the time of the sample */
        it->has_now = true;
        it->now = proc_sample(p);
    }
    stop_inside(p, stop_length(p->w));
    p->held = *it;
    p->has_held = true;
    return is_held_back(p);
}

static void fire(world *w, void *object, uint64_t life, uint64_t unused)
{
    proc *p = object;

    (void)unused;
    if (p->life != life)
        return;
    if (p->wake_at <= w->t)
        p->wake_at = KVX_NEVER;
    proc_wake(p);
}

void proc_wake_at(proc *p, uint64_t at)
{
    if (at >= p->wake_at)
        return;
    p->wake_at = at;
    world_at(p->w, at, fire, p, p->life, 0);
}

static void arm(proc *p)
{
    uint64_t due = KVX_NEVER;

    for (uint32_t i = 0; i < p->node_count; i++) {
        const node *n = &p->nodes[i];
        if (n->is_over)
            continue;
        uint64_t session = kvx_session_next_due(n->session);
        uint64_t puller = kvx_puller_next_due(n->puller);
        due = session < due ? session : due;
        due = puller < due ? puller : due;
    }
    if (due != KVX_NEVER)
        proc_wake_at(p, proc_true(p, due));
}

static void run(proc *p)
{
    world *w = p->w;

    if (p->is_running)
        return;
    p->is_running = true;
    while (proc_is_running(p) && w->violation[0] == '\0') {
        work it;
        bool is_held = take_held(p, &it);
        if (!is_held && !pick(p, &it))
            break;
        if (++w->steps_now > SPIN_MAX) {
            watch_broken(w, "I19", "%s spins", p->name);
            break;
        }
        if (!is_held && stops_at(p, &it))
            break;
        execute(p, &it, it.has_now ? it.now : proc_sample(p));
        if (is_held_back(p))
            break;
    }
    p->is_running = false;
    if (!p->is_dead)
        arm(p);
}

void proc_wake(proc *p)
{
    if (proc_is_running(p))
        run(p);
}

void proc_command(node *n, command_fn fn, void *object, uint64_t a)
{
    proc *p = n->proc;

    if (p->is_dead)
        return;
    command *c = world_take(p->w, sizeof(*c));
    *c = (command){ NULL, n, fn, object, a };
    *p->commands_last = c;
    p->commands_last = &c->next;
    proc_wake(p);
}

static void command_due(world *w, void *object, uint64_t life, uint64_t unused)
{
    command *c = object;

    (void)w;
    (void)unused;
    if (c->node->life == life)
        proc_command(c->node, c->run, c->object, c->a);
}

void proc_command_at(node *n, uint64_t at, command_fn fn, void *object, uint64_t a)
{
    command *c = world_take(n->proc->w, sizeof(*c));

    *c = (command){ NULL, n, fn, object, a };
    world_at(n->proc->w, at, command_due, c, n->life, 0);
}

proc *proc_create(world *w, const char *name, const proc_params *params)
{
    proc *p = &w->procs[w->proc_count];

    for (uint32_t i = 0; i < NODES_MAX; i++) {
        memset(&p->nodes[i], 0, offsetof(node, metrics));
        p->nodes[i].is_over = true;
    }
    memset(p, 0, offsetof(proc, nodes));
    p->w = w;
    p->index = w->proc_count++;
    for (uint32_t i = 0; i + 1 < sizeof(p->name) && name[i] != '\0'; i++)
        p->name[i] = name[i];
    p->rate = params->rate;
    p->offset = SECOND * world_below(w, 1000);
    p->commands_last = &p->commands;
    p->wake_at = KVX_NEVER;
    p->is_listening = params->is_listening;
    p->node_count = params->nodes;
    for (uint32_t i = 0; i < params->nodes; i++)
        node_create(&p->nodes[i], p, i, params->pages, params->nonce_seed + i);
    arm(p);
    return p;
}

void proc_destroy(proc *p)
{
    for (uint32_t i = 0; i < p->node_count; i++)
        node_destroy(&p->nodes[i]);
}

void proc_kill(proc *p, bool is_silent)
{
    if (p->is_dead)
        return;
    WORLD_LOG(p->w, p->name, "KILLED");
    p->is_dead = true;
    p->life++;
    p->commands = NULL;
    p->commands_last = &p->commands;
    p->has_held = false;
    network_cut_all(p, is_silent);
    proc_destroy(p);
}

void proc_restart(proc *p)
{
    WORLD_LOG(p->w, p->name, "starts again");
    p->is_dead = false;
    p->is_stopped = false;
    p->is_cached = false;
    p->local = 0;
    p->wake_at = KVX_NEVER;
    p->ends = NULL;
    for (uint32_t i = 0; i < p->node_count; i++)
        node_create(&p->nodes[i], p, i, p->nodes[i].page_count, world_random(p->w));
    arm(p);
}
