/* SPDX-License-Identifier: Apache-2.0 */
/* Connections as the session's links: frames in and out, the end from either side. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/log.h"
#include "session/control_state.h"

/* How much one connection may bring before the others have their turn. */
#define READ_BUDGET_BYTES ((size_t)256 << 10)

/* --- the session's sink --- */

void kvx_control_send(kvx_control *control, kvx_link_id link, const kvx_message *message)
{
    kvx_conn *conn = kvx_map_find(&control->links, link);

    if (conn == NULL || conn->broken != KVX_OK)
        return;
    const kvx_status status = kvx_wire_encode(message, &conn->out);
    if (status != KVX_OK) {
        kvx_log(KVX_LOG_WARN, "%s: %s of %zu bytes queued cannot be sent: %s", conn->remote,
                kvx_message_name(message->type), kvx_buffer_length(&conn->out),
                status == KVX_NO_SPACE ? "it is over the limit of a message"
                                       : "out of memory, or output_bytes_max is reached");
        kvx_conn_break(conn, KVX_PEER_LOST);
        return;
    }
    if (!kvx_list_is_linked(&conn->dirty))
        kvx_list_append(&control->dirty, &conn->dirty);
}

void kvx_control_close_link(kvx_control *control, kvx_link_id link)
{
    kvx_conn *conn = kvx_map_remove(&control->links, link);

    if (conn == NULL)
        return;
    conn->state = KVX_CONN_CLOSING;
    kvx_conn_attend(conn);
}

void kvx_control_break_link(kvx_control *control, kvx_link_id link, kvx_status status)
{
    kvx_conn *conn = kvx_map_find(&control->links, link);

    if (conn != NULL)
        kvx_conn_break(conn, status);
}

void kvx_control_flush(kvx_control *control)
{
    while (!kvx_list_is_empty(&control->dirty)) {
        kvx_conn *conn = KVX_LIST_ENTRY(control->dirty.next, kvx_conn, dirty);
        kvx_list_remove(&conn->dirty);
        if (!conn->wants_write)
            kvx_conn_flush(conn);
    }
}

uint64_t kvx_control_peer_of(const kvx_control *control, kvx_link_id link)
{
    const kvx_conn *conn = kvx_map_find(&control->links, link);

    return conn == NULL ? 0 : conn->peer;
}

/* --- the end --- */

/* The connection broke. The session may close the link from inside, which changes nothing. */
static void conn_lost(kvx_conn *conn, kvx_status status)
{
    kvx_control *control = conn->control;

    if (conn->state == KVX_CONN_OPEN)
        kvx_session_link_lost(control->session, conn->id, status, kvx_now());
    kvx_conn_destroy(conn);
}

static void linger_over(kvx_control *control, kvx_alarm *alarm)
{
    kvx_conn *conn = KVX_CONTAINER_OF(alarm, kvx_conn, alarm);

    (void)control;
    kvx_log(KVX_LOG_DEBUG, "%s: closed without waiting on", conn->remote);
    kvx_conn_destroy(conn);
}

/* Once all is out the other side is told by the end of our stream, and answers with the end of
 * its own. Closing before that could throw away what it has not read yet. */
static void closing_step(kvx_conn *conn)
{
    size_t ignored = 0;

    if (conn->state == KVX_CONN_CLOSING && conn->broken == KVX_OK)
        kvx_conn_flush(conn);
    if (conn->broken != KVX_OK || conn->has_poll_error) {
        kvx_conn_destroy(conn);
        return;
    }
    if (conn->state == KVX_CONN_CLOSING && kvx_buffer_length(&conn->out) == 0) {
        (void)shutdown(conn->fd, SHUT_WR);
        conn->state = KVX_CONN_SHUT;
    }
    for (;;) {
        kvx_buffer_reset(&conn->in);
        const kvx_input input = kvx_conn_read(conn, &ignored);
        if (input == KVX_INPUT_EMPTY || ignored > READ_BUDGET_BYTES)
            break;
        if (input != KVX_INPUT_MORE) {
            kvx_conn_destroy(conn);
            return;
        }
    }
    kvx_conn_update_poll(conn);
}

static void closing_begin(kvx_conn *conn)
{
    conn->alarm.ring = linger_over;
    if (conn->alarm.timer.position == 0)
        kvx_alarm_set(conn->control, &conn->alarm, kvx_now() + KVX_LINGER_NS);
    closing_step(conn);
}

/* --- input --- */

static void refuse_input(kvx_conn *conn, const char *what)
{
    kvx_log(KVX_LOG_WARN, "%s: %s, closing the connection", conn->remote, what);
    kvx_count(&conn->control->metrics->protocol_errors, 1);
    conn_lost(conn, KVX_PROTOCOL);
}

/* One whole frame from the front of the input. False: the connection is closing or gone. */
static bool take_frame(kvx_conn *conn, uint32_t length)
{
    kvx_message message;

    const kvx_status status = kvx_wire_decode(conn->in.data + conn->in.start, length, &message);
    if (status != KVX_OK) {
        if (status == KVX_NO_MEMORY)
            conn_lost(conn, KVX_NO_MEMORY);
        else
            refuse_input(conn, "malformed message");
        return false;
    }
    conn->is_greeted = true;
    kvx_session_message(conn->control->session, conn->id, &message, kvx_now());
    if (conn->state != KVX_CONN_OPEN)
        return false;
    kvx_buffer_consume(&conn->in, length);
    return true;
}

