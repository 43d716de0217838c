/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/test_session_world.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/settings.h"

static unsigned char memory[CORE_PAGES * CORE_PAGE_BYTES];

/* --- actions --- */

static core_action *action_add(core *c, core_act act, uint64_t link)
{
    cr_assert_lt(c->action_count, (uint32_t)CORE_ACTIONS_MAX);
    core_action *action = &c->actions[c->action_count++];
    *action = (core_action){ .act = act, .link = link };
    return action;
}

static void on_dial(void *arg, uint64_t peer, const char *address)
{
    cr_assert_str_eq(address, "10.0.0.1:7000");
    (void)action_add(arg, CORE_DIALED, peer);
}

static void on_send(void *arg, kvx_link_id link, const kvx_message *message)
{
    core_action *action = action_add(arg, CORE_SENT, link);

    cr_assert_eq(kvx_wire_encode(message, &action->frame), KVX_OK, "%s does not encode",
            kvx_message_name(message->type));
    cr_assert_eq(kvx_wire_decode(action->frame.data, (uint32_t)action->frame.size, &action->message),
            KVX_OK);
    if (message->type == KVX_MESSAGE_HELLO || message->type == KVX_MESSAGE_WELCOME)
        kvx_hello_destroy(&action->message.hello_in);
}

static void on_close_link(void *arg, kvx_link_id link)
{
    (void)action_add(arg, CORE_CLOSED, link);
}

static void on_connect_data(void *arg, kvx_link_id link, const kvx_hello *remote)
{
    cr_assert_not_null(remote);
    (void)action_add(arg, CORE_DATA_WANTED, link);
}

static void on_drop_data(void *arg, kvx_link_id link)
{
    (void)action_add(arg, CORE_DATA_DROPPED, link);
}

static void on_close_sends(void *arg, uint64_t remote_epoch, uint64_t nonce)
{
    (void)remote_epoch;
    (void)action_add(arg, CORE_SENDS_CLOSED, nonce);
}

static bool is_sent(const core_action *action, uint64_t link, kvx_message_type type)
{
    return action->act == CORE_SENT && action->link == link && action->message.type == type;
}

void core_forget(core *c)
{
    for (uint32_t i = 0; i < c->action_count; i++)
        kvx_buffer_fini(&c->actions[i].frame);
    c->action_count = 0;
}

/* What was taken is marked by a link that nobody has. */
static const core_action *taken(core_action *action)
{
    static core_action copy;

    copy = *action;
    action->link = UINT64_MAX;
    return &copy;
}

const core_action *core_take(core *c, core_act act)
{
    for (uint32_t i = 0; i < c->action_count; i++) {
        if (c->actions[i].act == act && c->actions[i].link != UINT64_MAX)
            return taken(&c->actions[i]);
    }
    return NULL;
}

const kvx_message *core_sent(core *c, uint64_t link, kvx_message_type type)
{
    for (uint32_t i = 0; i < c->action_count; i++) {
        if (is_sent(&c->actions[i], link, type))
            return &taken(&c->actions[i])->message;
    }
    return NULL;
}

const kvx_message *core_must_send(core *c, uint64_t link, kvx_message_type type)
{
    const kvx_message *message = core_sent(c, link, type);

    cr_assert_not_null(message, "no %s was sent on link %d", kvx_message_name(type), (int)link);
    return message;
}

uint32_t core_sent_count(const core *c, uint64_t link, kvx_message_type type)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < c->action_count; i++)
        count += is_sent(&c->actions[i], link, type);
    return count;
}

/* --- making --- */

