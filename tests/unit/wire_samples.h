/* SPDX-License-Identifier: Apache-2.0 */
/* Random messages, for the tests of wire. */
#ifndef KVX_TEST_WIRE_SAMPLES_H
#define KVX_TEST_WIRE_SAMPLES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvx/transport.h"

#include "support/seed.h"
#include "wire/message.h"

static const kvx_status sample_statuses[] = { KVX_OK, KVX_AGAIN, KVX_EXPIRED, KVX_REVOKED, KVX_GONE,
    KVX_PEER_LOST, KVX_NO_MEMORY, KVX_FORKED };
enum { SAMPLE_STATUSES = sizeof(sample_statuses) / sizeof(*sample_statuses) };

/* Memory that sampled messages point into. */
typedef struct sample_tables {
    kvx_page_run runs[64];
    kvx_renew_item renewed[32];
    kvx_lease_item leased[32];
    uint8_t aux[512];
} sample_tables;

static inline uint32_t sample_u32(uint64_t *state)
{
    return (uint32_t)test_random(state);
}

static inline uint32_t sample_below(uint64_t *state, uint32_t below)
{
    return (uint32_t)test_random_below(state, below);
}

static inline kvx_status sample_status(uint64_t *state, bool may_be_ok)
{
    const uint32_t first = may_be_ok ? 0 : 1;

    return sample_statuses[first + sample_below(state, SAMPLE_STATUSES - first)];
}

static inline kvx_blob sample_blob(uint64_t *state, uint8_t **at, uint32_t most)
{
    const kvx_blob blob = { .data = *at, .size = sample_below(state, most + 1) };

    for (uint32_t i = 0; i < blob.size; i++)
        *(*at)++ = (uint8_t)test_random(state);
    return blob;
}

static inline void sample_shape(kvx_hello *hello, uint64_t *state)
{
    for (uint32_t i = 0; i < hello->component_count; i++) {
        (void)snprintf(hello->components[i].name, KVX_NAME_MAX, "part%u", i);
        (void)snprintf(hello->components[i].axis, KVX_NAME_MAX, "token,head%u", i);
        hello->components[i].page_tokens = sample_below(state, 3) * 16;
        hello->components[i].page_count = 1 + sample_below(state, 1u << 20);
    }
    for (uint32_t i = 0; i < hello->region_count; i++) {
        hello->regions[i].component = sample_below(state, hello->component_count);
        (void)snprintf(hello->regions[i].role, KVX_NAME_MAX, "%s", i % 2 ? "v" : "k");
        hello->regions[i].layer = i / 2;
        hello->regions[i].page_bytes = 1 + sample_below(state, 1u << 20);
        hello->regions[i].page_stride = hello->regions[i].page_bytes + sample_below(state, 1u << 20);
    }
}

/* A random hello that encodes, or that does not fit if key_bytes is large; ends the program if
 * there is no memory. */
static inline kvx_hello *sample_hello_sized(
        uint64_t *state, uint32_t region_count, uint32_t key_bytes)
{
    kvx_hello *hello = calloc(1, sizeof(*hello));
    const size_t blob_bytes = 64 + KVX_PATH_MAX * (64 + (size_t)region_count * key_bytes);
    uint8_t *at = malloc(blob_bytes);

    if (hello == NULL || at == NULL)
        abort();
    hello->storage = at;
    hello->version_min = KVX_WIRE_VERSION_MIN;
    hello->version_max = KVX_WIRE_VERSION_MAX + sample_below(state, 3);
    hello->auth_kind = sample_below(state, 3);
    if (hello->auth_kind != 0)
        hello->auth = sample_blob(state, &at, 64);
    hello->epoch = test_random(state);
    hello->rank_wanted = sample_u32(state);
    hello->rank = sample_u32(state);
    hello->ranks = sample_u32(state);
    (void)snprintf(hello->compat, sizeof(hello->compat), "mod\xC3\xA9l-%u bf16", sample_u32(state));
    hello->component_count = 1 + sample_below(state, KVX_COMPONENT_MAX);
    hello->region_count = region_count;
    hello->regions = calloc((size_t)region_count + 1, sizeof(*hello->regions));
    if (hello->regions == NULL)
        abort();
    sample_shape(hello, state);
    hello->path_count = sample_below(state, KVX_PATH_MAX + 1);
    for (uint32_t i = 0; i < hello->path_count; i++) {
        kvx_hello_path *path = &hello->paths[i];
        path->rail = sample_below(state, 16);
        (void)snprintf(path->transport, KVX_NAME_MAX, "lane%u", sample_below(state, 3));
        path->address = sample_blob(state, &at, 64);
        path->keys = calloc((size_t)region_count + 1, sizeof(*path->keys));
        if (path->keys == NULL)
            abort();
        for (uint32_t j = 0; j < region_count; j++)
            path->keys[j] = sample_blob(state, &at, key_bytes);
    }
    return hello;
}

