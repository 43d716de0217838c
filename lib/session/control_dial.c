/* SPDX-License-Identifier: Apache-2.0 */
/* Outgoing connections: the name is looked up anew each time, then its addresses are tried in
 * order. Each dialled peer has one record, made when the peer is, so that a dial cannot fail for
 * want of memory before it can say so. */
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "session/control_state.h"

/* --- records --- */

kvx_status kvx_control_reserve_dial(kvx_control *control)
{
    kvx_dial *dial = calloc(1, sizeof(*dial));
    KVX_ENSURE(dial != NULL, KVX_NO_MEMORY);

    dial->control = control;
    kvx_list_append(&control->dials_spare, &dial->node);
    return KVX_OK;
}

static void dial_forget_found(kvx_dial *dial)
{
    if (dial->found != NULL)
        freeaddrinfo(dial->found);
    dial->found = NULL;
    dial->next = NULL;
}

static void dial_free(kvx_dial *dial)
{
    kvx_list_remove(&dial->node);
    kvx_list_remove(&dial->found_node);
    dial_forget_found(dial);
    free(dial);
}

/* A record that a look-up still writes to is freed when that ends. */
static void dial_cancel(kvx_dial *dial)
{
    if (dial->conn != NULL)
        kvx_conn_destroy(dial->conn);
    dial->conn = NULL;
    dial->is_cancelled = true;
    if (dial->is_resolving)
        (void)uv_cancel((uv_req_t *)&dial->resolve);
    else
        dial_free(dial);
}

static kvx_dial *dial_in(const kvx_list *list, uint64_t peer)
{
    for (kvx_list *at = list->next; at != list; at = at->next) {
        kvx_dial *dial = KVX_LIST_ENTRY(at, kvx_dial, node);
        if (dial->peer == peer && !dial->is_cancelled)
            return dial;
    }
    return NULL;
}

/* What is under way is only marked here: its socket is the loop thread's. A peer that has no
 * record was not dialled. */
void kvx_control_unreserve_dial(kvx_control *control, uint64_t peer)
{
    kvx_dial *dial = dial_in(&control->dials_active, peer);

    if (dial != NULL) {
        dial->is_cancelled = true;
        return;
    }
    dial = dial_in(&control->dials_asked, peer);
    if (dial == NULL)
        dial = dial_in(&control->dials_spare, peer);
    if (dial != NULL)
        dial_free(dial);
}

void kvx_control_dial(kvx_control *control, uint64_t peer, const char *address)
{
    kvx_dial *dial = dial_in(&control->dials_spare, peer);

    if (dial == NULL)
        dial = dial_in(&control->dials_spare, 0); /* its first dial */
    if (dial == NULL)
        return; /* cannot be: every dialled peer has a record */
    kvx_list_remove(&dial->node);
    kvx_list_append(&control->dials_asked, &dial->node);
    dial->peer = peer;
    dial->why[0] = '\0';
    (void)snprintf(dial->text, sizeof(dial->text), "%s", address);
}

/* --- the end of a dial; the record is spare again before the session may dial anew --- */

static void dial_release(kvx_dial *dial)
{
    dial_forget_found(dial);
    dial->conn = NULL;
    kvx_list_remove(&dial->node);
    kvx_list_append(&dial->control->dials_spare, &dial->node);
}

static void dial_failed(kvx_dial *dial, kvx_status status)
{
    char why[sizeof(dial->why)];

    memcpy(why, dial->why, sizeof(why));
    if (dial->is_cancelled) {
        dial_free(dial);
        return;
    }
    dial_release(dial);
    kvx_session_dial_failed(dial->control->session, dial->peer, status, why, kvx_now());
}

