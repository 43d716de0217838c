/* SPDX-License-Identifier: Apache-2.0 */
#include "integration/api_owner.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define RELEASED_MAX 256
#define SETTINGS_MAX 16
#define POISON       0xdd

typedef enum command_kind {
    COMMAND_PUBLISH,
    COMMAND_REVOKE,
    COMMAND_ABORT,
    COMMAND_RESERVE,
    COMMAND_QUERY,
    COMMAND_METRICS,
    COMMAND_RELEASED,
    COMMAND_FREEZE,
    COMMAND_THAW,
    COMMAND_CLOSE,
} command_kind;

typedef struct command {
    command_kind kind;
    uint32_t first;
    uint32_t count;
    uint64_t room;
    uint64_t number;
} command;

typedef struct answer {
    kvx_status status;
    kvx_room_state state;
    kvx_metrics_snapshot metrics;
    char address[128];
} answer;

/* What the obeying side has. */
typedef struct servant {
    int in;
    int out;
    const char *transport;
    const char *const (*settings)[2];
    world_pool pool;
    kvx_node *node;
    struct {
        uint64_t room;
        kvx_status status;
        bool is_taken;
    } released[RELEASED_MAX];
    uint32_t released_count;
} servant;

struct api_owner {
    int to;
    int from;
    pid_t pid;
    pthread_t thread;
    servant servant;
    char address[128];
};

/* --- pipes --- */

static bool write_all(int fd, const void *data, size_t size)
{
    return write(fd, data, size) == (ssize_t)size; /* less than PIPE_BUF */
}

static bool read_all(int fd, void *data, size_t size)
{
    size_t count = 0;

    while (count < size) {
        const ssize_t got = read(fd, (char *)data + count, size - count);
        if (got <= 0)
            return false;
        count += (size_t)got;
    }
    return true;
}

/* --- the obeying side; it may not use the framework --- */

static kvx_node *servant_open(servant *s)
{
    kvx_config *config = NULL;
    kvx_node *node = NULL;

    kvx_status status = kvx_config_create(&config);
    if (status == KVX_OK)
        status = kvx_config_set(config, "transport", s->transport);
    if (status == KVX_OK)
        status = kvx_config_set(config, "progress", "caller");
    for (int i = 0; status == KVX_OK && s->settings != NULL && s->settings[i][0] != NULL; i++)
        status = kvx_config_set(config, s->settings[i][0], s->settings[i][1]);
    if (status == KVX_OK)
        status = kvx_node_open(KVX_NODE_PARAMS(.config = config, .layout = &s->pool.layout,
                                       .listen = "127.0.0.1:0"),
                &node);
    if (status != KVX_OK)
        (void)fprintf(stderr, "owner: %s\n", config == NULL ? "" : kvx_config_error(config));
    kvx_config_destroy(&config);
    return node;
}

static kvx_status publish(servant *s, const command *c)
{
    kvx_page pages[WORLD_PAGES];
    const kvx_page_table table = { pages, c->count };

    for (uint32_t i = 0; i < c->count; i++)
        pages[i] = (c->first + i) % WORLD_PAGES;
    return kvx_publish(
            s->node, KVX_OFFER(.room = c->room, .tokens = c->count * WORLD_PAGE_TOKENS,
                             .tables = &table, .table_count = 1,
                             .user = (void *)(uintptr_t)(c->first * WORLD_PAGES + c->count)));
}

/* Tests publish disjoint pages, or do not look at them after the first is back. */
static void poison(servant *s, const kvx_event *event)
{
    const uintptr_t what = (uintptr_t)event->user;
    const uint32_t first = (uint32_t)(what / WORLD_PAGES);

    for (uint32_t i = 0; i < what % WORLD_PAGES; i++)
        for (uint32_t r = 0; r < WORLD_REGIONS; r++)
            memset(s->pool.memory[r] + (size_t)((first + i) % WORLD_PAGES) * WORLD_PAGE_BYTES,
                    POISON, WORLD_PAGE_BYTES);
}

static void take_events(servant *s, uint32_t timeout_ms)
{
    kvx_event event;

    if (!kvx_node_wait(s->node, &event, timeout_ms))
        return;
    do {
        if (event.kind != KVX_EVENT_RELEASED || s->released_count == RELEASED_MAX)
            continue;
        poison(s, &event);
        s->released[s->released_count].room = event.room;
        s->released[s->released_count++].status = event.status;
    } while (kvx_node_poll(s->node, &event));
}

static kvx_status find_released(servant *s, uint64_t room)
{
    for (uint32_t i = 0; i < s->released_count; i++) {
        if (s->released[i].room != room || s->released[i].is_taken)
            continue;
        s->released[i].is_taken = true;
        return s->released[i].status;
    }
    return KVX_AGAIN;
}

