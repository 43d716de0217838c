/* SPDX-License-Identifier: Apache-2.0 */
#include "pair/address.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORT_MAX 65535

static bool fits(int length, size_t size)
{
    return length >= 0 && (size_t)length < size;
}

bool address_of_rank(const char *address, int rank, char *address_out, size_t size)
{
    const int offset = rank < 0 ? 0 : rank;
    if (strncmp(address, "unix:", 5) == 0) {
        if (rank < 0)
            return fits(snprintf(address_out, size, "%s", address), size);
        return fits(snprintf(address_out, size, "%s.%d", address, rank), size);
    }

    const char *colon = strrchr(address, ':');
    if (colon == NULL || colon == address || colon[1] < '0' || colon[1] > '9')
        return false;
    char *end = NULL;
    const unsigned long port = strtoul(colon + 1, &end, 10);
    if (*end != '\0' || port + (unsigned)offset > PORT_MAX)
        return false;
    return fits(snprintf(address_out, size, "%.*s:%lu", (int)(colon - address), address,
                        port == 0 ? 0 : port + (unsigned)offset),
            size);
}

bool address_is_wildcard(const char *address)
{
    return strncmp(address, "0.0.0.0:", 8) == 0 || strncmp(address, "[::]:", 5) == 0;
}
