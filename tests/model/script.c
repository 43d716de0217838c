/* SPDX-License-Identifier: Apache-2.0 */
#include "script.h"

#include <string.h>

world script;

static model_set set;
static uint32_t event_counts[16];
static kvx_event event_last[16];
static uint32_t message_counts[32];
static kvx_status released;

static void on_event(node *n, const kvx_event *event)
{
    (void)n;
    event_counts[event->kind]++;
    event_last[event->kind] = *event;
}

static void on_sent(node *n, const kvx_message *message)
{
    (void)n;
    message_counts[message->type]++;
    if (message->type == KVX_MESSAGE_RELEASED)
        released = message->released.status;
}

kvx_settings *script_set(const char *name)
{
    set = *scenario_find(name);
    return &set.settings;
}

void script_begin(uint32_t readers)
{
    memset(event_counts, 0, sizeof(event_counts));
    memset(message_counts, 0, sizeof(message_counts));
    released = KVX_OK;
    scenario_quiet(&script, &set, readers);
    script.on_event = on_event;
    script.on_sent = on_sent;
}

void script_add_reader(const char *name)
{
    proc *p = proc_create(&script, name, &(proc_params){ 0, 1, PAGES_MAX, false, 1000 });

    proc_command(&p->nodes[0], engine_connect, NULL, 0);
    run_ms(100);
}

void script_end(void)
{
    cr_expect_str_eq(script.violation, "");
    script.on_event = NULL;
    script.on_sent = NULL;
    world_end(&script);
    world_fini(&script);
}

node *owner(void)
{
    return &script.procs[0].nodes[0];
}

node *reader(uint32_t index)
{
    return &script.procs[1 + index].nodes[0];
}

void run_ms(uint64_t ms)
{
    world_run(&script, script.t + ms * MS);
}

pub *publish(uint64_t room)
{
    const pub *before = script.pubs;

    proc_command(owner(), engine_publish, NULL, room);
    return script.pubs == before ? NULL : script.pubs;
}

void revoke(uint64_t room)
{
    proc_command(owner(), engine_revoke, NULL, room);
}

static sub *ask(uint32_t index, const wish *drawn)
{
    wish *kept = world_take(&script, sizeof(*kept));

    *kept = *drawn;
    proc_command(reader(index), engine_subscribe, kept, 0);
    cr_assert_not_null(kept->made, "the subscription is refused");
    return kept->made;
}

sub *subscribe(uint32_t index, uint64_t room)
{
    return ask(index, &(wish){ .room = room, .readers = 1 });
}

sub *want(uint32_t index, uint64_t room, uint32_t slot, uint32_t slots)
{
    return ask(index, &(wish){ .room = room, .reader = slot, .readers = slots, .is_passive = true });
}

void pull(sub *s)
{
    proc_command(s->node, engine_pull, s, 0);
}

void cancel(sub *s)
{
    proc_command(s->node, engine_cancel, s, 0);
}

void stop(node *n, uint64_t ms)
{
    proc_stop(n->proc, ms == 0 ? KVX_NEVER : ms * MS);
}

static end *end_of(uint32_t index)
{
    end *e = reader(index)->proc->ends;

    cr_assert_not_null(e, "reader %u is not connected", index);
    return e;
}

void cut(uint32_t index, bool is_silent)
{
    network_cut(end_of(index)->conn, is_silent);
}

void say(uint32_t index, kvx_message_type type, uint64_t nonce, const pub *p)
{
    kvx_message message = { .type = type };

    message.about.nonce = nonce;
    message.about.room = p->room;
    message.about.generation = p->generation;
    network_send(reader(index), end_of(index)->link, &message);
}

bool is_pulled(const sub *s)
{
    return s->terminal_count == 1 && s->status == KVX_OK;
}

bool is_failed(const sub *s, kvx_status status)
{
    return s->terminal_count == 1 && s->status == status;
}

uint32_t events(kvx_event_kind kind)
{
    return event_counts[kind];
}

const kvx_event *last_event(kvx_event_kind kind)
{
    return &event_last[kind];
}

uint32_t messages(kvx_message_type type)
{
    return message_counts[type];
}

kvx_status last_released(void)
{
    return released;
}