static kvx_status wait_released(servant *s, uint64_t room, uint64_t timeout_ms)
{
    const uint64_t until = world_now_ms() + timeout_ms;
    kvx_status status = find_released(s, room);

    while (status == KVX_AGAIN && world_now_ms() < until) {
        take_events(s, 2);
        status = find_released(s, room);
    }
    return status;
}

static kvx_status close_node(servant *s)
{
    const kvx_status status = kvx_node_close(&s->node, WORLD_WAIT_MS);

    world_pool_fini(&s->pool);
    return status;
}

static answer obey(servant *s, const command *c)
{
    answer a = { 0 };

    a.metrics.struct_size = sizeof(a.metrics);
    switch (c->kind) {
    case COMMAND_PUBLISH: a.status = publish(s, c); break;
    case COMMAND_REVOKE: a.status = kvx_revoke(s->node, c->room); break;
    case COMMAND_ABORT: a.status = kvx_abort(s->node, c->room); break;
    case COMMAND_RESERVE: a.status = kvx_reserve(s->node, c->room, c->number); break;
    case COMMAND_QUERY: a.state = kvx_room_query(s->node, c->room, &a.status); break;
    case COMMAND_METRICS: a.status = kvx_node_metrics(s->node, &a.metrics); break;
    case COMMAND_RELEASED: a.status = wait_released(s, c->room, c->number); break;
    case COMMAND_FREEZE:
    case COMMAND_THAW: break;
    case COMMAND_CLOSE: a.status = close_node(s); break;
    }
    return a;
}

static bool is_asked(int fd)
{
    struct pollfd asked = { .fd = fd, .events = POLLIN };

    return poll(&asked, 1, 0) == 1;
}

static void *serve(void *arg)
{
    servant *s = arg;
    answer hello = { 0 };
    command c = { .kind = COMMAND_THAW };

    s->node = servant_open(s);
    hello.status = s->node == NULL
                           ? KVX_IO
                           : kvx_node_address(s->node, hello.address, sizeof(hello.address));
    (void)write_all(s->out, &hello, sizeof(hello));
    while (s->node != NULL) {
        while (c.kind != COMMAND_FREEZE && !is_asked(s->in))
            take_events(s, 1);
        if (!read_all(s->in, &c, sizeof(c)))
            break;
        const answer a = obey(s, &c);
        (void)write_all(s->out, &a, sizeof(a));
    }
    return NULL;
}

/* --- the commanding side --- */

struct criterion_test_params api_transports(void)
{
    static api_transport transports[] = { { "loopback" }, { "cma" } };
    const size_t count = kvx_transport_find("cma") == NULL ? 1 : 2;

    return cr_make_param_array(api_transport, transports, count);
}

static void fork_child(api_owner *owner)
{
    owner->pid = fork();
    cr_assert_geq(owner->pid, 0);
    if (owner->pid > 0)
        return;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)close(owner->to);
    (void)close(owner->from);
    (void)serve(&owner->servant);
    _exit(0);
}

api_owner *api_owner_start(const api_transport *transport, const char *const settings[][2])
{
    api_owner *owner = calloc(1, sizeof(*owner));
    int in[2];
    int out[2];
    answer hello;

    cr_assert_not_null(owner);
    cr_assert_eq(pipe(in), 0);
    cr_assert_eq(pipe(out), 0);
    owner->to = in[1];
    owner->from = out[0];
    owner->servant = (servant){
        .in = in[0], .out = out[1], .transport = transport->name, .settings = settings
    };
    world_pool_init(&owner->servant.pool, OWNER_SEED);
    if (strcmp(transport->name, "loopback") == 0)
        cr_assert_eq(pthread_create(&owner->thread, NULL, serve, &owner->servant), 0);
    else
        fork_child(owner);
    cr_assert(read_all(owner->from, &hello, sizeof(hello)));
    cr_assert_eq(hello.status, KVX_OK, "the owner does not open");
    memcpy(owner->address, hello.address, sizeof(owner->address));
    return owner;
}

static answer ask(api_owner *owner, command c)
{
    answer a = { 0 };

    cr_assert(write_all(owner->to, &c, sizeof(c)));
    cr_assert(read_all(owner->from, &a, sizeof(a)), "the owner is gone");
    return a;
}

void api_owner_end(api_owner **owner_inout)
{
    api_owner *owner = *owner_inout;

    cr_expect_eq(ask(owner, (command){ .kind = COMMAND_CLOSE }).status, KVX_OK);
    if (owner->pid > 0) {
        int status = -1;
        cr_assert_eq(waitpid(owner->pid, &status, 0), owner->pid);
        cr_expect_eq(status, 0, "the owner's process ends well: %d", status);
        world_pool_fini(&owner->servant.pool);
    } else {
        cr_assert_eq(pthread_join(owner->thread, NULL), 0);
    }
    (void)close(owner->to);
    (void)close(owner->from);
    (void)close(owner->servant.in);
    (void)close(owner->servant.out);
    free(owner);
    *owner_inout = NULL;
}

