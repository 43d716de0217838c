/* SPDX-License-Identifier: Apache-2.0 */
/* An owner that obeys over pipes: a thread of this process (loopback) or a forked child (cma), so
 * that one test runs over both. It progresses by itself, and stops when it is frozen. Its pool is
 * a world_pool of seed 1; each page that comes back to it is poisoned at once. */
#ifndef KVX_TEST_API_OWNER_H
#define KVX_TEST_API_OWNER_H

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "integration/test_node_world.h"

#define OWNER_SEED 1

typedef struct api_transport {
    char name[16];
} api_transport;

/* A test that is run over every transport that was built; `transport` names it. */
#define API_TEST(suite, name)                \
    ParameterizedTestParameters(suite, name) \
    {                                        \
        return api_transports();             \
    }                                        \
    ParameterizedTest(api_transport *transport, suite, name, .timeout = 60)

struct criterion_test_params api_transports(void);

typedef struct api_owner api_owner;

/* Settings: "key", "value", ..., NULL. */
api_owner *api_owner_start(const api_transport *transport, const char *const settings[][2]);
/* Closes the node, which must end well. */
void api_owner_end(api_owner **owner);
const char *api_owner_address(const api_owner *owner);

kvx_status api_owner_publish(api_owner *owner, uint64_t room, uint32_t first, uint32_t count);
kvx_status api_owner_revoke(api_owner *owner, uint64_t room);
kvx_status api_owner_abort(api_owner *owner, uint64_t room);
kvx_status api_owner_reserve(api_owner *owner, uint64_t room, uint64_t bytes);
kvx_room_state api_owner_query(api_owner *owner, uint64_t room);
kvx_metrics_snapshot api_owner_metrics(api_owner *owner);
/* Wait for RELEASED of this room; its status. KVX_AGAIN: it does not come within timeout_ms. */
kvx_status api_owner_released(api_owner *owner, uint64_t room, uint32_t timeout_ms);
/* Handle nothing until the next command. */
void api_owner_freeze(api_owner *owner);
/* Go on after a freeze. */
void api_owner_thaw(api_owner *owner);

/* A reader of the same transport, which the test progresses itself: a small window makes pulls
 * last as long as they must. */
typedef struct api_reader {
    world_pool pool;
    kvx_node *node;
    kvx_peer_id peer;
} api_reader;

void api_reader_open(api_reader *reader, const api_transport *transport, const api_owner *owner,
        const char *const settings[][2]);
void api_reader_close(api_reader *reader);
/* Progress until the room is in this state; it must come to that. */
void api_reader_until(api_reader *reader, uint64_t room, kvx_room_state state);
/* Progress until some bytes are read, not all; the room is PULLING then. */
void api_reader_until_midway(api_reader *reader);
kvx_metrics_snapshot api_metrics(kvx_node *node);
/* Subscribe and wait for READY. */
kvx_subscription_id api_reader_ready(api_reader *reader, uint64_t room);
/* The room fails with this status; the event. */
kvx_event api_reader_failed(api_reader *reader, uint64_t room, kvx_status status);

#endif
