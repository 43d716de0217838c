/* SPDX-License-Identifier: Apache-2.0 */
/* What the race programs share: pools whose pages say what they hold, free pages, threads that
 * run until the time is over, and one count of what went wrong. */
#ifndef KVX_TEST_RACE_WORLD_H
#define KVX_TEST_RACE_WORLD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "kvx/kvx.h"

#define RACE_PAGES       256
#define RACE_PAGE_BYTES  1024
#define RACE_PAGE_TOKENS 4
#define RACE_REGIONS     3
#define RACE_ROOM_PAGES  24 /* most pages of a room */
#define RACE_POISON      0xee

/* The memory of one rank, and which of its pages are free. */
typedef struct race_pool {
    unsigned char *memory[RACE_REGIONS];
    kvx_component component;
    kvx_region regions[RACE_REGIONS];
    kvx_layout layout;
    pthread_mutex_t lock;
    kvx_page free_pages[RACE_PAGES];
    uint32_t free_count;
} race_pool;

void race_pool_init(race_pool *pool);
void race_pool_fini(race_pool *pool);
/* Some pages, in no order; false: there are too few. */
bool race_pool_take(race_pool *pool, kvx_page *pages, uint32_t count);
/* They are poisoned, since nobody may read them any more. */
void race_pool_give(race_pool *pool, const kvx_page *pages, uint32_t count);
/* Content depends on room, place and region. */
void race_pool_fill(race_pool *pool, uint64_t room, const kvx_page *pages, uint32_t count);
/* first: place of pages[0] in the room. */
bool race_pool_holds(const race_pool *pool, uint64_t room, const kvx_page *pages, uint32_t count,
        uint32_t first);

/* Pages of a room; the same on both sides. */
uint32_t race_room_pages(uint64_t room);

/* A pull under way, given as its user; the terminal event brings it back. */
typedef struct race_pull {
    uint64_t room;
    uint32_t count;
    uint32_t first;
    kvx_page pages[RACE_ROOM_PAGES];
} race_pull;

/* Count a failure unless it is so; names it the first times. */
void race_expect(bool is_true, const char *what);
void race_expect_status(kvx_status status, kvx_status want, const char *what);
int race_failures(void);

/* For how long: 3 s under the sanitizer, else 1; RACE_SECONDS says otherwise. */
void race_begin(void);
bool race_is_over(void);

uint32_t race_random(uint64_t *state, uint32_t below);

typedef void *race_thread_fn(void *arg);
void race_start(pthread_t *thread, race_thread_fn *run, void *arg);
void race_join(const pthread_t *threads, uint32_t count);

/* Short leases and pauses, a window so small that pulls take many rounds, and this transport. */
kvx_config *race_config(const char *transport, const char *progress);

/* Runs of a race_thread_fn: swap the log's receiver, and read and write settings. */
void *race_swap_log(void *arg);
void *race_use_config(void *arg);

#endif