void core_init(core *c)
{
    kvx_config *config = NULL;

    memset(c, 0, sizeof(*c));
    cr_assert_eq(kvx_config_create(&config), KVX_OK);
    cr_assert_eq(kvx_settings_from(config, &c->settings), KVX_OK);
    kvx_config_destroy(&config);
    c->settings.lease_ns = 900 * MS;
    c->settings.margin_ns = 9 * MS;
    c->settings.ping_ns = 100 * MS;
    c->settings.fence_ns = 300 * MS;
    c->settings.drain_ns = 50 * MS;
    c->settings.close_ns = 100 * MS;
    c->settings.hold_ns = 2000 * MS;
    c->settings.patience_ns = 3000 * MS;
    c->settings.peer_timeout_ns = 500 * MS;
    c->settings.tombstones_max = 8;
    c->now = CORE_START;
}

kvx_hello *core_hello(const core *c, uint64_t epoch)
{
    kvx_hello *hello = calloc(1, sizeof(*hello));
    const kvx_component *component = &c->pool->components[0];

    hello->version_min = KVX_WIRE_VERSION_MIN;
    hello->version_max = KVX_WIRE_VERSION_MAX;
    hello->epoch = epoch;
    hello->ranks = 1;
    hello->component_count = 1;
    (void)snprintf(hello->components[0].name, KVX_NAME_MAX, "%s", component->name);
    (void)snprintf(hello->components[0].axis, KVX_NAME_MAX, "%s", component->axis);
    hello->components[0].page_tokens = component->page_tokens;
    hello->components[0].page_count = component->page_count;
    hello->regions = calloc(1, sizeof(*hello->regions));
    hello->region_count = 1;
    (void)snprintf(hello->regions[0].role, KVX_NAME_MAX, "k");
    hello->regions[0].page_bytes = CORE_PAGE_BYTES;
    hello->regions[0].page_stride = CORE_PAGE_BYTES;
    hello->path_count = 1;
    (void)snprintf(hello->paths[0].transport, KVX_NAME_MAX, "none");
    hello->paths[0].keys = calloc(1, sizeof(*hello->paths[0].keys));
    return hello;
}

void core_open(core *c)
{
    const kvx_component component = { "kv", CORE_PAGE_TOKENS, CORE_PAGES, "token" };
    const kvx_region region = { .role = "k", .base = memory, .page_bytes = CORE_PAGE_BYTES };
    const kvx_layout layout = { &component, 1, &region, 1 };
    const kvx_session_sink sink = { c, on_dial, on_send, on_close_link, on_connect_data,
        on_drop_data, on_close_sends };

    cr_assert_eq(kvx_pool_create(&layout, &c->pool), KVX_OK);
    c->hello = core_hello(c, CORE_EPOCH);
    const kvx_session_params params = { &c->settings, c->hello, c->pool, &c->metrics, 1000, sink };
    cr_assert_eq(kvx_session_create(&params, &c->session), KVX_OK);
}

void core_close(core *c)
{
    kvx_session_destroy(&c->session);
    kvx_hello_destroy(&c->hello);
    kvx_pool_destroy(&c->pool);
    core_forget(c);
}

/* --- feeding --- */

void core_give(core *c, uint64_t link, const kvx_message *message)
{
    kvx_buffer frame = { 0 };
    kvx_message came;

    cr_assert_eq(kvx_wire_encode(message, &frame), KVX_OK);
    cr_assert_eq(kvx_wire_decode(frame.data, (uint32_t)frame.size, &came), KVX_OK);
    kvx_session_message(c->session, link, &came, c->now);
    kvx_buffer_fini(&frame);
}

void core_pass(core *c, uint64_t ns)
{
    c->now += ns;
    kvx_session_tick(c->session, c->now);
}

kvx_event core_expect(core *c, kvx_event_kind kind)
{
    kvx_event event = { 0 };

    cr_assert(kvx_session_poll(c->session, &event), "event %d is missing", (int)kind);
    cr_assert_eq(event.kind, kind, "event %d (%s) instead of %d", (int)event.kind, event.text,
            (int)kind);
    return event;
}

void core_expect_none(core *c)
{
    kvx_event event = { 0 };

    cr_assert_not(kvx_session_poll(c->session, &event), "event %d came", (int)event.kind);
}

/* --- connections --- */

