/* SPDX-License-Identifier: Apache-2.0 */
/* Making a listening socket, and saying why it cannot be made. */
#include "session/listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"

static const char *remedy(int error)
{
    switch (error) {
    case EADDRINUSE: return ": the port is in use, end its owner or choose another port";
    case EADDRNOTAVAIL: return ": no interface of this machine has that address, see `ip address`";
    case EACCES: return ": not permitted, choose a port above 1023 or a path you may write to";
    case ENOENT: return ": the folder of the socket does not exist, create it";
    default: return "";
    }
}

static void log_failure(const char *text, int error)
{
    char reason[128];

    kvx_log(KVX_LOG_ERROR, "cannot listen on %s: %s%s", text,
            strerror_r(error, reason, sizeof(reason)), remedy(error));
}

static void set_options(int fd, int family)
{
    const int on = 1;

    if (family == AF_UNIX)
        return;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    /* What is bound is what was named: an IPv6 wildcard takes no IPv4 connections. */
    if (family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
}

/* Returns 0 and the socket, or errno. */
static int bind_one(const struct sockaddr *address, socklen_t length, int *fd_out)
{
    const int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return errno;
    set_options(fd, address->sa_family);
    if (bind(fd, address, length) != 0 || listen(fd, SOMAXCONN) != 0) {
        const int error = errno;
        (void)close(fd);
        return error;
    }
    *fd_out = fd;
    return 0;
}

/* A socket file that a dead process left behind: nobody answers on it. */
static bool is_stale(const char *path, const struct sockaddr *address, socklen_t length)
{
    struct stat found;

    if (lstat(path, &found) != 0 || !S_ISSOCK(found.st_mode))
        return false;
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return false;
    const bool is_refused = connect(fd, address, length) != 0 && errno == ECONNREFUSED;
    (void)close(fd);
    return is_refused;
}

static kvx_status bind_unix(const kvx_address *address, const char *text, int *fd_out)
{
    struct sockaddr_storage local;
    socklen_t length;

    kvx_address_of_path(address->path, &local, &length);
    const struct sockaddr *name = (const struct sockaddr *)&local;
    int error = bind_one(name, length, fd_out);
    if (error == EADDRINUSE && is_stale(address->path, name, length)) {
        (void)unlink(address->path);
        error = bind_one(name, length, fd_out);
    }
    if (error == 0)
        return KVX_OK;
    if (error == EADDRINUSE)
        kvx_log(KVX_LOG_ERROR,
                "cannot listen on %s: somebody listens there, or it is another file; end it, or "
                "choose another path",
                text);
    else
        log_failure(text, error);
    return KVX_IO;
}

/* The first of the host's addresses that can be bound. */
static kvx_status bind_host(const kvx_address *address, const char *text, int *fd_out)
{
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV };
    struct addrinfo *found = NULL;
    char port[8];

    (void)snprintf(port, sizeof(port), "%u", address->port);
    const int failed = getaddrinfo(address->host, port, &hints, &found);
    if (failed != 0) {
        kvx_log(KVX_LOG_ERROR, "cannot listen on %s: host '%s': %s; check the name", text,
                address->host, gai_strerror(failed));
        return failed == EAI_MEMORY ? KVX_NO_MEMORY : KVX_IO;
    }
    int error = EADDRNOTAVAIL;
    for (const struct addrinfo *at = found; at != NULL && error != 0; at = at->ai_next)
        error = bind_one(at->ai_addr, at->ai_addrlen, fd_out);
    freeaddrinfo(found);
    if (error == 0)
        return KVX_OK;
    log_failure(text, error);
    return KVX_IO;
}

/* Asked of what was bound, since a wildcard has many spellings ("0", a name that means it). */
static bool is_every_interface(const struct sockaddr_storage *bound)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)bound;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)bound;

    return bound->ss_family == AF_INET ? v4->sin_addr.s_addr == htonl(INADDR_ANY)
                                       : IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr);
}

kvx_status kvx_listener_bind(const kvx_address *address, const char *text, int *fd_out,
        char *bound_out, size_t bound_size)
{
    struct sockaddr_storage bound = { 0 };
    socklen_t length = sizeof(bound);
    int fd = -1;

    if (address->is_unix) {
        KVX_TRY(bind_unix(address, text, &fd));
        (void)snprintf(bound_out, bound_size, "unix:%s", address->path);
        *fd_out = fd;
        return KVX_OK;
    }
    KVX_TRY(bind_host(address, text, &fd));
    if (getsockname(fd, (struct sockaddr *)&bound, &length) != 0) {
        log_failure(text, errno);
        (void)close(fd);
        return KVX_IO;
    }
    kvx_address_format((const struct sockaddr *)&bound, length, bound_out, bound_size);
    if (is_every_interface(&bound))
        kvx_log(KVX_LOG_WARN,
                "listening on %s takes connections on every interface, as asked; name an address "
                "to stay on one",
                bound_out);
    *fd_out = fd;
    return KVX_OK;
}
