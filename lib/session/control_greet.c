/* SPDX-License-Identifier: Apache-2.0 */
/* Incoming connections up to their HELLO. They are few (handshakes_max, the oldest gives way) and
 * short (hello_ms), so that those which say nothing cannot keep real peers out. Everything here
 * is the loop thread's and needs no lock. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "session/control_state.h"

#define ACCEPT_BATCH    32
#define ACCEPT_PAUSE_NS (100 * KVX_NS_PER_MS)

/* --- the end of a greeting --- */

static void on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void greeting_end(kvx_greeting *greeting)
{
    kvx_control *control = greeting->control;

    kvx_list_remove(&greeting->node);
    control->greeting_count--;
    kvx_alarm_fini(control, &greeting->alarm);
    uv_close((uv_handle_t *)&greeting->poll, on_closed);
    kvx_visitor_destroy(&greeting->visitor);
}

void kvx_greetings_end(kvx_control *control)
{
    kvx_list_foreach (node, &control->greetings)
        greeting_end(KVX_LIST_ENTRY(node, kvx_greeting, node));
}

static void greeting_late(kvx_control *control, kvx_alarm *alarm)
{
    kvx_greeting *greeting = KVX_CONTAINER_OF(alarm, kvx_greeting, alarm);

    (void)control;
    if (!greeting->is_refused)
        kvx_log(KVX_LOG_DEBUG, "%s: said no HELLO in time, closed", greeting->visitor->remote);
    greeting_end(greeting);
}

void kvx_reject_send(int fd, kvx_status status, const char *text)
{
    kvx_message message = { .type = KVX_MESSAGE_REJECT };
    kvx_buffer out = { 0 };

    message.reject.status = status;
    (void)snprintf(message.reject.text, sizeof(message.reject.text), "%s", text);
    if (kvx_wire_encode(&message, &out) == KVX_OK)
        (void)send(fd, out.data + out.start, kvx_buffer_length(&out), MSG_NOSIGNAL | MSG_DONTWAIT);
    kvx_buffer_fini(&out);
    (void)shutdown(fd, SHUT_WR);
}

/* Say why, then wait for the other side to hang up, so that it can read it. */
static void greeting_refuse(kvx_greeting *greeting, kvx_status status, const char *text)
{
    kvx_log(KVX_LOG_WARN, "%s: refused: %s", greeting->visitor->remote, text);
    kvx_count(&greeting->control->metrics->links_rejected, 1);
    kvx_reject_send(greeting->visitor->fd, status, text);
    greeting->is_refused = true;
    kvx_alarm_set(greeting->control, &greeting->alarm, kvx_now() + KVX_LINGER_NS);
}

static void greeting_garbage(kvx_greeting *greeting)
{
    kvx_log(KVX_LOG_WARN, "%s: not a HELLO of this protocol, closed; is it for another port?",
            greeting->visitor->remote);
    kvx_count(&greeting->control->metrics->protocol_errors, 1);
    greeting_end(greeting);
}

/* --- HELLO --- */

static bool has_common_version(const kvx_hello *hello)
{
    return hello->version_min <= KVX_WIRE_VERSION_MAX && hello->version_max >= KVX_WIRE_VERSION_MIN;
}

/* Both sides print the same words. */
static void refuse_version(kvx_greeting *greeting)
{
    const kvx_hello *hello = greeting->visitor->hello;
    char why[256];

    (void)snprintf(why, sizeof(why),
            "protocol version: the caller's %u-%u, the listener's %u-%u; run the same release on "
            "both sides",
            hello->version_min, hello->version_max, KVX_WIRE_VERSION_MIN, KVX_WIRE_VERSION_MAX);
    greeting_refuse(greeting, KVX_MISMATCH, why);
}

static void take_hello(kvx_greeting *greeting)
{
    kvx_visitor *visitor = greeting->visitor;
    char why[256];

    if (!has_common_version(visitor->hello)) {
        refuse_version(greeting);
        return;
    }
    /* Another loop may watch the socket as soon as it is given: stop watching it here. */
    (void)uv_poll_stop(&greeting->poll);
    const kvx_status status = kvx_listener_give(&greeting->control->seat, visitor, why, sizeof(why));
    if (status == KVX_OK) {
        greeting->visitor = NULL;
        greeting_end(greeting);
        return;
    }
    (void)uv_poll_start(&greeting->poll, UV_READABLE, kvx_greet_poll);
    greeting_refuse(greeting, status, why);
}

/* False: not all of HELLO is here. */
static bool look_for_hello(kvx_greeting *greeting)
{
    kvx_visitor *visitor = greeting->visitor;
    kvx_message message;
    uint32_t length;

    const size_t available = kvx_buffer_length(&visitor->rest);
    const uint8_t *data = visitor->rest.data + visitor->rest.start;
    const kvx_status status = kvx_wire_frame_length(data, available, KVX_WIRE_HELLO_MAX, &length);
    if (status == KVX_AGAIN || (status == KVX_OK && length > available))
        return false;
    const kvx_status decoded = status == KVX_OK ? kvx_wire_decode(data, length, &message) : status;
    if (decoded == KVX_NO_MEMORY) {
        greeting_end(greeting);
        return true;
    }
    if (decoded != KVX_OK) {
        greeting_garbage(greeting);
        return true;
    }
    if (message.type == KVX_MESSAGE_WELCOME)
        kvx_hello_destroy(&message.hello_in);
    if (message.type != KVX_MESSAGE_HELLO) {
        greeting_garbage(greeting);
        return true;
    }
    visitor->hello = message.hello_in;
    kvx_buffer_consume(&visitor->rest, length);
    take_hello(greeting);
    return true;
}

