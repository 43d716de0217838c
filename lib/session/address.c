/* SPDX-License-Identifier: Apache-2.0 */
#include "session/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#define UNIX_PREFIX "unix:"
#define PORT_MAX    65535

static kvx_status parse_path(const char *path, kvx_address *address, char *why, size_t size)
{
    const size_t length = strlen(path);

    if (path[0] != '/') {
        (void)snprintf(
                why, size, "'%s%s' names no absolute path: write unix:/path", UNIX_PREFIX, path);
        return KVX_INVALID;
    }
    if (length >= sizeof(address->path)) {
        (void)snprintf(why, size, "the path of a Unix socket has at most %zu bytes, not %zu",
                sizeof(address->path) - 1, length);
        return KVX_INVALID;
    }
    address->is_unix = true;
    memcpy(address->path, path, length + 1);
    return KVX_OK;
}

/* Decimal digits only: no sign, no space, no name of a service. */
static bool parse_port(const char *text, uint16_t *port_out)
{
    uint32_t port = 0;

    if (text[0] == '\0')
        return false;
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9')
            return false;
        port = port * 10 + (uint32_t)(*text - '0');
        if (port > PORT_MAX)
            return false;
    }
    *port_out = (uint16_t)port;
    return true;
}

/* Where host and port lie in the text. */
typedef struct pieces {
    const char *host;
    size_t host_length;
    const char *port;
} pieces;

static bool split_brackets(const char *text, pieces *pieces_out)
{
    const char *end = strchr(text, ']');

    if (end == NULL || end[1] != ':')
        return false;
    *pieces_out = (pieces){ text + 1, (size_t)(end - text) - 1, end + 2 };
    return true;
}

static bool split_colon(const char *text, pieces *pieces_out)
{
    const char *colon = strrchr(text, ':');

    if (colon == NULL)
        return false;
    *pieces_out = (pieces){ text, (size_t)(colon - text), colon + 1 };
    return true;
}

static kvx_status parse_host(const char *text, kvx_address *address, char *why, size_t size)
{
    pieces found = { 0 };

    if (!(text[0] == '[' ? split_brackets(text, &found) : split_colon(text, &found))) {
        (void)snprintf(
                why, size, "'%s' is no address: write host:port, [addr]:port or unix:/path", text);
        return KVX_INVALID;
    }
    if (found.host_length == 0) {
        (void)snprintf(why, size,
                "'%s' names no host: write 127.0.0.1:port for this machine only, or the address "
                "of an interface",
                text);
        return KVX_INVALID;
    }
    if (text[0] != '[' && memchr(text, ':', found.host_length) != NULL) {
        (void)snprintf(why, size, "'%s': an IPv6 address needs brackets: write [addr]:port", text);
        return KVX_INVALID;
    }
    if (found.host_length >= sizeof(address->host)) {
        (void)snprintf(why, size, "a host name has at most %zu bytes", sizeof(address->host) - 1);
        return KVX_INVALID;
    }
    if (!parse_port(found.port, &address->port)) {
        (void)snprintf(why, size, "'%s': the port is a number from 0 to %d", text, PORT_MAX);
        return KVX_INVALID;
    }
    memcpy(address->host, found.host, found.host_length);
    address->host[found.host_length] = '\0';
    return KVX_OK;
}

kvx_status kvx_address_parse(const char *text, kvx_address *address_out, char *why, size_t why_size)
{
    kvx_address address = { 0 };

    if (strncmp(text, UNIX_PREFIX, strlen(UNIX_PREFIX)) == 0)
        KVX_TRY(parse_path(text + strlen(UNIX_PREFIX), &address, why, why_size));
    else
        KVX_TRY(parse_host(text, &address, why, why_size));
    *address_out = address;
    return KVX_OK;
}

void kvx_address_format(const struct sockaddr *address, socklen_t length, char *text, size_t size)
{
    char host[NI_MAXHOST];
    char port[NI_MAXSERV];

    (void)snprintf(text, size, "?");
    if (address->sa_family == AF_UNIX) {
        const struct sockaddr_un *local = (const struct sockaddr_un *)(const void *)address;
        const size_t path_off = offsetof(struct sockaddr_un, sun_path);
        const int bytes = length > path_off ? (int)(length - path_off) : 0;
        (void)snprintf(text, size, "%s%.*s", UNIX_PREFIX, bytes, local->sun_path);
        return;
    }
    if (getnameinfo(address, length, host, sizeof(host), port, sizeof(port),
                NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return;
    (void)snprintf(text, size, address->sa_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
}

void kvx_address_of_path(
        const char *path, struct sockaddr_storage *address_out, socklen_t *length_out)
{
    struct sockaddr_un local = { .sun_family = AF_UNIX };

    (void)snprintf(local.sun_path, sizeof(local.sun_path), "%s", path);
    memset(address_out, 0, sizeof(*address_out));
    memcpy(address_out, &local, sizeof(local));
    *length_out = (socklen_t)sizeof(local);
}

bool kvx_address_is_numeric(const kvx_address *address)
{
    struct in_addr v4;
    struct in6_addr v6;

    return !address->is_unix && (inet_pton(AF_INET, address->host, &v4) == 1 ||
                                        inet_pton(AF_INET6, address->host, &v6) == 1);
}

bool kvx_address_is_wildcard(const kvx_address *address)
{
    struct in_addr v4;
    struct in6_addr v6;

    if (address->is_unix)
        return false;
    if (inet_pton(AF_INET, address->host, &v4) == 1)
        return v4.s_addr == htonl(INADDR_ANY);
    return inet_pton(AF_INET6, address->host, &v6) == 1 && IN6_IS_ADDR_UNSPECIFIED(&v6);
}
