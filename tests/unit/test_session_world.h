/* SPDX-License-Identifier: Apache-2.0 */
/* A session core alone: its actions are kept, its messages come from the test's hand (through the
 * codec), its clock is a number. Link ids are the test's own. */
#ifndef KVX_TEST_SESSION_WORLD_H
#define KVX_TEST_SESSION_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "session/session.h"

#define MS          KVX_TEST_MS
#define KVX_TEST_MS UINT64_C(1000000)
#define CORE_START  (UINT64_C(1000) * 1000000000)

#define CORE_PAGES       32
#define CORE_PAGE_BYTES  64
#define CORE_PAGE_TOKENS 4
#define CORE_EPOCH       UINT64_C(0xA0A0)
#define OTHER_EPOCH      UINT64_C(0xB0B0)
#define THIRD_EPOCH      UINT64_C(0xC0C0)

/* One action: a message that was sent, or another one. */
typedef enum core_act {
    CORE_SENT,
    CORE_DIALED,
    CORE_CLOSED,
    CORE_DATA_WANTED,
    CORE_DATA_DROPPED,
    CORE_SENDS_CLOSED,
} core_act;

typedef struct core_action {
    core_act act;
    uint64_t link; /* or the peer that was dialled, or the nonce whose sends are to be closed */
    kvx_buffer frame;
    kvx_message message; /* of CORE_SENT, decoded; hellos are dropped */
} core_action;

#define CORE_ACTIONS_MAX 512

typedef struct core {
    kvx_settings settings;
    kvx_pool *pool;
    kvx_hello *hello;
    kvx_metrics metrics;
    kvx_session *session;
    uint64_t now;
    core_action actions[CORE_ACTIONS_MAX];
    uint32_t action_count;
} core;

/* The defaults, with lease 900 ms, margin 9 ms, ping 100 ms, fence 300 ms, drain 50 ms, close
 * 100 ms, hold 2 s, patience 3 s, peer_timeout 500 ms. Change them, then core_open(). */
void core_init(core *c);
void core_open(core *c);
void core_close(core *c);

/* A hello as another node of this epoch would send. */
kvx_hello *core_hello(const core *c, uint64_t epoch);

/* Feed a message, encoded and decoded on its way. */
void core_give(core *c, uint64_t link, const kvx_message *message);
/* Time passes, and what is due is handled. */
void core_pass(core *c, uint64_t ns);

/* Take the oldest action of its kind; CORE_SENT: the oldest message of that type on that link.
 * NULL: none. Valid until the next call of core_forget(). */
const core_action *core_take(core *c, core_act act);
const kvx_message *core_sent(core *c, uint64_t link, kvx_message_type type);
/* The same, and it must be there. */
const kvx_message *core_must_send(core *c, uint64_t link, kvx_message_type type);
/* Drop what was kept so far. */
void core_forget(core *c);
uint32_t core_sent_count(const core *c, uint64_t link, kvx_message_type type);

/* The next event must be of this kind. */
kvx_event core_expect(core *c, kvx_event_kind kind);
void core_expect_none(core *c);

/* Another node connects to us, who own: it is told WELCOME, and PEER_UP is polled. */
void core_accept(core *c, uint64_t link, uint64_t epoch);
/* We connect to another node, who owns: PEER_UP is polled. Its PING was not answered yet. */
kvx_peer_id core_connect(core *c, uint64_t link, uint64_t epoch);
/* Answer the last PING or RENEW of ours as PONG. */
void core_pong(core *c, uint64_t link, uint64_t sequence);
/* Sequence of the last PING or RENEW that was sent on a link; 0: none. */
uint64_t core_last_sequence(const core *c, uint64_t link);

/* --- as owner --- */

void core_publish(core *c, uint64_t room, kvx_page first, uint32_t pages);
void core_give_subscribe(
        core *c, uint64_t link, uint64_t room, uint64_t nonce, uint32_t reader, uint32_t readers);
void core_give_about(core *c, uint64_t link, kvx_message_type type, uint64_t nonce, uint64_t room,
        kvx_generation generation);
void core_give_renew(
        core *c, uint64_t link, uint64_t sequence, uint64_t nonce, kvx_generation generation);
/* Status of the only item of the LEASE that was sent last. */
kvx_status core_lease_status(core *c, uint64_t link);
/* Whether SUBSCRIBE was answered with READY; its generation. */
bool core_is_ready(core *c, uint64_t link, kvx_generation *generation_out);
/* Status of the FAILED, or RELEASED, that was sent; KVX_AGAIN: none was. */
kvx_status core_failed_status(core *c, uint64_t link);
kvx_status core_released_status(core *c, uint64_t link);

/* --- as reader --- */

/* Subscribe; the nonce is the id. */
kvx_subscription_id core_subscribe(core *c, kvx_peer_id peer, uint64_t room);
/* READY of `pages` pages at page 3, whose owner has handled our sequence `echo`. */
void core_give_ready(core *c, uint64_t link, kvx_subscription_id id, uint64_t room, uint32_t pages,
        uint64_t echo);
kvx_generation core_remote_generation(void);
void core_give_lease(
        core *c, uint64_t link, uint64_t sequence, kvx_subscription_id id, kvx_status status);
void core_give_status(
        core *c, uint64_t link, kvx_message_type type, kvx_subscription_id id, kvx_status status);
/* Pull into pages 0, 1, ...; the engine gets the job, which is returned. */
kvx_pull_job *core_pull(core *c, kvx_subscription_id id, uint32_t pages);
/* The engine takes the pages and plans. */
void core_plan(core *c, kvx_pull_job *job);
/* Every byte is in. */
void core_done(core *c, kvx_pull_job *job);
/* The next order must be this one. */
kvx_pull_job *core_order(core *c, kvx_job_order order);

#endif
