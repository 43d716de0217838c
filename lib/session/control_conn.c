/* SPDX-License-Identifier: Apache-2.0 */
/* A connection's bytes: a non-blocking socket, watched by the loop, with a queue each way. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "session/control_state.h"

#define READ_BYTES ((size_t)16 << 10)
/* Buffers that grew beyond this are given back when they run empty. */
#define KEEP_BYTES ((size_t)64 << 10)

/* Only notes: what is ready is handled by kvx_control_work(), under the lock. */
static void on_poll(uv_poll_t *poll, int status, int events)
{
    kvx_conn *conn = poll->data;

    (void)events;
    conn->control->is_stirred = true;
    if (status < 0) { /* libuv has stopped watching it */
        conn->has_poll_error = true;
        conn->polled = 0;
    }
    if (!kvx_list_is_linked(&conn->ready))
        kvx_list_append(&conn->control->ready, &conn->ready);
}

static void on_closed(uv_handle_t *handle)
{
    kvx_conn *conn = handle->data;

    kvx_buffer_fini(&conn->in);
    kvx_buffer_fini(&conn->out);
    free(conn);
}

kvx_conn *kvx_conn_create(kvx_control *control, int fd, kvx_conn_state state)
{
    kvx_conn *conn = calloc(1, sizeof(*conn));
    if (conn == NULL)
        goto fail;
    if (kvx_alarm_init(control, &conn->alarm, NULL) != KVX_OK)
        goto fail;
    if (uv_poll_init(&control->loop, &conn->poll, fd) != 0)
        goto fail_alarm;

    conn->control = control;
    conn->state = state;
    conn->fd = fd;
    conn->poll.data = conn;
    conn->out.limit = control->settings.output_bytes_max;
    kvx_list_init(&conn->ready);
    kvx_list_init(&conn->attention);
    kvx_list_init(&conn->dirty);
    kvx_list_append(&control->conns, &conn->node);
    return conn;

fail_alarm:
    kvx_alarm_fini(control, &conn->alarm);
fail:
    free(conn);
    (void)close(fd);
    return NULL;
}

void kvx_conn_destroy(kvx_conn *conn)
{
    kvx_control *control = conn->control;

    if (conn->state != KVX_CONN_DIALING && conn->peer == 0)
        control->accepted_count--;
    if (kvx_map_find(&control->links, conn->id) == conn)
        (void)kvx_map_remove(&control->links, conn->id);
    kvx_list_remove(&conn->node);
    kvx_list_remove(&conn->ready);
    kvx_list_remove(&conn->attention);
    kvx_list_remove(&conn->dirty);
    kvx_alarm_fini(control, &conn->alarm);
    uv_close((uv_handle_t *)&conn->poll, on_closed);
    kvx_socket_end(conn->fd);
    conn->fd = -1;
}

void kvx_conn_update_poll(kvx_conn *conn)
{
    const bool is_writer = conn->wants_write || conn->state == KVX_CONN_DIALING;
    const int wanted = UV_READABLE | (is_writer ? UV_WRITABLE : 0);

    if (conn->has_poll_error || wanted == conn->polled)
        return;
    if (uv_poll_start(&conn->poll, wanted, on_poll) == 0)
        conn->polled = wanted;
    else
        kvx_conn_break(conn, KVX_IO);
}

void kvx_conn_attend(kvx_conn *conn)
{
    if (!kvx_list_is_linked(&conn->attention))
        kvx_list_append(&conn->control->attention, &conn->attention);
}

void kvx_conn_break(kvx_conn *conn, kvx_status status)
{
    if (conn->broken == KVX_OK)
        conn->broken = status;
    kvx_buffer_reset(&conn->out);
    kvx_conn_attend(conn);
}

static void set_wants_write(kvx_conn *conn, bool wants_write)
{
    if (conn->wants_write == wants_write)
        return;
    conn->wants_write = wants_write;
    kvx_conn_attend(conn);
}

/* A write error says little (the reason may still wait to be read), so the reader decides. */
void kvx_conn_flush(kvx_conn *conn)
{
    while (kvx_buffer_length(&conn->out) > 0) {
        const ssize_t sent = send(conn->fd, conn->out.data + conn->out.start,
                kvx_buffer_length(&conn->out), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0) {
            kvx_buffer_consume(&conn->out, (size_t)sent);
            continue;
        }
        if (errno == EINTR)
            continue;
        if (errno == EAGAIN)
            set_wants_write(conn, true);
        else
            kvx_conn_break(conn, KVX_PEER_LOST);
        return;
    }
    set_wants_write(conn, false);
    if (conn->out.capacity > KEEP_BYTES) {
        const size_t limit = conn->out.limit;
        kvx_buffer_fini(&conn->out);
        conn->out.limit = limit;
    }
}

kvx_input kvx_socket_read(int fd, kvx_buffer *in, size_t *read_out)
{
    uint8_t *space = kvx_buffer_space(in, READ_BYTES);
    ssize_t count;

    if (space == NULL)
        return KVX_INPUT_NO_MEMORY;
    do {
        count = recv(fd, space, READ_BYTES, MSG_DONTWAIT);
    } while (count < 0 && errno == EINTR);
    if (count < 0)
        return errno == EAGAIN ? KVX_INPUT_EMPTY : KVX_INPUT_ENDED;
    if (count == 0) {
        errno = 0;
        return KVX_INPUT_ENDED;
    }
    kvx_buffer_commit(in, (size_t)count);
    *read_out += (size_t)count;
    /* A short count means that the socket was empty then. */
    return (size_t)count < READ_BYTES ? KVX_INPUT_EMPTY : KVX_INPUT_MORE;
}

kvx_input kvx_conn_read(kvx_conn *conn, size_t *read_out)
{
    if (kvx_buffer_length(&conn->in) == 0 && conn->in.capacity > KEEP_BYTES)
        kvx_buffer_fini(&conn->in);
    return kvx_socket_read(conn->fd, &conn->in, read_out);
}

/* Control messages are small and wait for nobody. Fails on Unix sockets, which need it not. */
void kvx_socket_tune(int fd)
{
    const int on = 1;

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}