static inline kvx_hello *sample_hello(uint64_t *state)
{
    const uint32_t region_count = sample_below(state, 12);

    return sample_hello_sized(state, region_count, 48);
}

static inline kvx_generation sample_generation(uint64_t *state)
{
    const uint64_t epoch = test_random(state);

    return (kvx_generation){ .epoch = epoch, .counter = test_random(state) };
}

static inline void sample_ready(kvx_message *message, uint64_t *state, sample_tables *tables)
{
    uint8_t *at = tables->aux;
    uint32_t taken = 0;

    message->ready.nonce = test_random(state);
    message->ready.room = test_random(state);
    message->ready.generation = sample_generation(state);
    message->ready.tokens = sample_u32(state);
    message->ready.lease_ms = sample_u32(state);
    message->ready.echo = test_random(state);
    message->ready.is_partial = sample_below(state, 2) != 0;
    message->ready.component_count = sample_below(state, KVX_COMPONENT_MAX + 1);
    for (uint32_t i = 0; i < 64; i++)
        tables->runs[i] = (kvx_page_run){ sample_u32(state), sample_u32(state) };
    for (uint32_t i = 0; i < message->ready.component_count; i++) {
        message->ready.tables[i].runs = tables->runs + taken;
        message->ready.tables[i].run_count = sample_below(state, 9);
        taken += message->ready.tables[i].run_count;
    }
    message->ready.aux = sample_blob(state, &at, sizeof(tables->aux));
}

static inline void sample_lists(kvx_message *message, uint64_t *state, sample_tables *tables)
{
    const uint32_t count = sample_below(state, 33);

    for (uint32_t i = 0; i < 32; i++) {
        tables->renewed[i].nonce = test_random(state);
        tables->renewed[i].generation = sample_generation(state);
        tables->leased[i].nonce = test_random(state);
        tables->leased[i].status = sample_status(state, true);
    }
    if (message->type == KVX_MESSAGE_RENEW) {
        message->renew.sequence = test_random(state);
        message->renew.items = tables->renewed;
        message->renew.count = count;
        return;
    }
    message->lease.sequence = test_random(state);
    message->lease.items = tables->leased;
    message->lease.count = count;
}

static inline void sample_subscribe(kvx_message *message, uint64_t *state)
{
    message->subscribe.room = test_random(state);
    message->subscribe.nonce = test_random(state);
    message->subscribe.readers = 1 + sample_below(state, 8);
    message->subscribe.reader = sample_below(state, message->subscribe.readers);
    message->subscribe.patience_ms = sample_u32(state);
}

static inline void sample_about(kvx_message *message, uint64_t *state)
{
    message->about.nonce = test_random(state);
    message->about.room = test_random(state);
    message->about.generation = sample_generation(state);
}

/* A random message of a type. Tables are borrowed; a hello is the caller's. */
static inline kvx_message sample_message(
        kvx_message_type type, uint64_t *state, sample_tables *tables)
{
    kvx_message message = { .type = type };

    if (type == KVX_MESSAGE_HELLO || type == KVX_MESSAGE_WELCOME) {
        message.hello = sample_hello(state);
    } else if (type == KVX_MESSAGE_REJECT) {
        message.reject.status = sample_status(state, false);
        (void)snprintf(message.reject.text, sizeof(message.reject.text), "ours %u, theirs %u",
                sample_u32(state), sample_u32(state));
    } else if (type == KVX_MESSAGE_SUBSCRIBE) {
        sample_subscribe(&message, state);
    } else if (type == KVX_MESSAGE_READY) {
        sample_ready(&message, state, tables);
    } else if (type == KVX_MESSAGE_RENEW || type == KVX_MESSAGE_LEASE) {
        sample_lists(&message, state, tables);
    } else if (type == KVX_MESSAGE_RELEASED || type == KVX_MESSAGE_FAILED) {
        message.released.nonce = test_random(state);
        message.released.status = sample_status(state, type == KVX_MESSAGE_RELEASED);
    } else if (type == KVX_MESSAGE_PING || type == KVX_MESSAGE_PONG) {
        message.ping.sequence = test_random(state);
    } else if (type != KVX_MESSAGE_BYE) {
        sample_about(&message, state);
    }
    return message;
}

/* Give back what sample_message() or decoding made. */
static inline void sample_message_end(kvx_message *message)
{
    if (message->type == KVX_MESSAGE_HELLO || message->type == KVX_MESSAGE_WELCOME)
        kvx_hello_destroy(&message->hello_in);
}

#endif
