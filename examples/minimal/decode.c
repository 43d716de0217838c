/* SPDX-License-Identifier: Apache-2.0 */
/* The smallest decode: subscribes to a few rooms, takes pages when a room is ready, pulls, and
 * looks at what came. Usage: kvx-minimal-decode HOST:PORT */
#include <kvx/kvx.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define PAGE_BYTES  4096
#define PAGE_TOKENS 16
#define PAGES       256
#define ROOMS       8
#define ROOM_PAGES  20

static unsigned char pool[PAGES * PAGE_BYTES];

static void log_line(void *arg, kvx_log_level level, const char *line)
{
    (void)arg;
    (void)level;
    fprintf(stderr, "kvx: %s\n", line);
}

/* Pages for a room: an engine asks its allocator now, when it knows how many it needs. */
static void take_pages(uint64_t room, kvx_page *pages)
{
    for (int i = 0; i < ROOM_PAGES; i++)
        pages[i] = (kvx_page)(i * ROOMS + (int)room - 1);
}

static void pull(kvx_node *node, const kvx_event *event)
{
    kvx_page pages[ROOM_PAGES];
    take_pages(event->room, pages);
    const kvx_page_table table = { .pages = pages, .page_count = ROOM_PAGES };
    const kvx_status st =
            kvx_pull(node, event->subscription, KVX_PULL(.tables = &table, .table_count = 1));
    if (st != KVX_OK)
        fprintf(stderr, "room %" PRIu64 ": %s\n", event->room, kvx_status_text(st));
}

/* Whether a room holds what prefill wrote. */
static int check(uint64_t room)
{
    kvx_page pages[ROOM_PAGES];
    take_pages(room, pages);
    for (int i = 0; i < ROOM_PAGES; i++)
        for (size_t byte = 0; byte < PAGE_BYTES; byte++)
            if (pool[(size_t)pages[i] * PAGE_BYTES + byte] != (unsigned char)(room * 31 + i))
                return 0;
    return 1;
}

/* Handle one event; returns whether a room ended. *right counts those that are here. */
static int handle(kvx_node *node, const kvx_event *event, int *right)
{
    if (event->kind == KVX_EVENT_READY)
        pull(node, event);
    if (event->kind == KVX_EVENT_FAILED)
        fprintf(stderr, "room %" PRIu64 ": %s\n", event->room, kvx_status_text(event->status));
    if (event->kind == KVX_EVENT_PULLED) {
        const int is_right = check(event->room);
        printf("room %" PRIu64 ": %" PRIu64 " bytes in %" PRIu64 " reads, %s\n", event->room,
                event->stats.bytes, event->stats.reads, is_right ? "right" : "WRONG");
        *right += is_right;
    }
    return event->kind == KVX_EVENT_PULLED || event->kind == KVX_EVENT_FAILED;
}

/* Subscribe to every room; this takes no pages. */
static int subscribe(kvx_node *node, kvx_peer_id peer)
{
    kvx_subscription_id id;
    int rooms = 0;
    for (uint64_t room = 1; room <= ROOMS; room++)
        rooms += kvx_subscribe(node, KVX_SUBSCRIPTION(.peer = peer, .room = room), &id) == KVX_OK;
    return rooms;
}

int main(int argc, char **argv)
{
    const kvx_component component = { "kv", PAGE_TOKENS, PAGES, "token,latent" };
    const kvx_region region = { .role = "mla", .base = pool, .page_bytes = PAGE_BYTES };
    const kvx_layout layout = { &component, 1, &region, 1 };
    kvx_node *node = NULL;
    kvx_peer_id peer;
    kvx_event event;
    int right = 0;

    kvx_log_set(log_line, NULL, KVX_LOG_WARN);
    if (kvx_node_open(KVX_NODE_PARAMS(.layout = &layout, .compat = "minimal"), &node) != KVX_OK ||
            kvx_connect(node, argc > 1 ? argv[1] : "127.0.0.1:7400", 0, &peer) != KVX_OK)
        return 1;
    while (kvx_node_wait(node, &event, 10000) && event.kind != KVX_EVENT_PEER_UP)
        fprintf(stderr, "%s\n", event.text);

    for (int rooms = subscribe(node, peer); rooms > 0;)
        if (kvx_node_wait(node, &event, 1000))
            rooms -= handle(node, &event, &right);
    return kvx_node_close(&node, 0) == KVX_OK && right == ROOMS ? 0 : 1;
}
