/* SPDX-License-Identifier: Apache-2.0 */
/* Publish to usable, without the bytes: how long the protocol alone takes between two processes
 * of one host. One sample is READY one way, then RELEASE and RELEASED; beside it, as its floor,
 * three messages of a bare TCP connection between the same two processes. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <kvx/kvx.h>

#include "bench.h"
#include "stats.h"

#define PAGE_TOKENS 16
#define PAGE_BYTES  4096
#define PAGES       16
#define SETTLE_MS   1 /* until the subscription is surely at the owner */
#define WAIT_MS     10000
#define WARM_UP     10 /* samples that are not counted */

enum order { ORDER_PUBLISH = 'p', ORDER_BARE = 'b', ORDER_END = 'e' };

/* A socket pair for orders, and a TCP connection for the bare messages. */
struct side {
    int orders;
    int bare;
    kvx_node *node;
};

static _Alignas(PAGE_BYTES) char pool_memory[PAGES * PAGE_BYTES];

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static bool send_all(int fd, const void *data, size_t size)
{
    return write(fd, data, size) == (ssize_t)size;
}

static bool receive_all(int fd, void *data, size_t size)
{
    size_t got = 0;
    while (got < size) {
        const ssize_t part = read(fd, (char *)data + got, size - got);
        if (part <= 0)
            return false;
        got += (size_t)part;
    }
    return true;
}

static kvx_status node_open(const char *listen_on, kvx_node **node_out)
{
    const kvx_component component = {
        .name = "kv", .page_tokens = PAGE_TOKENS, .page_count = PAGES, .axis = "token"
    };
    const kvx_region region = { .role = "mla", .base = pool_memory, .page_bytes = PAGE_BYTES };
    const kvx_layout layout = {
        .components = &component, .component_count = 1, .regions = &region, .region_count = 1
    };
    return kvx_node_open(
            KVX_NODE_PARAMS(.layout = &layout, .compat = "bench", .listen = listen_on), node_out);
}

/* --- the owner's process --- */

static bool owner_publish(struct side *owner, uint64_t room)
{
    const kvx_page page = (kvx_page)(room % PAGES);
    const kvx_page_table pages = { .pages = &page, .page_count = 1 };
    kvx_event event;
    (void)poll(NULL, 0, SETTLE_MS);
    const uint64_t begin_ns = now_ns();
    if (kvx_publish(owner->node,
                KVX_OFFER(.room = room, .tokens = PAGE_TOKENS, .tables = &pages, .table_count = 1,
                        .aux = &begin_ns, .aux_bytes = sizeof(begin_ns))) != KVX_OK)
        return false;
    do {
        if (!kvx_node_wait(owner->node, &event, WAIT_MS))
            return false;
    } while (event.kind != KVX_EVENT_RELEASED);
    return event.status == KVX_OK;
}

static bool owner_bare(struct side *owner)
{
    uint64_t echo;
    const uint64_t begin_ns = now_ns();
    return send_all(owner->bare, &begin_ns, sizeof(begin_ns)) &&
           receive_all(owner->bare, &echo, sizeof(echo)) &&
           send_all(owner->bare, &echo, sizeof(echo));
}

static bool owner_tell_address(struct side *owner)
{
    char address[128] = "";
    return kvx_node_address(owner->node, address, sizeof(address)) == KVX_OK &&
           send_all(owner->orders, address, sizeof(address));
}

static int owner_run(struct side *owner)
{
    char order;
    uint64_t room = 0;
    bool is_good = node_open("127.0.0.1:0", &owner->node) == KVX_OK && owner_tell_address(owner);
    while (is_good && receive_all(owner->orders, &order, 1) && order != ORDER_END)
        is_good = order == ORDER_PUBLISH ? owner_publish(owner, ++room) : owner_bare(owner);
    if (owner->node != NULL && kvx_node_close(&owner->node, 0) != KVX_OK)
        is_good = false;
    return is_good ? 0 : 1;
}

/* --- the reader's process --- */

static bool reader_wait(struct side *reader, kvx_event_kind kind, kvx_event *event_out)
{
    while (kvx_node_wait(reader->node, event_out, WAIT_MS)) {
        if (event_out->kind == kind)
            return true;
        if (event_out->kind == KVX_EVENT_FAILED) {
            (void)fprintf(stderr, "kvx-bench: a pull failed: %s\n", event_out->text);
            return false;
        }
    }
    return false;
}

/* One publish to usable; writes its duration. */
static bool reader_sample(struct side *reader, kvx_peer_id peer, uint64_t room, double *us_out)
{
    const char order = ORDER_PUBLISH;
    kvx_subscription_id id;
    kvx_event event;
    uint64_t begin_ns;
    if (kvx_subscribe(reader->node, KVX_SUBSCRIPTION(.peer = peer, .room = room), &id) != KVX_OK ||
            !send_all(reader->orders, &order, 1) || !reader_wait(reader, KVX_EVENT_READY, &event) ||
            event.ready.aux_bytes != sizeof(begin_ns))
        return false;
    memcpy(&begin_ns, event.ready.aux, sizeof(begin_ns));
    if (kvx_release(reader->node, id) != KVX_OK || !reader_wait(reader, KVX_EVENT_PULLED, &event))
        return false;
    *us_out = (double)(now_ns() - begin_ns) / 1000.0;
    return true;
}

