/* SPDX-License-Identifier: Apache-2.0 */
/* The part of an inference engine that the decode program plays: requests come in trace order, take
 * pages, live for their output length, and leave. */
#ifndef DECODE_ENGINE_H
#define DECODE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "kvx/group.h"
#include "pair/report.h"
#include "pair/setup.h"
#include "pair/verify.h"

typedef struct decode_room decode_room;
TAILQ_HEAD(decode_rooms, decode_room);

typedef struct decode_engine {
    pair_setup *setup;
    kvx_peer_id peer;
    bool is_up;     /* the peer is: subscribing makes sense */
    bool may_retry; /* what a loss took is asked for again */
    bool is_ending; /* nothing new is begun */
    bool is_left;   /* what is under way was given up */

    decode_room *rooms;
    size_t room_count;
    size_t next;                   /* the first that was never asked for */
    struct decode_rooms again;     /* to be asked for again */
    struct decode_rooms ready;     /* published, without pages of ours */
    struct decode_rooms residents; /* here, in the order they came */
    uint32_t waiting;              /* subscriptions that have not ended */
    uint32_t verifying;
    uint32_t held;     /* failed, but their pages are not quiet */
    uint64_t arrivals; /* the virtual time that residents live by */
    uint64_t tokens_done;

    page_verifier *verifier; /* NULL: verification is off */
    decode_report report;
} decode_engine;

/* False: a message was printed; close it all the same. */
bool engine_open(decode_engine *engine, pair_setup *setup);
void engine_close(decode_engine *engine);

/* Take an event about a room. */
void engine_event(decode_engine *engine, const kvx_event *event);

/* Begin and end whatever can be, without waiting. */
void engine_step(decode_engine *engine);

/* Give up what is under way; its events say when the other side has its pages back. */
void engine_leave(decode_engine *engine);

/* Whether every request that will be run has ended. */
bool engine_is_done(const decode_engine *engine);

/* The run is over: what was to be asked for again has failed, and the residents go. Returns
 * how many pages are still taken though nobody holds them. */
uint32_t engine_empty(decode_engine *engine);

#endif
