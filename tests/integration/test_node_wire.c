/* SPDX-License-Identifier: Apache-2.0 */
/* What comes to a node's port from who is no node of ours: noise, silence, other versions; and
 * what is said when two nodes do not fit. */
#include <criterion/criterion.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "test_node_world.h"
#include "wire/message.h"

static world_pool owner_pool;
static world_pool reader_pool;
static kvx_node *owner;
static kvx_node *reader;

static void setup(void)
{
    kvx_config *config = world_config("handshakes_max", "4", "hello_ms", "300", NULL);

    world_log_keep();
    world_pool_init(&owner_pool, 1);
    world_pool_init(&reader_pool, 0);
    owner = world_open(&owner_pool, config, "127.0.0.1:0");
    kvx_config_destroy(&config);
}

static void teardown(void)
{
    if (reader != NULL)
        world_close(&reader);
    world_close(&owner);
    world_pool_fini(&reader_pool);
    world_pool_fini(&owner_pool);
}

TestSuite(node_wire, .init = setup, .fini = teardown, .timeout = 60);

/* --- a socket of our own --- */

static int dial(void)
{
    struct sockaddr_in address = { .sin_family = AF_INET };
    const char *text = world_address(owner);

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons((uint16_t)atoi(strrchr(text, ':') + 1));
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_geq(fd, 0);
    cr_assert_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static void say(int fd, const void *bytes, size_t size)
{
    cr_assert_eq(send(fd, bytes, size, MSG_NOSIGNAL), (ssize_t)size);
}

/* Read until the other side closes. Bytes read. */
static size_t listen_until_closed(int fd, uint8_t *bytes, size_t size)
{
    size_t count = 0;

    for (;;) {
        struct pollfd waited = { .fd = fd, .events = POLLIN };
        cr_assert_eq(poll(&waited, 1, WORLD_WAIT_MS), 1, "it was not closed");
        const ssize_t got = recv(fd, bytes + count, size - count, 0);
        if (got <= 0)
            return count;
        count += (size_t)got;
    }
}

/* A frame of the given message. */
static kvx_buffer frame_of(const kvx_message *message)
{
    kvx_buffer frame = { 0 };

    cr_assert_eq(kvx_wire_encode(message, &frame), KVX_OK);
    return frame;
}

static kvx_hello simple_hello(void)
{
    return (kvx_hello){
        .version_min = KVX_WIRE_VERSION_MIN,
        .version_max = KVX_WIRE_VERSION_MAX,
        .epoch = 42,
        .ranks = 1,
    };
}

static kvx_message rejection_of(const uint8_t *bytes, size_t count)
{
    kvx_message message = { 0 };
    uint32_t length = 0;

    cr_assert_eq(kvx_wire_frame_length(bytes, count, KVX_WIRE_HELLO_MAX, &length), KVX_OK);
    cr_assert_eq(kvx_wire_decode(bytes, length, &message), KVX_OK);
    cr_assert_eq(message.type, KVX_MESSAGE_REJECT);
    return message;
}

static kvx_message say_hello(const kvx_hello *hello)
{
    static uint8_t answer[4096];
    const kvx_message message = { .type = KVX_MESSAGE_HELLO, .hello = hello };
    kvx_buffer frame = frame_of(&message);
    const int fd = dial();

    say(fd, frame.data + frame.start, kvx_buffer_length(&frame));
    const size_t count = listen_until_closed(fd, answer, sizeof(answer));
    (void)close(fd);
    kvx_buffer_fini(&frame);
    return rejection_of(answer, count);
}

/* A real reader comes through and is served. */
static void pull_once(void)
{
    kvx_page from[4];
    kvx_page to[4];

    if (reader == NULL)
        reader = world_open(&reader_pool, NULL, NULL);
    world_pages(from, 4, 8, 1);
    world_pages(to, 4, 20, 2);
    const kvx_peer_id peer = world_connect(reader, world_address(owner));
    cr_assert_eq(world_publish(owner, 1, from, 4), KVX_OK);
    const kvx_subscription_id id = world_subscribe(reader, peer, 1);
    (void)world_expect_room(reader, KVX_EVENT_READY, 1);
    cr_assert_eq(world_pull(reader, id, to, 4), KVX_OK);
    (void)world_expect_room(reader, KVX_EVENT_PULLED, 1);
    cr_expect(world_pages_equal(&reader_pool, to, &owner_pool, from, 4));
}

static uint64_t protocol_errors(void)
{
    kvx_metrics_snapshot snapshot = { .struct_size = sizeof(snapshot) };

    cr_assert_eq(kvx_node_metrics(owner, &snapshot), KVX_OK);
    return snapshot.protocol_errors;
}

/* --- noise --- */

Test(node_wire, noise_is_hung_up_on_and_counted)
{
    static const char request[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    uint8_t answer[256];
    const int fd = dial();

    say(fd, request, sizeof(request) - 1);
    cr_expect_eq(listen_until_closed(fd, answer, sizeof(answer)), 0);
    (void)close(fd);
    cr_expect_eq(protocol_errors(), 1);
    cr_expect(world_log_has("not a HELLO"));
    pull_once();
}

Test(node_wire, a_frame_that_is_too_long_for_a_hello_is_not_waited_for)
{
    const kvx_message ping = { .type = KVX_MESSAGE_PING };
    kvx_buffer frame = frame_of(&ping);
    uint8_t answer[256];
    const int fd = dial();

    kvx_patch_u32(&frame, frame.start, KVX_WIRE_HELLO_MAX + 1);
    say(fd, frame.data + frame.start, kvx_buffer_length(&frame));
    (void)listen_until_closed(fd, answer, sizeof(answer));
    (void)close(fd);
    kvx_buffer_fini(&frame);
    cr_expect_eq(protocol_errors(), 1);
    pull_once();
}

Test(node_wire, another_message_before_hello_is_noise)
{
    const kvx_message ping = { .type = KVX_MESSAGE_PING };
    kvx_buffer frame = frame_of(&ping);
    uint8_t answer[256];
    const int fd = dial();

    say(fd, frame.data + frame.start, kvx_buffer_length(&frame));
    cr_expect_eq(listen_until_closed(fd, answer, sizeof(answer)), 0);
    (void)close(fd);
    kvx_buffer_fini(&frame);
    cr_expect_eq(protocol_errors(), 1);
}

/* --- silence --- */

Test(node_wire, connections_that_say_nothing_do_not_keep_real_peers_out)
{
    int silent[64];

    for (size_t i = 0; i < 64; i++)
        silent[i] = dial();
    pull_once();
    for (size_t i = 0; i < 64; i++) {
        uint8_t answer[64];
        (void)listen_until_closed(silent[i], answer, sizeof(answer)); /* hello_ms */
        (void)close(silent[i]);
    }
}

Test(node_wire, a_hello_may_come_byte_by_byte)
{
    const kvx_hello hello = simple_hello();
    const kvx_message message = { .type = KVX_MESSAGE_HELLO, .hello = &hello };
    kvx_buffer frame = frame_of(&message);
    uint8_t answer[4096];
    const int fd = dial();

    for (size_t i = 0; i < kvx_buffer_length(&frame); i++)
        say(fd, frame.data + frame.start + i, 1);
    const size_t count = listen_until_closed(fd, answer, sizeof(answer));
    (void)close(fd);
    kvx_buffer_fini(&frame);
    cr_expect_eq(rejection_of(answer, count).reject.status, KVX_MISMATCH);
}

/* --- what does not fit --- */

Test(node_wire, another_version_is_refused_with_both_named)
{
    kvx_hello hello = simple_hello();

    hello.version_min = 7;
    hello.version_max = 9;
    const kvx_message answer = say_hello(&hello);
    cr_expect_eq(answer.reject.status, KVX_MISMATCH);
    cr_expect_neq(strstr(answer.reject.text, "7-9"), NULL, "%s", answer.reject.text);
    cr_expect_neq(strstr(answer.reject.text, "1-1"), NULL, "%s", answer.reject.text);
}

Test(node_wire, a_rank_that_is_not_here_is_refused_and_told_who_is)
{
    kvx_hello hello = simple_hello();

    hello.rank_wanted = 3;
    const kvx_message answer = say_hello(&hello);
    cr_expect_eq(answer.reject.status, KVX_NOT_FOUND);
    cr_expect_neq(strstr(answer.reject.text, "rank 3"), NULL, "%s", answer.reject.text);
    cr_expect_neq(strstr(answer.reject.text, "ranks 0"), NULL, "%s", answer.reject.text);
}

static kvx_event connect_and_be_refused(const kvx_node_params *params)
{
    kvx_peer_id peer;

    cr_assert_eq(kvx_node_open(params, &reader), KVX_OK);
    cr_assert_eq(kvx_connect(reader, world_address(owner), 0, &peer), KVX_OK);
    return world_expect(reader, KVX_EVENT_PEER_LOST);
}

Test(node_wire, another_model_is_refused_with_both_named)
{
    kvx_config *config = world_config(NULL);
    const kvx_event event = connect_and_be_refused(KVX_NODE_PARAMS(.config = config,
            .layout = &reader_pool.layout, .compat = "llama bf16"));

    kvx_config_destroy(&config);
    cr_expect_eq(event.status, KVX_MISMATCH);
    cr_expect_neq(strstr(event.text, "llama bf16"), NULL, "%s", event.text);
}

Test(node_wire, another_page_size_is_refused_with_both_named)
{
    kvx_config *config = world_config(NULL);

    reader_pool.component.page_tokens = 64;
    const kvx_event event = connect_and_be_refused(
            KVX_NODE_PARAMS(.config = config, .layout = &reader_pool.layout));
    kvx_config_destroy(&config);
    cr_expect_eq(event.status, KVX_MISMATCH);
    cr_expect_neq(strstr(event.text, "page_tokens"), NULL, "%s", event.text);
    cr_expect_neq(strstr(event.text, "64"), NULL, "%s", event.text);
    cr_expect_neq(strstr(event.text, "16"), NULL, "%s", event.text);
}

Test(node_wire, one_connection_too_many_is_refused_and_told_why)
{
    kvx_config *config = world_config("connections_max", "1", "redial_ms", "10", NULL);
    kvx_peer_id peer;

    world_close(&owner);
    owner = world_open(&owner_pool, config, "127.0.0.1:0");
    pull_once();
    kvx_node *second = world_open(&reader_pool, config, NULL);
    cr_assert_eq(kvx_connect(second, world_address(owner), 0, &peer), KVX_OK);
    const kvx_event event = world_expect(second, KVX_EVENT_PEER_LOST);
    cr_expect_eq(event.status, KVX_NO_SPACE);
    cr_expect_neq(strstr(event.text, "connections_max"), NULL, "%s", event.text);
    world_close(&reader); /* makes room */
    (void)world_expect(second, KVX_EVENT_PEER_UP);
    reader = second;
    kvx_config_destroy(&config);
}

/* --- dialling --- */

Test(node_wire, an_unknown_host_and_a_port_where_nobody_listens_are_named)
{
    kvx_peer_id peer;

    reader = world_open(&reader_pool, NULL, NULL);
    cr_assert_eq(kvx_connect(reader, "no-such-host.invalid:7000", 0, &peer), KVX_OK);
    kvx_event event = world_expect(reader, KVX_EVENT_PEER_LOST);
    cr_expect_neq(strstr(event.text, "no-such-host.invalid"), NULL, "%s", event.text);
    cr_expect_eq(kvx_disconnect(reader, peer), KVX_OK);

    cr_assert_eq(kvx_connect(reader, "127.0.0.1:1", 0, &peer), KVX_OK);
    event = world_expect(reader, KVX_EVENT_PEER_LOST);
    cr_expect_neq(strstr(event.text, "nobody listens"), NULL, "%s", event.text);
    cr_expect_neq(strstr(event.text, "127.0.0.1:1"), NULL, "%s", event.text);
}

Test(node_wire, a_rank_that_opens_later_is_found_then)
{
    kvx_config *config = world_config(NULL);
    char address[320];
    kvx_peer_id peer;

    (void)snprintf(address, sizeof(address), "%s", world_address(owner));
    world_close(&owner);
    reader = world_open(&reader_pool, config, NULL);
    cr_assert_eq(kvx_connect(reader, address, 0, &peer), KVX_OK);
    (void)world_expect(reader, KVX_EVENT_PEER_LOST);
    owner = world_open(&owner_pool, config, address);
    (void)world_expect(reader, KVX_EVENT_PEER_UP);
    kvx_config_destroy(&config);
}

/* --- Unix sockets --- */

static int unix_socket(const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    cr_assert_geq(fd, 0);
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    cr_assert_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

Test(node_wire, a_socket_file_is_replaced_only_if_nobody_answers_on_it)
{
    kvx_config *config = world_config(NULL);
    char path[64];
    char listen_on[80];

    (void)snprintf(path, sizeof(path), "/tmp/kvx-stale-%d.sock", (int)getpid());
    (void)snprintf(listen_on, sizeof(listen_on), "unix:%s", path);
    const int alive = unix_socket(path);
    cr_assert_eq(listen(alive, 1), 0);
    cr_expect_eq(kvx_node_open(KVX_NODE_PARAMS(.config = config, .layout = &reader_pool.layout,
                                       .listen = listen_on),
                         &reader),
            KVX_IO);
    cr_expect(world_log_has("somebody listens there"));
    (void)close(alive); /* leaves the file behind */
    reader = world_open(&reader_pool, config, listen_on);
    kvx_config_destroy(&config);
}
