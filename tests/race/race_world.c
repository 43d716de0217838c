/* SPDX-License-Identifier: Apache-2.0 */
#include "race/race_world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SHOWN_MAX 20
#if defined(__SANITIZE_THREAD__)
#define UNDER_TSAN
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNDER_TSAN
#endif
#endif

/* Without the sanitizer only crashes, hangs and wrong bytes can be seen. */
#ifdef UNDER_TSAN
#define SECONDS 3
#else
#define SECONDS 1
#endif

#ifdef UNDER_TSAN
/* libuv closes its descriptors with bare system calls, which the sanitizer does not see: when a
 * number comes again in another thread, making it looks like a race with its former use. Only
 * reports about the descriptors themselves begin in these functions. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "race_top:epoll_create1\nrace_top:epoll_ctl\nrace_top:epoll_wait\n"
           "race_top:epoll_pwait\nrace_top:pipe2\nrace_top:eventfd\n";
}
#endif

static _Atomic int failures;
static uint64_t ends_at_ms;

static uint64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void race_begin(void)
{
    const char *seconds = getenv("RACE_SECONDS");
    const uint64_t wanted = seconds == NULL ? SECONDS : strtoull(seconds, NULL, 10);
    ends_at_ms = now_ms() + wanted * 1000;
}

bool race_is_over(void)
{
    return now_ms() >= ends_at_ms;
}

void race_expect(bool is_true, const char *what)
{
    if (!is_true && atomic_fetch_add(&failures, 1) < SHOWN_MAX)
        (void)fprintf(stderr, "not so: %s\n", what);
}

void race_expect_status(kvx_status status, kvx_status want, const char *what)
{
    if (status != want && atomic_fetch_add(&failures, 1) < SHOWN_MAX)
        (void)fprintf(stderr, "not so: %s: %s\n", what, kvx_status_name(status));
}

int race_failures(void)
{
    return atomic_load(&failures);
}

uint32_t race_random(uint64_t *state, uint32_t below)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((*state >> 33) % below);
}

/* --- pools --- */

void race_pool_init(race_pool *pool)
{
    *pool = (race_pool){ 0 };
    pool->component = (kvx_component){ "kv", RACE_PAGE_TOKENS, RACE_PAGES, "token,latent" };
    for (uint32_t i = 0; i < RACE_REGIONS; i++) {
        pool->memory[i] = malloc((size_t)RACE_PAGES * RACE_PAGE_BYTES);
        if (pool->memory[i] == NULL)
            abort();
        memset(pool->memory[i], RACE_POISON, (size_t)RACE_PAGES * RACE_PAGE_BYTES);
        pool->regions[i] = (kvx_region){
            .role = "mla", .layer = i, .base = pool->memory[i], .page_bytes = RACE_PAGE_BYTES
        };
    }
    pool->layout = (kvx_layout){ &pool->component, 1, pool->regions, RACE_REGIONS };
    (void)pthread_mutex_init(&pool->lock, NULL);
    for (uint32_t i = 0; i < RACE_PAGES; i++)
        pool->free_pages[i] = (i * 7) % RACE_PAGES; /* 7 and the count have no common factor */
    pool->free_count = RACE_PAGES;
}

void race_pool_fini(race_pool *pool)
{
    race_expect(pool->free_count == RACE_PAGES, "every page is free at the end");
    for (uint32_t i = 0; i < RACE_REGIONS; i++)
        free(pool->memory[i]);
    (void)pthread_mutex_destroy(&pool->lock);
}

bool race_pool_take(race_pool *pool, kvx_page *pages, uint32_t count)
{
    (void)pthread_mutex_lock(&pool->lock);
    const bool has_enough = pool->free_count >= count;
    for (uint32_t i = 0; i < count && has_enough; i++)
        pages[i] = pool->free_pages[--pool->free_count];
    (void)pthread_mutex_unlock(&pool->lock);
    return has_enough;
}

void race_pool_give(race_pool *pool, const kvx_page *pages, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t k = 0; k < RACE_REGIONS; k++)
            memset(pool->memory[k] + (size_t)pages[i] * RACE_PAGE_BYTES, RACE_POISON,
                    RACE_PAGE_BYTES);
    }
    (void)pthread_mutex_lock(&pool->lock);
    for (uint32_t i = 0; i < count; i++)
        pool->free_pages[pool->free_count++] = pages[i];
    (void)pthread_mutex_unlock(&pool->lock);
}

