/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of control connections as text: "host:port", "[addr]:port", "unix:/path". */
#ifndef KVX_SESSION_ADDRESS_H
#define KVX_SESSION_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/check.h"

#define KVX_ADDRESS_HOST_MAX 256
#define KVX_ADDRESS_PATH_MAX 108
#define KVX_ADDRESS_TEXT_MAX 320

typedef struct kvx_address {
    bool is_unix;
    char host[KVX_ADDRESS_HOST_MAX]; /* name or number, without brackets */
    uint16_t port;
    char path[KVX_ADDRESS_PATH_MAX]; /* of a Unix socket */
} kvx_address;

/* KVX_INVALID: malformed; why says what is wrong and how it should look. Pure. */
KVX_CHECKED kvx_status kvx_address_parse(
        const char *text, kvx_address *address_out, char *why, size_t why_size);

/* Text of a socket's address with numbers, or "unix:/path"; "?" if there is none. Pure. */
void kvx_address_format(const struct sockaddr *address, socklen_t length, char *text, size_t size);

/* The socket's address of a Unix path. */
void kvx_address_of_path(
        const char *path, struct sockaddr_storage *address_out, socklen_t *length_out);

/* Whether the host is a number that stands for every interface. Pure. */
bool kvx_address_is_wildcard(const kvx_address *address);
/* Whether the host is a number. Pure. */
bool kvx_address_is_numeric(const kvx_address *address);

#endif
