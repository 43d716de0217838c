/* SPDX-License-Identifier: Apache-2.0 */
/* How far a run is: a bar on a terminal, now and then a line elsewhere. */
#ifndef PAIR_PROGRESS_H
#define PAIR_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct progress_bar {
    FILE *out;
    bool is_terminal;
    uint64_t total; /* of whatever is counted; 0: not known */
    uint64_t started_ns;
    uint64_t shown_ns;
} progress_bar;

/* The state of a run. */
typedef struct progress_state {
    uint64_t done;     /* of total */
    uint64_t rooms;    /* requests that ended */
    uint64_t room_max; /* of so many */
    uint64_t bytes;    /* moved */
} progress_state;

void progress_start(progress_bar *bar, FILE *out, uint64_t total);

/* Show it if it is time to. Cheap to call often. */
void progress_show(progress_bar *bar, const progress_state *state);

/* Leave the terminal's line clean for other text. */
void progress_clear(progress_bar *bar);

#endif
