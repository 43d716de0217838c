/* SPDX-License-Identifier: Apache-2.0 */
/* A connection that speaks the protocol, but of leases that are another's: it is refused and
 * counted, and the other reader does not notice. */
#include <criterion/criterion.h>

#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "integration/test_node_world.h"
#include "wire/message.h"

static world_pool pools[2];
static kvx_node *owner;
static kvx_node *reader;
static kvx_peer_id peer;
static int stranger; /* socket */
static kvx_buffer heard;
static kvx_page from[8];
static kvx_page to[8];

/* --- a stranger's socket --- */

static void say(const kvx_message *message)
{
    kvx_buffer frame = { 0 };

    cr_assert_eq(kvx_wire_encode(message, &frame), KVX_OK);
    cr_assert_eq(send(stranger, frame.data, frame.size, MSG_NOSIGNAL), (ssize_t)frame.size);
    kvx_buffer_fini(&frame);
}

/* The next message of this type; PINGs are answered on the way. */
static kvx_message hear(kvx_message_type type)
{
    for (;;) {
        uint32_t length = 0;
        const uint8_t *data = heard.data + heard.start;
        const size_t size = kvx_buffer_length(&heard);
        if (kvx_wire_frame_length(data, size, KVX_WIRE_FRAME_MAX, &length) == KVX_OK &&
                length <= size) {
            kvx_message message = { 0 };
            cr_assert_eq(kvx_wire_decode(data, length, &message), KVX_OK);
            kvx_buffer_consume(&heard, length);
            if (message.type == KVX_MESSAGE_WELCOME)
                kvx_hello_destroy(&message.hello_in);
            if (message.type == type)
                return message;
            continue;
        }
        struct pollfd waited = { .fd = stranger, .events = POLLIN };
        cr_assert_eq(poll(&waited, 1, WORLD_WAIT_MS), 1, "no %s came", kvx_message_name(type));
        uint8_t *space = kvx_buffer_space(&heard, 4096);
        const ssize_t got = recv(stranger, space, 4096, 0);
        cr_assert_gt(got, 0, "the owner hung up");
        kvx_buffer_commit(&heard, (size_t)got);
    }
}

static void describe(kvx_hello *hello, kvx_hello_region *regions, kvx_blob *keys)
{
    *hello = (kvx_hello){ .version_min = KVX_WIRE_VERSION_MIN,
        .version_max = KVX_WIRE_VERSION_MAX,
        .epoch = 4242,
        .ranks = 1,
        .component_count = 1,
        .region_count = WORLD_REGIONS,
        .regions = regions,
        .path_count = 1 };
    (void)snprintf(hello->components[0].name, KVX_NAME_MAX, "kv");
    (void)snprintf(hello->components[0].axis, KVX_NAME_MAX, "token,latent");
    hello->components[0].page_tokens = WORLD_PAGE_TOKENS;
    hello->components[0].page_count = WORLD_PAGES;
    for (uint32_t i = 0; i < WORLD_REGIONS; i++) {
        regions[i] = (kvx_hello_region){
            .layer = i, .page_bytes = WORLD_PAGE_BYTES, .page_stride = WORLD_PAGE_BYTES
        };
        (void)snprintf(regions[i].role, KVX_NAME_MAX, "mla");
    }
    (void)snprintf(hello->paths[0].transport, KVX_NAME_MAX, "loopback");
    hello->paths[0].keys = keys;
}

static void stranger_connect(void)
{
    struct sockaddr_in address = { .sin_family = AF_INET };
    kvx_hello_region regions[WORLD_REGIONS];
    kvx_blob keys[WORLD_REGIONS] = { { 0 } };
    kvx_hello hello;
    const kvx_message message = { .type = KVX_MESSAGE_HELLO, .hello = &hello };

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons((uint16_t)atoi(strrchr(world_address(owner), ':') + 1));
    stranger = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(connect(stranger, (struct sockaddr *)&address, sizeof(address)), 0);
    describe(&hello, regions, keys);
    say(&message);
    (void)hear(KVX_MESSAGE_WELCOME);
}

static void setup(void)
{
    world_pool_init(&pools[0], 1);
    world_pool_init(&pools[1], 0);
    world_pages(from, 8, 0, 3);
    world_pages(to, 8, 9, 5);
    owner = world_open(&pools[0], NULL, "127.0.0.1:0");
    reader = world_open(&pools[1], NULL, NULL);
    peer = world_connect(reader, world_address(owner));
    stranger_connect();
}

static void teardown(void)
{
    (void)close(stranger);
    kvx_buffer_fini(&heard);
    world_close(&reader);
    world_close(&owner);
    world_pool_fini(&pools[0]);
    world_pool_fini(&pools[1]);
}

TestSuite(api_foreign, .init = setup, .fini = teardown, .timeout = 60);

/* --- another's lease --- */

