/* SPDX-License-Identifier: Apache-2.0 */
/* Pools with known content, nodes over them, and waiting for their events. What goes wrong here
 * ends the test with a message. */
#ifndef KVX_TEST_NODE_WORLD_H
#define KVX_TEST_NODE_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvx/kvx.h"

#define WORLD_REGIONS     2
#define WORLD_PAGES       64
#define WORLD_PAGE_BYTES  1152
#define WORLD_PAGE_TOKENS 16
#define WORLD_WAIT_MS     10000

/* One rank's memory. */
typedef struct world_pool {
    uint8_t *memory[WORLD_REGIONS];
    kvx_component component;
    kvx_region regions[WORLD_REGIONS];
    kvx_layout layout;
} world_pool;

/* Content that differs between seeds, regions, pages and bytes; seed 0: zeroes. */
void world_pool_init(world_pool *pool, uint8_t seed);
void world_pool_fini(world_pool *pool);

/* Whether local pages equal remote ones, one to one, in every region. */
bool world_pages_equal(const world_pool *local, const kvx_page *local_pages,
        const world_pool *remote, const kvx_page *remote_pages, uint32_t count);
/* The same, where the remote pool is another process's, filled with this seed. */
bool world_pages_have(const world_pool *local, const kvx_page *local_pages, uint8_t seed,
        const kvx_page *remote_pages, uint32_t count);

/* Settings: "key", "value", ..., NULL on top of loopback. */
kvx_config *world_config(const char *key, ...);

/* A node of one rank; listen and config may be NULL. */
kvx_node *world_open(const world_pool *pool, const kvx_config *config, const char *listen);
void world_close(kvx_node **node);
/* Where it listens; static until the next call. */
const char *world_address(kvx_node *node);
/* Connect, and wait until the peer is up. */
kvx_peer_id world_connect(kvx_node *node, const char *address);

/* Wait for an event of this kind; others before it are dropped. */
kvx_event world_expect(kvx_node *node, kvx_event_kind kind);
/* The same, of this room. */
kvx_event world_expect_room(kvx_node *node, kvx_event_kind kind, uint64_t room);

/* Page tables of one component: count pages from first on, each step pages after the last. */
void world_pages(kvx_page *pages, uint32_t count, uint32_t first, uint32_t step);
kvx_status world_publish(kvx_node *node, uint64_t room, const kvx_page *pages, uint32_t count);
kvx_subscription_id world_subscribe(kvx_node *node, kvx_peer_id peer, uint64_t room);
kvx_status world_pull(kvx_node *node, kvx_subscription_id id, const kvx_page *pages, uint32_t count);

/* Keep the log's lines, and look for a text in them. */
void world_log_keep(void);
bool world_log_has(const char *text);

/* Milliseconds of a clock that only rises. */
uint64_t world_now_ms(void);

#endif
