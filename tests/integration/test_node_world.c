/* SPDX-License-Identifier: Apache-2.0 */
#include "test_node_world.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* --- pools --- */

static uint8_t content(uint8_t seed, uint32_t region, uint32_t page, size_t byte)
{
    uint64_t mixed = seed * UINT64_C(0x9E3779B97F4A7C15) + region * UINT64_C(0xBF58476D1CE4E5B9) +
                     page * UINT64_C(0x94D049BB133111EB) + byte * UINT64_C(0xD6E8FEB86659FD93);

    return (uint8_t)((mixed ^ (mixed >> 29)) >> 17);
}

void world_pool_init(world_pool *pool, uint8_t seed)
{
    pool->component = (kvx_component){
        .name = "kv",
        .page_tokens = WORLD_PAGE_TOKENS,
        .page_count = WORLD_PAGES,
        .axis = "token,latent",
    };
    for (uint32_t r = 0; r < WORLD_REGIONS; r++) {
        pool->memory[r] = malloc(WORLD_PAGES * WORLD_PAGE_BYTES);
        cr_assert_neq(pool->memory[r], NULL);
        for (uint32_t i = 0; i < WORLD_PAGES * WORLD_PAGE_BYTES; i++)
            pool->memory[r][i] =
                    seed == 0 ? 0 : content(seed, r, i / WORLD_PAGE_BYTES, i % WORLD_PAGE_BYTES);
        pool->regions[r] = (kvx_region){
            .component = 0,
            .role = "mla",
            .layer = r,
            .base = pool->memory[r],
            .page_bytes = WORLD_PAGE_BYTES,
        };
    }
    pool->layout = (kvx_layout){ &pool->component, 1, pool->regions, WORLD_REGIONS };
}

void world_pool_fini(world_pool *pool)
{
    for (uint32_t r = 0; r < WORLD_REGIONS; r++)
        free(pool->memory[r]);
}

static const uint8_t *page_at(const world_pool *pool, uint32_t region, kvx_page page)
{
    return pool->memory[region] + (size_t)page * WORLD_PAGE_BYTES;
}

bool world_pages_equal(const world_pool *local, const kvx_page *local_pages,
        const world_pool *remote, const kvx_page *remote_pages, uint32_t count)
{
    for (uint32_t r = 0; r < WORLD_REGIONS; r++) {
        for (uint32_t i = 0; i < count; i++) {
            if (memcmp(page_at(local, r, local_pages[i]), page_at(remote, r, remote_pages[i]),
                        WORLD_PAGE_BYTES) != 0)
                return false;
        }
    }
    return true;
}

bool world_pages_have(const world_pool *local, const kvx_page *local_pages, uint8_t seed,
        const kvx_page *remote_pages, uint32_t count)
{
    for (uint32_t r = 0; r < WORLD_REGIONS; r++) {
        for (uint32_t i = 0; i < count * WORLD_PAGE_BYTES; i++) {
            const uint32_t page = i / WORLD_PAGE_BYTES;
            const size_t byte = i % WORLD_PAGE_BYTES;
            if (page_at(local, r, local_pages[page])[byte] !=
                    content(seed, r, remote_pages[page], byte))
                return false;
        }
    }
    return true;
}

/* --- nodes --- */

kvx_config *world_config(const char *key, ...)
{
    kvx_config *config = NULL;
    va_list args;

    cr_assert_eq(kvx_config_create(&config), KVX_OK);
    cr_assert_eq(kvx_config_set(config, "transport", "loopback"), KVX_OK);
    va_start(args, key);
    for (; key != NULL; key = va_arg(args, const char *)) {
        const char *value = va_arg(args, const char *);
        cr_assert_eq(kvx_config_set(config, key, value), KVX_OK, "%s", kvx_config_error(config));
    }
    va_end(args);
    return config;
}

