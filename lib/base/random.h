/* SPDX-License-Identifier: Apache-2.0 */
/* Randomness from the kernel, for epochs and identities. */
#ifndef KVX_BASE_RANDOM_H
#define KVX_BASE_RANDOM_H

#include <stdint.h>

#include "base/check.h"

/* A random number that is not 0. KVX_IO: the kernel has none. */
KVX_CHECKED kvx_status kvx_random(uint64_t *value_out);

#endif
