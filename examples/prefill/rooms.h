/* SPDX-License-Identifier: Apache-2.0 */
/* The part of an inference engine that the prefill program plays: computes the rooms that are
 * waited for in trace order, publishes them, and frees their pages when they are released. */
#ifndef PREFILL_ROOMS_H
#define PREFILL_ROOMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvx/group.h"
#include "pair/setup.h"

typedef struct prefill_room prefill_room;

typedef struct prefill_rooms {
    pair_setup *setup;
    prefill_room *rooms;
    size_t count;
    size_t cursor;         /* after the room that was begun last */
    uint64_t scanned_ns;   /* when all were looked at */
    prefill_room *current; /* taken, not published yet */
    uint32_t slice_pages;  /* filled between two looks at events */

    uint64_t live; /* published, not released */
    uint64_t published;
    uint64_t released;
    uint64_t lapsed;
    uint64_t taken_back;
    uint64_t failed; /* too large, or refused by the library */
    uint64_t tokens_done;
    uint64_t bytes_released;
    uint64_t bytes_shared;
    uint64_t engine_cpu_ns; /* spent on filling and spoiling pages */
} prefill_rooms;

/* False: a message was printed; close it all the same. */
bool rooms_open(prefill_rooms *rooms, pair_setup *setup);
void rooms_close(prefill_rooms *rooms);

/* Do a slice of work. False: there is nothing to do before the next event. */
bool rooms_step(prefill_rooms *rooms);

/* Take a RELEASED event. */
void rooms_released(prefill_rooms *rooms, const kvx_event *event);

/* Nobody will read any more: take everything back. */
void rooms_end(prefill_rooms *rooms);

#endif