void core_accept(core *c, uint64_t link, uint64_t epoch)
{
    kvx_session_accepted(c->session, link, core_hello(c, epoch), c->now);
    (void)core_must_send(c, link, KVX_MESSAGE_WELCOME);
    cr_assert(core_expect(c, KVX_EVENT_PEER_UP).is_accepted);
}

kvx_peer_id core_connect(core *c, uint64_t link, uint64_t epoch)
{
    kvx_peer_id peer;
    kvx_hello *hello = core_hello(c, epoch);
    const kvx_message welcome = { .type = KVX_MESSAGE_WELCOME, .hello = hello };

    cr_assert_eq(kvx_session_connect(c->session, "10.0.0.1:7000", 0, c->now, &peer), KVX_OK);
    cr_assert_eq(core_take(c, CORE_DIALED)->link, peer.value);
    kvx_session_dialed(c->session, peer.value, link, c->now);
    (void)core_must_send(c, link, KVX_MESSAGE_HELLO);
    core_give(c, link, &welcome);
    cr_assert_eq(core_take(c, CORE_DATA_WANTED)->link, link);
    kvx_session_data_ready(c->session, link, KVX_OK, "", c->now);
    cr_assert_not(core_expect(c, KVX_EVENT_PEER_UP).is_accepted);
    kvx_hello_destroy(&hello);
    return peer;
}

void core_pong(core *c, uint64_t link, uint64_t sequence)
{
    const kvx_message pong = { .type = KVX_MESSAGE_PONG, .ping = { .sequence = sequence } };

    core_give(c, link, &pong);
}

uint64_t core_last_sequence(const core *c, uint64_t link)
{
    uint64_t last = 0;

    for (uint32_t i = 0; i < c->action_count; i++) {
        if (is_sent(&c->actions[i], link, KVX_MESSAGE_PING))
            last = c->actions[i].message.ping.sequence;
        if (is_sent(&c->actions[i], link, KVX_MESSAGE_RENEW))
            last = c->actions[i].message.renew.sequence;
    }
    return last;
}

/* --- as owner --- */

void core_publish(core *c, uint64_t room, kvx_page first, uint32_t count)
{
    kvx_page pages[CORE_PAGES];
    const kvx_page_table table = { pages, count };

    for (uint32_t i = 0; i < count; i++)
        pages[i] = first + i;
    const kvx_status st = kvx_session_publish(c->session,
            KVX_OFFER(.room = room, .tokens = count * CORE_PAGE_TOKENS, .tables = &table,
                    .table_count = 1),
            c->now);
    cr_assert_eq(st, KVX_OK, "publish: %s", kvx_status_name(st));
}

void core_give_subscribe(
        core *c, uint64_t link, uint64_t room, uint64_t nonce, uint32_t reader, uint32_t readers)
{
    const kvx_message message = { .type = KVX_MESSAGE_SUBSCRIBE,
        .subscribe = { room, nonce, reader, readers, 1000 } };

    core_give(c, link, &message);
}

void core_give_about(core *c, uint64_t link, kvx_message_type type, uint64_t nonce, uint64_t room,
        kvx_generation generation)
{
    const kvx_message message = { .type = type, .about = { nonce, room, generation } };

    core_give(c, link, &message);
}

void core_give_renew(
        core *c, uint64_t link, uint64_t sequence, uint64_t nonce, kvx_generation generation)
{
    const kvx_renew_item item = { nonce, generation };
    const kvx_message message = { .type = KVX_MESSAGE_RENEW,
        .renew = { .sequence = sequence, .items = &item, .count = 1 } };

    core_give(c, link, &message);
}

kvx_status core_lease_status(core *c, uint64_t link)
{
    const kvx_message *message = core_must_send(c, link, KVX_MESSAGE_LEASE);

    cr_assert_eq(message->lease.count, 1u);
    return kvx_wire_lease_at(message->lease.view, 0).status;
}

