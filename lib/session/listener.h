/* SPDX-License-Identifier: Apache-2.0 */
/* Listening sockets, shared by the nodes of a process: nodes that name the same address share one
 * socket, and each has a seat at it. Whoever accepts a connection reads its HELLO and gives it to
 * the seat of the rank that HELLO wants. All functions: any thread. */
#ifndef KVX_SESSION_LISTENER_H
#define KVX_SESSION_LISTENER_H

#include "base/bytes.h"
#include "base/list.h"
#include "session/address.h"
#include "wire/message.h"

/* A connection that said HELLO. */
typedef struct kvx_visitor {
    kvx_list node;
    int fd;
    kvx_hello *hello;
    kvx_buffer rest; /* what came after HELLO */
    char remote[KVX_ADDRESS_TEXT_MAX];
} kvx_visitor;

void kvx_visitor_destroy(kvx_visitor **visitor);

typedef struct kvx_listener kvx_listener;

/* A node's place. The owner sets rank and wake_fd; the rest is the listener's. */
typedef struct kvx_seat {
    uint32_t rank;
    int wake_fd; /* an eventfd, written when a visitor was given */
    kvx_listener *listener;
    kvx_list node;
    kvx_list inbox;
    uint32_t inbox_count;
} kvx_seat;

/* Close a socket so that the other side sees the end of it. */
void kvx_socket_end(int fd);

/* Take a seat; the first one binds. KVX_INVALID: the address is malformed, or this rank is there
 * already. KVX_IO: it cannot be bound. All were logged with the remedy. */
KVX_CHECKED kvx_status kvx_listener_join(const char *address, kvx_seat *seat);
/* Leave; the last one closes the socket. Destroys what is left in the inbox. A seat that was
 * never taken is fine. */
void kvx_listener_leave(kvx_seat *seat);

/* Constant while seated. */
int kvx_listener_fd(const kvx_seat *seat);
const char *kvx_listener_address(const kvx_seat *seat);

/* Give a visitor to the rank it wants. KVX_OK: it is given away. KVX_NOT_FOUND: no such rank is
 * here; why names those that are. KVX_NO_SPACE: too many wait there. */
KVX_CHECKED kvx_status kvx_listener_give(
        const kvx_seat *seat, kvx_visitor *visitor, char *why, size_t why_size);
/* The next visitor for this seat, given to the caller; NULL: none. */
kvx_visitor *kvx_listener_take(kvx_seat *seat);

/* listener_bind.c: bind and listen; the text of what was bound goes to bound_out. */
KVX_CHECKED kvx_status kvx_listener_bind(const kvx_address *address, const char *text, int *fd_out,
        char *bound_out, size_t bound_size);

#endif
