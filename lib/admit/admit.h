/* SPDX-License-Identifier: Apache-2.0 */
/* Admission: may this be parked, or pulled, now? Bytes and a count against limits; owners park
 * publications and reservations, readers take credits for pulls just in time. Pure. */
#ifndef KVX_ADMIT_ADMIT_H
#define KVX_ADMIT_ADMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"

typedef struct kvx_admit {
    uint64_t bytes_max;
    uint32_t count_max;
    bool lets_one_through; /* a single one larger than bytes_max may pass when nothing else is in */
    uint64_t bytes;
    uint32_t count;
    bool was_refused; /* since the last kvx_admit_reopened() that said true */
} kvx_admit;

/* KVX_AGAIN: not now. KVX_NO_SPACE: never (over bytes_max, and none is let through). */
KVX_CHECKED kvx_status kvx_admit_take(kvx_admit *admit, uint64_t bytes);
void kvx_admit_give(kvx_admit *admit, uint64_t bytes);
/* Change the bytes of one that is in (a reservation becomes smaller). */
void kvx_admit_resize(kvx_admit *admit, uint64_t old_bytes, uint64_t new_bytes);
/* Whether to tell a waiting engine: somebody was refused, and one more fits by count now and
 * bytes are below the limit. Clears the note. */
bool kvx_admit_reopened(kvx_admit *admit);

#endif