kvx_node *world_open(const world_pool *pool, const kvx_config *config, const char *listen)
{
    kvx_node *node = NULL;
    kvx_config *own = config == NULL ? world_config(NULL) : NULL;

    cr_assert_eq(kvx_node_open(KVX_NODE_PARAMS(.config = config == NULL ? own : config,
                                       .layout = &pool->layout, .listen = listen),
                         &node),
            KVX_OK);
    kvx_config_destroy(&own);
    return node;
}

void world_close(kvx_node **node)
{
    cr_assert_eq(kvx_node_close(node, WORLD_WAIT_MS), KVX_OK);
}

const char *world_address(kvx_node *node)
{
    static char address[320];

    cr_assert_eq(kvx_node_address(node, address, sizeof(address)), KVX_OK);
    return address;
}

kvx_peer_id world_connect(kvx_node *node, const char *address)
{
    kvx_peer_id peer;

    cr_assert_eq(kvx_connect(node, address, 0, &peer), KVX_OK);
    const kvx_event event = world_expect(node, KVX_EVENT_PEER_UP);
    cr_assert_eq(event.peer.value, peer.value);
    return peer;
}

/* --- events --- */

kvx_event world_expect(kvx_node *node, kvx_event_kind kind)
{
    const uint64_t until = world_now_ms() + WORLD_WAIT_MS;
    kvx_event event;

    do {
        if (kvx_node_wait(node, &event, WORLD_WAIT_MS) && event.kind == kind)
            return event;
    } while (world_now_ms() < until);
    cr_assert_fail("event %d did not come", (int)kind);
    return event;
}

kvx_event world_expect_room(kvx_node *node, kvx_event_kind kind, uint64_t room)
{
    kvx_event event;

    do {
        event = world_expect(node, kind);
    } while (event.room != room);
    return event;
}

/* --- calls --- */

void world_pages(kvx_page *pages, uint32_t count, uint32_t first, uint32_t step)
{
    for (uint32_t i = 0; i < count; i++)
        pages[i] = (first + i * step) % WORLD_PAGES;
}

kvx_status world_publish(kvx_node *node, uint64_t room, const kvx_page *pages, uint32_t count)
{
    const kvx_page_table table = { pages, count };

    return kvx_publish(
            node, KVX_OFFER(.room = room, .tokens = count * WORLD_PAGE_TOKENS, .tables = &table,
                          .table_count = 1, .aux = "first token", .aux_bytes = 11));
}

kvx_subscription_id world_subscribe(kvx_node *node, kvx_peer_id peer, uint64_t room)
{
    kvx_subscription_id id;

    cr_assert_eq(kvx_subscribe(node, KVX_SUBSCRIPTION(.peer = peer, .room = room), &id), KVX_OK);
    return id;
}

kvx_status world_pull(kvx_node *node, kvx_subscription_id id, const kvx_page *pages, uint32_t count)
{
    const kvx_page_table table = { pages, count };

    return kvx_pull(node, id, KVX_PULL(.tables = &table, .table_count = 1));
}

/* --- the log --- */

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static char log_text[1 << 20];
static size_t log_size;

static void keep_line(void *arg, kvx_log_level level, const char *line)
{
    (void)arg;
    (void)level;
    (void)pthread_mutex_lock(&log_lock);
    const size_t left = sizeof(log_text) - log_size;
    const int length = snprintf(log_text + log_size, left, "%s\n", line);
    if (length > 0 && (size_t)length < left)
        log_size += (size_t)length;
    (void)pthread_mutex_unlock(&log_lock);
}

void world_log_keep(void)
{
    kvx_log_set(keep_line, NULL, KVX_LOG_DEBUG);
}

bool world_log_has(const char *text)
{
    (void)pthread_mutex_lock(&log_lock);
    const bool has = strstr(log_text, text) != NULL;
    (void)pthread_mutex_unlock(&log_lock);
    return has;
}

uint64_t world_now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}