bool core_is_ready(core *c, uint64_t link, kvx_generation *generation_out)
{
    const kvx_message *message = core_sent(c, link, KVX_MESSAGE_READY);

    if (message != NULL && generation_out != NULL)
        *generation_out = message->ready.generation;
    return message != NULL;
}

static kvx_status status_of(core *c, uint64_t link, kvx_message_type type)
{
    const kvx_message *message = core_sent(c, link, type);

    return message == NULL ? KVX_AGAIN : message->released.status;
}

kvx_status core_failed_status(core *c, uint64_t link)
{
    return status_of(c, link, KVX_MESSAGE_FAILED);
}

kvx_status core_released_status(core *c, uint64_t link)
{
    return status_of(c, link, KVX_MESSAGE_RELEASED);
}

/* --- as reader --- */

kvx_subscription_id core_subscribe(core *c, kvx_peer_id peer, uint64_t room)
{
    kvx_subscription_id id = { 0 };
    const kvx_status st = kvx_session_subscribe(
            c->session, KVX_SUBSCRIPTION(.peer = peer, .room = room), NULL, false, c->now, &id);

    cr_assert_eq(st, KVX_OK, "subscribe: %s", kvx_status_name(st));
    return id;
}

kvx_generation core_remote_generation(void)
{
    return (kvx_generation){ OTHER_EPOCH, 5 };
}

void core_give_ready(core *c, uint64_t link, kvx_subscription_id id, uint64_t room, uint32_t pages,
        uint64_t echo)
{
    const kvx_page_run run = { 3, pages };
    kvx_message message = { .type = KVX_MESSAGE_READY };

    message.ready.nonce = id.value;
    message.ready.room = room;
    message.ready.generation = core_remote_generation();
    message.ready.tokens = pages * CORE_PAGE_TOKENS;
    message.ready.lease_ms = 900;
    message.ready.echo = echo;
    message.ready.component_count = 1;
    message.ready.tables[0].runs = &run;
    message.ready.tables[0].run_count = 1;
    core_give(c, link, &message);
}

void core_give_lease(
        core *c, uint64_t link, uint64_t sequence, kvx_subscription_id id, kvx_status status)
{
    const kvx_lease_item item = { id.value, status };
    const kvx_message message = { .type = KVX_MESSAGE_LEASE,
        .lease = { .sequence = sequence, .items = &item, .count = 1 } };

    core_give(c, link, &message);
}

void core_give_status(
        core *c, uint64_t link, kvx_message_type type, kvx_subscription_id id, kvx_status status)
{
    const kvx_message message = { .type = type, .released = { id.value, status } };

    core_give(c, link, &message);
}

kvx_pull_job *core_order(core *c, kvx_job_order order)
{
    kvx_job_order came;
    kvx_pull_job *job = kvx_session_next_job(c->session, &came);

    cr_assert_not_null(job, "order %d is missing", (int)order);
    cr_assert_eq(came, order, "order %d instead of %d", (int)came, (int)order);
    return job;
}

kvx_pull_job *core_pull(core *c, kvx_subscription_id id, uint32_t count)
{
    kvx_page pages[CORE_PAGES];
    const kvx_page_table table = { pages, count };

    for (uint32_t i = 0; i < count; i++)
        pages[i] = i;
    const kvx_status st =
            kvx_session_pull(c->session, id, KVX_PULL(.tables = &table, .table_count = 1), c->now);
    cr_assert_eq(st, KVX_OK, "pull: %s", kvx_status_name(st));
    return core_order(c, KVX_JOB_START);
}

void core_plan(core *c, kvx_pull_job *job)
{
    kvx_page bad;

    cr_assert_eq(
            kvx_session_job_take(c->session, job, 0, 0, job->tables[0].page_count, &bad), KVX_OK);
    kvx_session_job_planned(c->session, job, c->now);
}

void core_done(core *c, kvx_pull_job *job)
{
    const kvx_pull_stats stats = { .bytes = 10, .reads = 1, .pages = 1 };

    kvx_session_job_done(c->session, job, &stats, c->now);
}