const char *api_owner_address(const api_owner *owner)
{
    return owner->address;
}

kvx_status api_owner_publish(api_owner *owner, uint64_t room, uint32_t first, uint32_t count)
{
    return ask(owner, (command){ COMMAND_PUBLISH, first, count, room, 0 }).status;
}

kvx_status api_owner_revoke(api_owner *owner, uint64_t room)
{
    return ask(owner, (command){ .kind = COMMAND_REVOKE, .room = room }).status;
}

kvx_status api_owner_abort(api_owner *owner, uint64_t room)
{
    return ask(owner, (command){ .kind = COMMAND_ABORT, .room = room }).status;
}

kvx_status api_owner_reserve(api_owner *owner, uint64_t room, uint64_t bytes)
{
    return ask(owner, (command){ .kind = COMMAND_RESERVE, .room = room, .number = bytes }).status;
}

kvx_room_state api_owner_query(api_owner *owner, uint64_t room)
{
    return ask(owner, (command){ .kind = COMMAND_QUERY, .room = room }).state;
}

kvx_metrics_snapshot api_owner_metrics(api_owner *owner)
{
    return ask(owner, (command){ .kind = COMMAND_METRICS }).metrics;
}

kvx_status api_owner_released(api_owner *owner, uint64_t room, uint32_t timeout_ms)
{
    return ask(owner, (command){ .kind = COMMAND_RELEASED, .room = room, .number = timeout_ms })
            .status;
}

void api_owner_freeze(api_owner *owner)
{
    (void)ask(owner, (command){ .kind = COMMAND_FREEZE });
}

void api_owner_thaw(api_owner *owner)
{
    (void)ask(owner, (command){ .kind = COMMAND_THAW });
}

/* --- readers --- */

void api_reader_open(api_reader *reader, const api_transport *transport, const api_owner *owner,
        const char *const settings[][2])
{
    kvx_config *config = world_config(
            "transport", transport->name, "progress", "caller", "window_bytes", "4096", NULL);

    for (int i = 0; settings != NULL && settings[i][0] != NULL; i++)
        cr_assert_eq(kvx_config_set(config, settings[i][0], settings[i][1]), KVX_OK);
    world_pool_init(&reader->pool, 0);
    reader->node = world_open(&reader->pool, config, NULL);
    kvx_config_destroy(&config);
    reader->peer = world_connect(reader->node, api_owner_address(owner));
}

void api_reader_close(api_reader *reader)
{
    world_close(&reader->node);
    world_pool_fini(&reader->pool);
}

kvx_metrics_snapshot api_metrics(kvx_node *node)
{
    kvx_metrics_snapshot snapshot = { .struct_size = sizeof(snapshot) };

    cr_assert_eq(kvx_node_metrics(node, &snapshot), KVX_OK);
    return snapshot;
}

static void nap(void)
{
    (void)poll(NULL, 0, 1);
}

void api_reader_until(api_reader *reader, uint64_t room, kvx_room_state state)
{
    const uint64_t until = world_now_ms() + WORLD_WAIT_MS;

    while (kvx_room_query(reader->node, room, NULL) != state) {
        cr_assert_lt(world_now_ms(), until, "room %d is in state %d, not %d", (int)room,
                (int)kvx_room_query(reader->node, room, NULL), (int)state);
        if (kvx_node_progress(reader->node) == KVX_OK)
            nap();
    }
}

void api_reader_until_midway(api_reader *reader)
{
    const uint64_t before = api_metrics(reader->node).bytes_read;

    while (api_metrics(reader->node).bytes_read == before)
        cr_assert_neq(kvx_node_progress(reader->node), KVX_INVALID);
    cr_assert_eq(api_metrics(reader->node).failed_protocol, (uint64_t)0);
}

kvx_subscription_id api_reader_ready(api_reader *reader, uint64_t room)
{
    const kvx_subscription_id id = world_subscribe(reader->node, reader->peer, room);

    (void)world_expect_room(reader->node, KVX_EVENT_READY, room);
    return id;
}

kvx_event api_reader_failed(api_reader *reader, uint64_t room, kvx_status status)
{
    const kvx_event event = world_expect_room(reader->node, KVX_EVENT_FAILED, room);

    cr_assert_eq(event.status, status, "room %d: %s", (int)room, kvx_status_name(event.status));
    cr_assert_not(event.pages_held);
    return event;
}