static kvx_metrics_snapshot metrics(void)
{
    kvx_metrics_snapshot snapshot = { .struct_size = sizeof(snapshot) };

    cr_assert_eq(kvx_node_metrics(owner, &snapshot), KVX_OK);
    return snapshot;
}

/* The stranger's messages were handled when its PING after them is answered. */
static void settle(void)
{
    static uint64_t sequence = 1000;
    const kvx_message ping = { .type = KVX_MESSAGE_PING, .ping = { ++sequence } };

    say(&ping);
    while (hear(KVX_MESSAGE_PONG).ping.sequence != sequence)
        continue;
}

/* The room is ready for the real reader; what the stranger says of it. */
static kvx_message victim(kvx_message_type type, kvx_subscription_id *id_out)
{
    cr_assert_eq(world_publish(owner, 5, from, 8), KVX_OK);
    *id_out = world_subscribe(reader, peer, 5);
    const kvx_event event = world_expect_room(reader, KVX_EVENT_READY, 5);
    return (kvx_message){ .type = type, .about = { id_out->value, 5, event.ready.generation } };
}

static void expect_unharmed(kvx_subscription_id id, uint64_t foreign)
{
    kvx_event event;

    settle();
    cr_expect_eq(
            metrics().foreign_messages, foreign, "%d are counted", (int)metrics().foreign_messages);
    cr_expect_eq(kvx_room_query(owner, 5, NULL), KVX_ROOM_PUBLISHED);
    cr_expect_eq(metrics().leases, (uint64_t)1);
    while (kvx_node_poll(owner, &event))
        cr_expect_neq(event.kind, KVX_EVENT_RELEASED);
    cr_assert_eq(world_pull(reader, id, to, 8), KVX_OK);
    (void)world_expect_room(reader, KVX_EVENT_PULLED, 5);
    cr_expect(world_pages_equal(&pools[1], to, &pools[0], from, 8));
    cr_expect_eq(world_expect_room(owner, KVX_EVENT_RELEASED, 5).status, KVX_OK);
}

Test(api_foreign, another_s_lease_cannot_be_released)
{
    kvx_subscription_id id;
    const kvx_message release = victim(KVX_MESSAGE_RELEASE, &id);

    say(&release);
    const kvx_message answer = hear(KVX_MESSAGE_RELEASED);
    cr_expect_eq(answer.released.status, KVX_GONE);
    expect_unharmed(id, 1);
}

Test(api_foreign, another_s_lease_cannot_be_aborted)
{
    kvx_subscription_id id;
    const kvx_message abort_it = victim(KVX_MESSAGE_ABORT, &id);

    say(&abort_it);
    expect_unharmed(id, 1);
}

Test(api_foreign, another_s_lease_cannot_be_drained)
{
    kvx_subscription_id id;
    const kvx_message drained = victim(KVX_MESSAGE_DRAINED, &id);

    say(&drained);
    expect_unharmed(id, 1);
}

Test(api_foreign, another_s_lease_cannot_be_renewed)
{
    kvx_subscription_id id;
    const kvx_message about = victim(KVX_MESSAGE_RELEASE, &id);
    const kvx_renew_item item = { about.about.nonce, about.about.generation };
    const kvx_message renew = { .type = KVX_MESSAGE_RENEW,
        .renew = { .sequence = 3, .items = &item, .count = 1 } };

    say(&renew);
    const kvx_message answer = hear(KVX_MESSAGE_LEASE);
    cr_expect_eq(kvx_wire_lease_at(answer.lease.view, 0).status, KVX_GONE);
    expect_unharmed(id, 1);
}

Test(api_foreign, a_place_that_is_taken_cannot_be_taken)
{
    kvx_subscription_id id;
    const kvx_message about = victim(KVX_MESSAGE_RELEASE, &id);
    const kvx_message subscribe = { .type = KVX_MESSAGE_SUBSCRIBE,
        .subscribe = { 5, about.about.nonce, 0, 1, 1000 } };

    say(&subscribe);
    cr_expect_eq(hear(KVX_MESSAGE_FAILED).released.status, KVX_REFUSED);
    expect_unharmed(id, 0);
}

Test(api_foreign, an_owner_s_message_from_a_reader_ends_only_its_own_connection)
{
    kvx_subscription_id id;
    kvx_message about = victim(KVX_MESSAGE_REVOKE, &id);
    char byte;

    say(&about);
    struct pollfd waited = { .fd = stranger, .events = POLLIN };
    do {
        cr_assert_eq(poll(&waited, 1, WORLD_WAIT_MS), 1, "it is hung up on");
    } while (recv(stranger, &byte, 1, 0) > 0);
    cr_expect_eq(metrics().protocol_errors, (uint64_t)1);
    (void)close(stranger);
    stranger_connect();
    expect_unharmed(id, 0);
}