static bool reader_bare(struct side *reader, double *us_out)
{
    const char order = ORDER_BARE;
    uint64_t begin_ns;
    if (!send_all(reader->orders, &order, 1) ||
            !receive_all(reader->bare, &begin_ns, sizeof(begin_ns)) ||
            !send_all(reader->bare, &begin_ns, sizeof(begin_ns)) ||
            !receive_all(reader->bare, &begin_ns, sizeof(begin_ns)))
        return false;
    *us_out = (double)(now_ns() - begin_ns) / 1000.0;
    return true;
}

static bool reader_open(struct side *reader, kvx_peer_id *peer_out)
{
    char address[128];
    kvx_event event;
    return receive_all(reader->orders, address, sizeof(address)) &&
           node_open(NULL, &reader->node) == KVX_OK &&
           kvx_connect(reader->node, address, 0, peer_out) == KVX_OK &&
           reader_wait(reader, KVX_EVENT_PEER_UP, &event);
}

static bool reader_measure(
        struct side *reader, kvx_peer_id peer, size_t pairs, double *protocol_us, double *bare_us)
{
    double unused;
    for (uint64_t i = 0; i < pairs + WARM_UP; i++) {
        const bool counts = i >= WARM_UP;
        if (!reader_sample(reader, peer, i + 1, counts ? &protocol_us[i - WARM_UP] : &unused) ||
                !reader_bare(reader, counts ? &bare_us[i - WARM_UP] : &unused))
            return false;
    }
    return true;
}

static bool reader_run(struct side *reader, size_t pairs, double *protocol_us, double *bare_us)
{
    const char order = ORDER_END;
    kvx_peer_id peer;
    const bool is_good =
            reader_open(reader, &peer) && reader_measure(reader, peer, pairs, protocol_us, bare_us);
    (void)send_all(reader->orders, &order, 1);
    if (reader->node != NULL && kvx_node_close(&reader->node, 0) != KVX_OK)
        return false;
    return is_good;
}

/* --- both --- */

static bool tcp_pair(int ends_out[2])
{
    struct sockaddr_in address = { .sin_family = AF_INET,
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof(address);
    const int one = 1;
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    ends_out[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, size) != 0 || listen(listener, 1) != 0 ||
            getsockname(listener, (struct sockaddr *)&address, &size) != 0 ||
            connect(ends_out[0], (struct sockaddr *)&address, size) != 0)
        return false;
    ends_out[1] = accept(listener, NULL, NULL);
    (void)close(listener);
    for (int i = 0; i < 2; i++)
        (void)setsockopt(ends_out[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return ends_out[1] >= 0;
}

static bool both_run(size_t pairs, double *protocol_us, double *bare_us)
{
    int orders[2];
    int bare[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, orders) != 0 || !tcp_pair(bare))
        return false;
    const pid_t pid = fork();
    if (pid < 0)
        return false;
    if (pid == 0) {
        struct side owner = { .orders = orders[1], .bare = bare[1] };
        (void)close(orders[0]);
        (void)close(bare[0]);
        _exit(owner_run(&owner));
    }
    (void)close(orders[1]);
    (void)close(bare[1]);
    struct side reader = { .orders = orders[0], .bare = bare[0] };
    const bool is_good = reader_run(&reader, pairs, protocol_us, bare_us);
    (void)close(orders[0]);
    (void)close(bare[0]);
    if (!is_good)
        (void)kill(pid, SIGTERM);
    (void)waitpid(pid, NULL, 0);
    return is_good;
}

size_t latency_run(const struct bench_options *options, struct bench_row *rows_out)
{
    const size_t pairs = (size_t)options->pairs;
    double *protocol_us = calloc(pairs * 3, sizeof(*protocol_us));
    size_t rows = 0;
    if (protocol_us == NULL)
        return 0;
    double *bare_us = protocol_us + pairs;
    double *ratios = bare_us + pairs;
    if (both_run(pairs, protocol_us, bare_us)) {
        for (size_t i = 0; i < pairs; i++)
            ratios[i] = protocol_us[i] / bare_us[i];
        const struct estimate ratio = estimate_median(ratios, pairs);
        rows_out[rows++] = (struct bench_row){ .name = "latency",
            .variant = "publish-usable",
            .unit = "us",
            .value = estimate_median(protocol_us, pairs).median,
            .base = estimate_median(bare_us, pairs).median,
            .ratio = ratio.median,
            .ratio_low = ratio.low,
            .ratio_high = ratio.high,
            .pairs = pairs };
    } else {
        (void)fprintf(stderr, "kvx-bench: latency: the two processes did not finish\n");
    }
    free(protocol_us);
    return rows;
}