static bool take_frames(kvx_conn *conn)
{
    for (;;) {
        uint32_t length;
        const size_t available = kvx_buffer_length(&conn->in);
        if (available == 0)
            return true;
        const kvx_status status = kvx_wire_frame_length(conn->in.data + conn->in.start, available,
                conn->is_greeted ? KVX_WIRE_FRAME_MAX : KVX_WIRE_HELLO_MAX, &length);

        if (status == KVX_AGAIN || (status == KVX_OK && length > available))
            return true;
        if (status != KVX_OK) {
            refuse_input(conn, "not a frame of this protocol, or an oversized one");
            return false;
        }
        if (!take_frame(conn, length))
            return false;
    }
}

static void read_link(kvx_conn *conn)
{
    kvx_input input = KVX_INPUT_MORE;
    size_t count = 0;
    uint64_t before = 0;

    while (input == KVX_INPUT_MORE) {
        if (count > READ_BUDGET_BYTES) {
            if (!kvx_list_is_linked(&conn->ready))
                kvx_list_append(&conn->control->ready, &conn->ready);
            return;
        }
        before = kvx_now();
        input = kvx_conn_read(conn, &count);
        const int error = errno;
        if (!take_frames(conn))
            return;
        errno = error;
    }
    if (input == KVX_INPUT_ENDED && conn->state == KVX_CONN_OPEN) {
        kvx_log(KVX_LOG_DEBUG, "%s: %s", conn->remote,
                errno == 0 ? "the other side closed the connection" : strerror(errno));
        conn_lost(conn, KVX_PEER_LOST);
        return;
    }
    if (input == KVX_INPUT_NO_MEMORY) {
        conn_lost(conn, KVX_NO_MEMORY);
        return;
    }
    if (conn->broken != KVX_OK || conn->has_poll_error) {
        conn_lost(conn, conn->broken != KVX_OK ? conn->broken : KVX_PEER_LOST);
        return;
    }
    kvx_session_link_idle(conn->control->session, conn->id, before);
}

void kvx_conn_ready(kvx_conn *conn)
{
    switch (conn->state) {
    case KVX_CONN_DIALING: kvx_dial_ready(conn); return;
    case KVX_CONN_CLOSING:
    case KVX_CONN_SHUT: closing_step(conn); return;
    case KVX_CONN_OPEN: break;
    }
    if (conn->wants_write && conn->broken == KVX_OK) {
        kvx_conn_flush(conn);
        kvx_conn_update_poll(conn);
    }
    read_link(conn);
}

void kvx_conn_tend(kvx_conn *conn)
{
    switch (conn->state) {
    case KVX_CONN_DIALING: kvx_dial_ready(conn); return;
    case KVX_CONN_CLOSING: closing_begin(conn); return;
    case KVX_CONN_SHUT: closing_step(conn); return;
    case KVX_CONN_OPEN: break;
    }
    if (conn->broken != KVX_OK)
        read_link(conn);
    else
        kvx_conn_update_poll(conn);
}

void kvx_control_check_suspects(kvx_control *control)
{
    for (kvx_link_id id; kvx_session_next_suspect(control->session, &id);) {
        kvx_conn *conn = kvx_map_find(&control->links, id);
        if (conn == NULL)
            continue;
        kvx_list_remove(&conn->ready);
        read_link(conn);
    }
}

/* --- the beginning --- */

kvx_status kvx_conn_open(kvx_conn *conn, uint64_t peer)
{
    kvx_control *control = conn->control;

    conn->id = control->link_count + 1;
    KVX_TRY(kvx_map_insert(&control->links, conn->id, conn));
    control->link_count++;
    conn->state = KVX_CONN_OPEN;
    conn->peer = peer;
    kvx_alarm_set(control, &conn->alarm, KVX_NEVER);
    kvx_conn_update_poll(conn);
    return KVX_OK;
}

/* A connection from a visitor, or NULL when there are too many or no memory. */
static kvx_conn *conn_of_visitor(kvx_control *control, kvx_visitor *visitor)
{
    if (control->accepted_count >= control->settings.connections_max) {
        kvx_log(KVX_LOG_WARN, "%s: refused, connections_max (%u) is reached", visitor->remote,
                control->settings.connections_max);
        kvx_reject_send(visitor->fd, KVX_NO_SPACE, "connections_max is reached");
        return NULL;
    }
    const int fd = visitor->fd;
    visitor->fd = -1; /* goes with the connection, also if that fails */
    kvx_conn *conn = kvx_conn_create(control, fd, KVX_CONN_DIALING);
    if (conn == NULL)
        return NULL;
    if (kvx_conn_open(conn, 0) != KVX_OK) {
        kvx_conn_destroy(conn);
        return NULL;
    }
    control->accepted_count++;
    memcpy(conn->remote, visitor->remote, sizeof(conn->remote));
    conn->in = visitor->rest;
    visitor->rest = (kvx_buffer){ 0 };
    conn->is_greeted = true;
    return conn;
}

void kvx_conn_accept(kvx_control *control, kvx_visitor *visitor)
{
    if (control->is_leaving) {
        kvx_reject_send(visitor->fd, KVX_CLOSED, "the node is closing");
        kvx_visitor_destroy(&visitor);
        return;
    }
    kvx_conn *conn = conn_of_visitor(control, visitor);
    if (conn != NULL) {
        kvx_hello *hello = visitor->hello;
        visitor->hello = NULL;
        kvx_log(KVX_LOG_DEBUG, "%s: connected, epoch %016" PRIx64, conn->remote, hello->epoch);
        kvx_session_accepted(control->session, conn->id, hello, kvx_now());
        if (conn->state == KVX_CONN_OPEN)
            (void)take_frames(conn);
    }
    kvx_visitor_destroy(&visitor);
}
