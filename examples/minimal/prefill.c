/* SPDX-License-Identifier: Apache-2.0 */
/* The smallest prefill: publishes a few rooms and frees their pages when decode has them.
 * Usage: kvx-minimal-prefill HOST:PORT, then kvx-minimal-decode HOST:PORT */
#include <kvx/kvx.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* What decode will look for: depends on the room and on the place in it. */
static void fill(uint64_t room, const kvx_page *pages)
{
    for (int i = 0; i < ROOM_PAGES; i++)
        memset(pool + (size_t)pages[i] * PAGE_BYTES, (int)(room * 31 + i), PAGE_BYTES);
}

/* Compute a room into pages and offer it. From here on they must not change. */
static int publish(kvx_node *node, uint64_t room)
{
    kvx_page pages[ROOM_PAGES];
    for (int i = 0; i < ROOM_PAGES; i++)
        pages[i] = (kvx_page)((room - 1) * ROOM_PAGES + ROOM_PAGES - 1 - i);
    fill(room, pages);

    const kvx_page_table table = { .pages = pages, .page_count = ROOM_PAGES };
    const kvx_status st =
            kvx_publish(node, KVX_OFFER(.room = room, .tokens = ROOM_PAGES * PAGE_TOKENS,
                                      .tables = &table, .table_count = 1));
    if (st != KVX_OK)
        fprintf(stderr, "room %" PRIu64 ": %s\n", room, kvx_status_text(st));
    return st == KVX_OK;
}

/* Wait until every room is over; returns how many were read. */
static int serve(kvx_node *node, int rooms)
{
    int released = 0;
    kvx_event event;
    while (rooms > 0) {
        if (!kvx_node_wait(node, &event, 1000) || event.kind != KVX_EVENT_RELEASED)
            continue;
        printf("room %" PRIu64 ": %s\n", event.room, kvx_status_text(event.status));
        released += event.status == KVX_OK;
        rooms--;
    }
    return released;
}

int main(int argc, char **argv)
{
    const kvx_component component = { "kv", PAGE_TOKENS, PAGES, "token,latent" };
    const kvx_region region = { .role = "mla", .base = pool, .page_bytes = PAGE_BYTES };
    const kvx_layout layout = { &component, 1, &region, 1 };
    kvx_node *node = NULL;
    char address[128];
    int rooms = 0;

    kvx_log_set(log_line, NULL, KVX_LOG_WARN);
    if (kvx_node_open(KVX_NODE_PARAMS(.layout = &layout, .compat = "minimal",
                              .listen = argc > 1 ? argv[1] : "127.0.0.1:7400"),
                &node) != KVX_OK ||
            kvx_node_address(node, address, sizeof(address)) != KVX_OK)
        return 1;
    printf("listening on %s\n", address);
    fflush(stdout);

    for (uint64_t room = 1; room <= ROOMS; room++)
        rooms += publish(node, room);
    const int released = serve(node, rooms);
    return kvx_node_close(&node, 0) == KVX_OK && released == ROOMS ? 0 : 1;
}
