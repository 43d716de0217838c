/* SPDX-License-Identifier: Apache-2.0 */
/* Where a rank is found when each has a process of its own. */
#ifndef PAIR_ADDRESS_H
#define PAIR_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>

/* The address of a rank: port + rank, or path.rank for a Unix socket; port 0 stays 0. Rank -1: the
 * address as it is. False: no port, or it does not fit. */
bool address_of_rank(const char *address, int rank, char *address_out, size_t size);

/* Whether an address stands for every interface, so that it cannot be connected to as it is. */
bool address_is_wildcard(const char *address);

#endif