static void dial_connected(kvx_dial *dial)
{
    kvx_conn *conn = dial->conn;

    conn->dial = NULL;
    dial->conn = NULL;
    if (dial->is_cancelled) {
        kvx_conn_destroy(conn);
        dial_free(dial);
        return;
    }
    if (kvx_conn_open(conn, dial->peer) != KVX_OK) {
        kvx_conn_destroy(conn);
        (void)snprintf(dial->why, sizeof(dial->why), "out of memory");
        dial_failed(dial, KVX_NO_MEMORY);
        return;
    }
    dial_release(dial);
    kvx_log(KVX_LOG_DEBUG, "%s: connected", conn->remote);
    kvx_session_dialed(dial->control->session, dial->peer, conn->id, kvx_now());
}

/* --- connecting --- */

static void dial_try_next(kvx_dial *dial);

static void connect_failed(kvx_dial *dial, const char *remote, int error)
{
    char reason[96];

    (void)snprintf(dial->why, sizeof(dial->why), "%.80s: %s%s", remote,
            strerror_r(error, reason, sizeof(reason)),
            error == ECONNREFUSED || error == ENOENT ? ", nobody listens there" : "");
    if (dial->conn != NULL)
        kvx_conn_destroy(dial->conn);
    dial->conn = NULL;
}

static void connect_late(kvx_control *control, kvx_alarm *alarm)
{
    kvx_conn *conn = KVX_CONTAINER_OF(alarm, kvx_conn, alarm);
    kvx_dial *dial = conn->dial;

    (void)control;
    connect_failed(dial, conn->remote, ETIMEDOUT);
    dial_try_next(dial);
}

/* False: it failed, why is set. */
static bool dial_connect(kvx_dial *dial, const struct sockaddr *address, socklen_t length)
{
    kvx_control *control = dial->control;
    char remote[KVX_ADDRESS_TEXT_MAX];

    kvx_address_format(address, length, remote, sizeof(remote));
    const int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        connect_failed(dial, remote, errno);
        return false;
    }
    kvx_socket_tune(fd);
    const int error = connect(fd, address, length) == 0 ? 0 : errno;
    if (error != 0 && error != EINPROGRESS) {
        connect_failed(dial, remote, error);
        (void)close(fd);
        return false;
    }
    kvx_conn *conn = kvx_conn_create(control, fd, KVX_CONN_DIALING);
    if (conn == NULL) {
        connect_failed(dial, remote, ENOMEM);
        return false;
    }
    dial->conn = conn;
    conn->dial = dial;
    memcpy(conn->remote, remote, sizeof(conn->remote));
    conn->alarm.ring = connect_late;
    kvx_alarm_set(control, &conn->alarm, kvx_now() + control->settings.hello_ns);
    kvx_conn_update_poll(conn); /* writable when it is connected */
    return true;
}

static void dial_try_next(kvx_dial *dial)
{
    while (dial->next != NULL && !dial->is_cancelled) {
        const struct addrinfo *at = dial->next;
        dial->next = at->ai_next;
        if (dial_connect(dial, at->ai_addr, at->ai_addrlen))
            return;
    }
    dial_failed(dial, KVX_PEER_LOST);
}

/* Where nobody listens on a port that the kernel also gives to callers, a call can end at itself.
 * It would keep the port from the listener that is to come. */
static bool is_own_end(int fd)
{
    struct sockaddr_storage ours = { 0 };
    struct sockaddr_storage theirs = { 0 };
    socklen_t our_size = sizeof(ours);
    socklen_t their_size = sizeof(theirs);

    return getsockname(fd, (struct sockaddr *)&ours, &our_size) == 0 &&
           getpeername(fd, (struct sockaddr *)&theirs, &their_size) == 0 &&
           ours.ss_family != AF_UNIX && our_size == their_size &&
           memcmp(&ours, &theirs, our_size) == 0;
}