static void greeting_read(kvx_greeting *greeting)
{
    kvx_visitor *visitor = greeting->visitor;
    size_t count = 0;

    for (;;) {
        if (greeting->is_refused)
            kvx_buffer_reset(&visitor->rest);
        const kvx_input input = kvx_socket_read(visitor->fd, &visitor->rest, &count);
        if (input == KVX_INPUT_ENDED || input == KVX_INPUT_NO_MEMORY) {
            greeting_end(greeting);
            return;
        }
        if (!greeting->is_refused && kvx_buffer_length(&visitor->rest) > 0 &&
                look_for_hello(greeting))
            return;
        if (input == KVX_INPUT_EMPTY || count > KVX_WIRE_HELLO_MAX)
            return;
    }
}

void kvx_greet_poll(uv_poll_t *poll, int status, int events)
{
    kvx_greeting *greeting = poll->data;

    (void)events;
    greeting->control->is_stirred = true;
    if (status < 0)
        greeting_end(greeting);
    else
        greeting_read(greeting);
}

/* --- accepting --- */

static kvx_greeting *greeting_create(kvx_control *control, int fd)
{
    kvx_greeting *greeting = calloc(1, sizeof(*greeting));
    kvx_visitor *visitor = calloc(1, sizeof(*visitor));

    if (greeting == NULL || visitor == NULL)
        goto fail;
    if (kvx_alarm_init(control, &greeting->alarm, greeting_late) != KVX_OK)
        goto fail;
    if (uv_poll_init(&control->loop, &greeting->poll, fd) != 0)
        goto fail_alarm;
    visitor->fd = fd;
    greeting->control = control;
    greeting->visitor = visitor;
    greeting->poll.data = greeting;
    kvx_list_append(&control->greetings, &greeting->node);
    control->greeting_count++;
    return greeting;

fail_alarm:
    kvx_alarm_fini(control, &greeting->alarm);
fail:
    free(greeting);
    free(visitor);
    (void)close(fd);
    return NULL;
}

static void make_room(kvx_control *control)
{
    if (control->greeting_count < control->settings.handshakes_max)
        return;
    kvx_greeting *oldest = KVX_LIST_ENTRY(control->greetings.next, kvx_greeting, node);
    kvx_log(KVX_LOG_DEBUG, "%s: said no HELLO and gives way to another connection",
            oldest->visitor->remote);
    greeting_end(oldest);
}

static void greet(kvx_control *control, int fd, const struct sockaddr *address, socklen_t length)
{
    make_room(control);
    kvx_greeting *greeting = greeting_create(control, fd);
    if (greeting == NULL)
        return;

    kvx_socket_tune(fd);
    if (address->sa_family == AF_UNIX)
        (void)snprintf(greeting->visitor->remote, sizeof(greeting->visitor->remote), "%s",
                kvx_listener_address(&control->seat));
    else
        kvx_address_format(
                address, length, greeting->visitor->remote, sizeof(greeting->visitor->remote));
    kvx_alarm_set(control, &greeting->alarm, kvx_now() + control->settings.hello_ns);
    if (uv_poll_start(&greeting->poll, UV_READABLE, kvx_greet_poll) != 0)
        greeting_end(greeting);
    else
        greeting_read(greeting); /* HELLO is often there already */
}

static void accept_again(kvx_control *control, kvx_alarm *alarm)
{
    (void)alarm;
    (void)uv_poll_start(&control->listen_poll, UV_READABLE, kvx_listen_poll);
}

static void accept_failed(kvx_control *control, int error)
{
    char reason[96];

    if (error == EAGAIN || error == EINTR || error == ECONNABORTED)
        return;
    if (!control->is_accept_stuck)
        kvx_log(KVX_LOG_WARN, "cannot accept connections on %s: %s; trying again",
                kvx_listener_address(&control->seat), strerror_r(error, reason, sizeof(reason)));
    control->is_accept_stuck = true; /* said once is enough */
    (void)uv_poll_stop(&control->listen_poll);
    kvx_alarm_set(control, &control->accept_alarm, kvx_now() + ACCEPT_PAUSE_NS);
}

void kvx_listen_poll(uv_poll_t *poll, int status, int events)
{
    kvx_control *control = poll->data;

    (void)status;
    (void)events;
    control->is_stirred = true;
    control->accept_alarm.ring = accept_again;
    for (int i = 0; i < ACCEPT_BATCH; i++) {
        struct sockaddr_storage address = { 0 };
        socklen_t length = sizeof(address);
        const int fd = accept4(control->listen_fd, (struct sockaddr *)&address, &length,
                SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            accept_failed(control, errno);
            return;
        }
        control->is_accept_stuck = false;
        greet(control, fd, (const struct sockaddr *)&address, length);
    }
}
