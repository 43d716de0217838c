/* SPDX-License-Identifier: Apache-2.0 */
/* The owner is stopped before it can confirm: the pull fails at its deadline, and nothing writes
 * its pages any more, also when the owner goes on and uses its own pages for something else.
 *
 * KVX_TEST_FIGURES holds the deadline to 50 ms; without it a loaded machine may take longer. */
#include <criterion/criterion.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kvx/kvx.h"
#include "support/proc.h"

#define ROOM        7
#define PAGE_TOKENS 16
#define TOKEN_BYTES 1152
#define PAGE_BYTES  ((size_t)PAGE_TOKENS * TOKEN_BYTES)
#define WAIT_MS     60000
#define WATCH_MS    5000
#define OWN_BYTE    0x11
#define REUSED_BYTE 0xEE

/* A pool of one region, and a table of all its pages. */
struct cache {
    kvx_component component;
    kvx_region region;
    kvx_layout layout;
    kvx_page *pages;
    kvx_page_table table;
    size_t bytes;
};

static void cache_make(struct cache *cache, uint32_t page_count, int byte)
{
    cache->bytes = page_count * PAGE_BYTES;
    void *memory =
            mmap(NULL, cache->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cache->pages = calloc(page_count, sizeof(*cache->pages));
    if (memory == MAP_FAILED || cache->pages == NULL)
        abort();
    memset(memory, byte, cache->bytes);
    for (uint32_t i = 0; i < page_count; i++)
        cache->pages[i] = i;
    cache->component = (kvx_component){
        .name = "kv", .page_tokens = PAGE_TOKENS, .page_count = page_count, .axis = "token,latent"
    };
    cache->region = (kvx_region){ .role = "mla", .base = memory, .page_bytes = PAGE_BYTES };
    cache->layout = (kvx_layout){ &cache->component, 1, &cache->region, 1 };
    cache->table = (kvx_page_table){ cache->pages, page_count };
}

static void cache_free(struct cache *cache)
{
    (void)munmap(cache->region.base, cache->bytes);
    free(cache->pages);
}

/* The owner: a process of its own that publishes one room and, once it has the pages back, uses
 * them for something else. It ends only by a signal. */
static void owner_run(int address_out, uint32_t page_count)
{
    struct cache cache;
    kvx_node *node = NULL;
    kvx_event event;
    char address[128];

    cache_make(&cache, page_count, 0x42);
    if (kvx_node_open(KVX_NODE_PARAMS(.layout = &cache.layout, .listen = "127.0.0.1:0"), &node) !=
                    KVX_OK ||
            kvx_publish(node, KVX_OFFER(.room = ROOM, .tokens = page_count * PAGE_TOKENS,
                                      .tables = &cache.table, .table_count = 1)) != KVX_OK ||
            kvx_node_address(node, address, sizeof(address)) != KVX_OK ||
            write(address_out, address, sizeof(address)) != (ssize_t)sizeof(address))
        _exit(3);
    for (;;) {
        if (kvx_node_wait(node, &event, 1000) && event.kind == KVX_EVENT_RELEASED)
            memset(cache.region.base, REUSED_BYTE, cache.bytes);
    }
}

struct owner {
    pid_t pid;
    char address[128];
};

static void owner_start(struct owner *owner, uint32_t page_count)
{
    int ends[2];
    cr_assert_eq(pipe(ends), 0);
    owner->pid = fork();
    cr_assert_geq(owner->pid, 0);
    if (owner->pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        owner_run(ends[1], page_count);
        _exit(3);
    }
    (void)close(ends[1]);
    cr_assert_eq(read(ends[0], owner->address, sizeof(owner->address)),
            (ssize_t)sizeof(owner->address), "the owner did not open");
    (void)close(ends[0]);
}

static void owner_stop(const struct owner *owner)
{
    int state = 0;
    cr_assert_eq(kill(owner->pid, SIGSTOP), 0);
    cr_assert_eq(waitpid(owner->pid, &state, WUNTRACED), owner->pid);
    cr_assert(WIFSTOPPED(state));
}

static void owner_end(const struct owner *owner)
{
    (void)kill(owner->pid, SIGKILL);
    (void)waitpid(owner->pid, NULL, 0);
}

static void wait_event(kvx_node *node, kvx_event_kind kind, kvx_event *event)
{
    const uint64_t end_ms = proc_now_ms() + WAIT_MS;
    while (proc_now_ms() < end_ms)
        if (kvx_node_wait(node, event, 100) && event->kind == kind)
            return;
    cr_assert_fail("event %d did not come", (int)kind);
}

/* A reader to which the room is READY, while its owner is stopped. */
static kvx_subscription_id reader_ready(
        const struct owner *owner, const struct cache *cache, kvx_node **node_out)
{
    kvx_node *node = NULL;
    kvx_peer_id peer;
    kvx_subscription_id id;
    kvx_event event;

    cr_assert_eq(kvx_node_open(KVX_NODE_PARAMS(.layout = &cache->layout), &node), KVX_OK);
    cr_assert_eq(kvx_connect(node, owner->address, 0, &peer), KVX_OK);
    wait_event(node, KVX_EVENT_PEER_UP, &event);
    cr_assert_eq(kvx_subscribe(node, KVX_SUBSCRIPTION(.peer = peer, .room = ROOM), &id), KVX_OK);
    wait_event(node, KVX_EVENT_READY, &event);
    cr_assert_eq(event.ready.components[0].page_count, cache->table.page_count);
    owner_stop(owner);
    *node_out = node;
    return id;
}

/* Pull with a deadline that the owner cannot keep; returns how long the failure took. */
static uint64_t pull_in_vain(
        kvx_node *node, kvx_subscription_id id, const struct cache *cache, uint32_t deadline_ms)
{
    kvx_event event;
    const uint64_t begun_ms = proc_now_ms();

    cr_assert_eq(
            kvx_pull(node, id,
                    KVX_PULL(.tables = &cache->table, .table_count = 1, .deadline_ms = deadline_ms)),
            KVX_OK);
    wait_event(node, KVX_EVENT_FAILED, &event);
    const uint64_t took_ms = proc_now_ms() - begun_ms;
    cr_expect_eq(event.status, KVX_DEADLINE, "it failed with: %s", event.text);
    cr_expect_not(event.pages_held);
    fprintf(stderr, "deadline %u ms: failed after %llu ms, %llu of %zu bytes were in\n", deadline_ms,
            (unsigned long long)took_ms, (unsigned long long)event.stats.bytes, cache->bytes);
    return took_ms;
}

/* The pages are the reader's own again: whatever it writes there stays. */
static void watch_pages(const struct owner *owner, const struct cache *cache)
{
    char *kept = malloc(cache->bytes);
    cr_assert_not_null(kept);
    for (size_t i = 0; i < cache->bytes; i += PAGE_BYTES / 2) /* what a late read would undo */
        memset((char *)cache->region.base + i, OWN_BYTE, PAGE_BYTES / 4);
    memcpy(kept, cache->region.base, cache->bytes);
    cr_assert_eq(kill(owner->pid, SIGCONT), 0);
    const uint64_t end_ms = proc_now_ms() + WATCH_MS;
    do {
        cr_assert_eq(memcmp(kept, cache->region.base, cache->bytes), 0,
                "pages of a pull that has failed were written");
        (void)usleep(20000);
    } while (proc_now_ms() < end_ms);
    free(kept);
}

static void close_reader(kvx_node **node)
{
    cr_expect_eq(kvx_node_close(node, WAIT_MS), KVX_OK);
}

static bool is_strict(void)
{
    return getenv("KVX_TEST_FIGURES") != NULL;
}

Test(pair_deadline, an_owner_that_cannot_confirm_costs_the_pull_at_its_deadline, .timeout = 180)
{
    struct owner owner;
    struct cache cache;
    kvx_node *node;

    owner_start(&owner, 256);
    cache_make(&cache, 256, 0);
    const kvx_subscription_id id = reader_ready(&owner, &cache, &node);
    const uint64_t took_ms = pull_in_vain(node, id, &cache, 500);
    cr_expect_geq(took_ms, 450);
    cr_expect_leq(took_ms, is_strict() ? 550 : 5000);
    watch_pages(&owner, &cache);
    close_reader(&node);
    owner_end(&owner);
    cache_free(&cache);
}

Test(pair_deadline, a_deadline_in_the_midst_of_the_reads_leaves_the_pages_quiet, .timeout = 180)
{
    const uint32_t page_count = 8192; /* 151 MB: not read in 2 ms */
    struct owner owner;
    struct cache cache;
    kvx_node *node;

    owner_start(&owner, page_count);
    cache_make(&cache, page_count, 0);
    const kvx_subscription_id id = reader_ready(&owner, &cache, &node);
    const uint64_t took_ms = pull_in_vain(node, id, &cache, 2);
    cr_expect_leq(took_ms, 5000);
    watch_pages(&owner, &cache);
    close_reader(&node);
    owner_end(&owner);
    cache_free(&cache);
}