void kvx_dial_ready(kvx_conn *conn)
{
    kvx_dial *dial = conn->dial;
    int error = conn->broken == KVX_OK ? 0 : EIO;
    socklen_t length = sizeof(error);

    if (error == 0 && getsockopt(conn->fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0)
        error = errno;
    if (error == 0 && conn->has_poll_error)
        error = ECONNRESET;
    if (error == 0 && is_own_end(conn->fd))
        error = ECONNREFUSED;
    if (error == 0) {
        dial_connected(dial);
        return;
    }
    connect_failed(dial, conn->remote, error);
    dial_try_next(dial);
}

/* --- looking names up --- */

/* In the loop, without the lock: only notes. */
static void on_resolved(uv_getaddrinfo_t *request, int status, struct addrinfo *found)
{
    kvx_dial *dial = request->data;
    kvx_control *control = dial->control;

    control->is_stirred = true;
    dial->is_resolving = false;
    dial->resolve_status = status;
    dial->found = found;
    dial->next = found;
    kvx_list_append(&control->dials_found, &dial->found_node);
}

static void dial_unknown(kvx_dial *dial, const char *reason)
{
    (void)snprintf(dial->why, sizeof(dial->why), "host '%.80s': %s; check the name",
            dial->address.host, reason);
    dial_failed(dial, KVX_PEER_LOST);
}

static void dial_resolve(kvx_dial *dial)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV };
    char port[8];

    (void)snprintf(port, sizeof(port), "%u", dial->address.port);
    if (kvx_address_is_numeric(&dial->address)) {
        hints.ai_flags |= AI_NUMERICHOST;
        const int failed = getaddrinfo(dial->address.host, port, &hints, &dial->found);
        dial->next = dial->found;
        if (failed != 0)
            dial_unknown(dial, gai_strerror(failed));
        else
            dial_try_next(dial);
        return;
    }
    dial->resolve.data = dial;
    const int failed = uv_getaddrinfo(
            &dial->control->loop, &dial->resolve, on_resolved, dial->address.host, port, &hints);
    if (failed != 0)
        dial_unknown(dial, uv_strerror(failed));
    else
        dial->is_resolving = true;
}

static void dial_resolved(kvx_dial *dial)
{
    if (dial->is_cancelled)
        dial_free(dial);
    else if (dial->resolve_status != 0)
        dial_unknown(dial, uv_strerror(dial->resolve_status));
    else
        dial_try_next(dial);
}

static void dial_start(kvx_dial *dial)
{
    struct sockaddr_storage address;
    socklen_t length;

    kvx_list_remove(&dial->node);
    kvx_list_append(&dial->control->dials_active, &dial->node);
    if (kvx_address_parse(dial->text, &dial->address, dial->why, sizeof(dial->why)) != KVX_OK) {
        dial_failed(dial, KVX_INVALID);
        return;
    }
    if (!dial->address.is_unix) {
        dial_resolve(dial);
        return;
    }
    kvx_address_of_path(dial->address.path, &address, &length);
    if (!dial_connect(dial, (const struct sockaddr *)&address, length))
        dial_failed(dial, KVX_PEER_LOST);
}

/* --- the loop thread --- */

void kvx_dials_work(kvx_control *control)
{
    while (!kvx_list_is_empty(&control->dials_found)) {
        kvx_dial *dial = KVX_LIST_ENTRY(control->dials_found.next, kvx_dial, found_node);
        kvx_list_remove(&dial->found_node);
        dial_resolved(dial);
    }
    kvx_list asked;
    kvx_list_init(&asked);
    while (!kvx_list_is_empty(&control->dials_asked)) { /* a failed dial may ask again at once */
        kvx_list *node = control->dials_asked.next;
        kvx_list_remove(node);
        kvx_list_append(&asked, node);
    }
    while (!kvx_list_is_empty(&asked))
        dial_start(KVX_LIST_ENTRY(asked.next, kvx_dial, node));
}

static void end_all(kvx_list *list)
{
    kvx_list_foreach (node, list)
        dial_cancel(KVX_LIST_ENTRY(node, kvx_dial, node));
}

void kvx_dials_cancel(kvx_control *control)
{
    end_all(&control->dials_active);
    end_all(&control->dials_asked);
}

/* No look-up is under way any more. */
void kvx_dials_fini(kvx_control *control)
{
    kvx_dials_cancel(control);
    end_all(&control->dials_spare);
}