static unsigned char content(uint64_t room, uint32_t place, uint32_t region)
{
    const uint64_t mixed = (room * 31 + place) * 7 + region;
    return (unsigned char)(mixed * UINT64_C(0x9e3779b97f4a7c15) >> 56);
}

void race_pool_fill(race_pool *pool, uint64_t room, const kvx_page *pages, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t k = 0; k < RACE_REGIONS; k++)
            memset(pool->memory[k] + (size_t)pages[i] * RACE_PAGE_BYTES, content(room, i, k),
                    RACE_PAGE_BYTES);
    }
}

static bool is_all(const unsigned char *bytes, size_t size, unsigned char value)
{
    return bytes[0] == value && memcmp(bytes, bytes + 1, size - 1) == 0;
}

bool race_pool_holds(
        const race_pool *pool, uint64_t room, const kvx_page *pages, uint32_t count, uint32_t first)
{
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t k = 0; k < RACE_REGIONS; k++) {
            const unsigned char *page = pool->memory[k] + (size_t)pages[i] * RACE_PAGE_BYTES;
            if (!is_all(page, RACE_PAGE_BYTES, content(room, first + i, k)))
                return false;
        }
    }
    return true;
}

uint32_t race_room_pages(uint64_t room)
{
    return 1 + (uint32_t)(room * 5 % RACE_ROOM_PAGES);
}

/* --- threads --- */

void race_start(pthread_t *thread, race_thread_fn *run, void *arg)
{
    if (pthread_create(thread, NULL, run, arg) != 0)
        abort();
}

void race_join(const pthread_t *threads, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        (void)pthread_join(threads[i], NULL);
}

kvx_config *race_config(const char *transport, const char *progress)
{
    static const char *const settings[][2] = { { "lease_ms", "1000" }, { "ping_ms", "100" },
        { "fence_ms", "300" }, { "drain_ms", "50" }, { "close_ms", "200" }, { "hold_ms", "500" },
        { "patience_ms", "400" }, { "redial_ms", "5" }, { "peer_timeout_ms", "30000" },
        { "window_bytes", "4096" }, { "parked_rooms_max", "12" }, { "pulls_max", "6" } };
    kvx_config *config = NULL;

    race_expect(kvx_config_create(&config) == KVX_OK, "a config is made");
    race_expect(kvx_config_set(config, "transport", transport) == KVX_OK, "transport is set");
    race_expect(kvx_config_set(config, "progress", progress) == KVX_OK, "progress is set");
    for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++)
        race_expect(
                kvx_config_set(config, settings[i][0], settings[i][1]) == KVX_OK, settings[i][0]);
    return config;
}

static void note_line(void *arg, kvx_log_level level, const char *line)
{
    _Atomic uint64_t *count = arg;
    (void)level;
    (void)atomic_fetch_add(count, line[0] != '\0');
}

void *race_swap_log(void *arg)
{
    static _Atomic uint64_t counts[2];
    const struct timespec pause = { .tv_nsec = 200000 };

    (void)arg;
    for (uint32_t i = 0; !race_is_over(); i++) {
        kvx_log_set(i % 3 == 2 ? NULL : note_line, &counts[i % 2],
                i % 2 == 0 ? KVX_LOG_DEBUG : KVX_LOG_WARN);
        (void)nanosleep(&pause, NULL);
    }
    kvx_log_set(NULL, NULL, KVX_LOG_ERROR);
    race_expect(atomic_load(&counts[0]) > 0, "a receiver got lines");
    return NULL;
}

void *race_use_config(void *arg)
{
    uint64_t state = (uint64_t)(uintptr_t)arg;
    const struct timespec pause = { .tv_nsec = 500000 };

    while (!race_is_over()) {
        kvx_config *config = NULL;
        char text[32];
        const uint32_t lease_ms = 1000 + race_random(&state, 10000);
        (void)snprintf(text, sizeof(text), "%" PRIu32, lease_ms);
        race_expect(kvx_config_create(&config) == KVX_OK, "a config is made");
        race_expect(kvx_config_set(config, "lease_ms", text) == KVX_OK, "a setting is set");
        race_expect(kvx_config_set(config, "no_such_key", "1") == KVX_NOT_FOUND,
                "an unknown key is refused");
        race_expect(kvx_config_error(config)[0] != '\0', "the error has text");
        race_expect(kvx_config_load_env(config) == KVX_OK, "the environment is read");
        race_expect(strcmp(kvx_config_get(config, "lease_ms"), text) == 0, "a setting is kept");
        kvx_config_destroy(&config);
        (void)nanosleep(&pause, NULL);
    }
    return NULL;
}
