/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the driver share. control.c: the loop; control_conn.c: bytes of a connection;
 * control_link.c: connections as the session's links; control_dial.c: outgoing ones;
 * control_greet.c: incoming ones up to HELLO. */
#ifndef KVX_SESSION_CONTROL_STATE_H
#define KVX_SESSION_CONTROL_STATE_H

#include <uv.h>

#include "base/list.h"
#include "base/map.h"
#include "base/timers.h"
#include "session/address.h"
#include "session/control.h"
#include "session/listener.h"

/* How long a closed connection may take to send its rest and to see the other side's end. */
#define KVX_LINGER_NS KVX_NS_PER_SECOND

/* A timer and what it calls, in the loop thread with the lock held. */
typedef struct kvx_alarm {
    kvx_timer timer; /* first, so that a timer leads back here */
    void (*ring)(kvx_control *control, struct kvx_alarm *alarm);
} kvx_alarm;

typedef struct kvx_dial kvx_dial;

typedef enum kvx_conn_state {
    KVX_CONN_DIALING, /* connect() is under way */
    KVX_CONN_OPEN,    /* the session knows it */
    KVX_CONN_CLOSING, /* the session has forgotten it; its output still goes out */
    KVX_CONN_SHUT,    /* all is out; waits for the other side's end */
} kvx_conn_state;

/* A control connection. Freed by libuv's close callback. */
typedef struct kvx_conn {
    kvx_control *control;
    kvx_conn_state state; /* under the lock */
    kvx_link_id id;       /* 0 while dialing */
    uint64_t peer;        /* dialled for; 0: accepted */
    kvx_dial *dial;       /* while dialing */
    int fd;
    uv_poll_t poll;
    int polled; /* events that poll is asked for */
    bool has_poll_error;
    bool is_greeted; /* a frame came */
    kvx_alarm alarm;
    kvx_buffer in;      /* loop thread */
    kvx_buffer out;     /* under the lock */
    kvx_status broken;  /* under the lock; not KVX_OK: to be reported lost */
    bool wants_write;   /* under the lock: the socket was full */
    kvx_list node;      /* in control.conns */
    kvx_list ready;     /* in control.ready; loop thread */
    kvx_list attention; /* in control.attention; under the lock */
    kvx_list dirty;     /* in control.dirty; under the lock */
    char remote[KVX_ADDRESS_TEXT_MAX];
} kvx_conn;

/* One peer's outgoing connection in the making; kept while the peer is. */
struct kvx_dial {
    kvx_control *control;
    kvx_list node;       /* in one of the control's lists of dials */
    kvx_list found_node; /* in control.dials_found */
    uint64_t peer;
    char text[KVX_ADDRESS_TEXT_MAX];
    kvx_address address;
    uv_getaddrinfo_t resolve;
    bool is_resolving;
    bool is_cancelled;
    int resolve_status;
    struct addrinfo *found;
    const struct addrinfo *next;
    kvx_conn *conn;
    char why[192];
};

/* An accepted connection that has not said HELLO, or was refused. Freed like a connection. */
typedef struct kvx_greeting {
    kvx_control *control;
    kvx_list node; /* in control.greetings, oldest first */
    uv_poll_t poll;
    kvx_alarm alarm;
    kvx_visitor *visitor;
    bool is_refused; /* REJECT was sent; waits for the other side's end */
} kvx_greeting;

struct kvx_control {
    uv_loop_t loop;
    bool has_loop;
    kvx_settings settings;
    kvx_metrics *metrics;
    kvx_session *session;

    int wake_fd;
    int timer_fd;
    int listen_fd; /* a copy of the listener's, since a loop wants descriptors of its own */
    uv_poll_t wake_poll;
    uv_poll_t timer_poll;
    uv_poll_t listen_poll;
    uv_poll_t watch_poll;
    bool has_watch;
    uint64_t armed_ns; /* what the timer is set to */

    kvx_timers alarms;
    kvx_seat seat;
    bool is_stirred; /* something was ready in the last run */
    bool has_inbox;  /* the loop was woken: look */
    bool is_leaving;
    kvx_alarm accept_alarm; /* accepting again after descriptors ran out */
    bool has_accept_alarm;
    bool is_accept_stuck; /* the last try failed, and it was said */
    kvx_list greetings;
    uint32_t greeting_count;

    uint64_t link_count; /* ids given out */
    uint32_t accepted_count;
    kvx_map links; /* id -> kvx_conn that the session knows */
    kvx_list conns;
    kvx_list ready;
    kvx_list attention;
    kvx_list dirty;

    kvx_list dials_spare;
    kvx_list dials_asked;  /* by the session; under the lock */
    kvx_list dials_active; /* resolving or connecting */
    kvx_list dials_found;  /* resolved, also in active; loop thread */
};

/* control.c */
KVX_CHECKED kvx_status kvx_alarm_init(kvx_control *control, kvx_alarm *alarm,
        void (*ring)(kvx_control *control, kvx_alarm *alarm));
void kvx_alarm_fini(kvx_control *control, kvx_alarm *alarm);
void kvx_alarm_set(kvx_control *control, kvx_alarm *alarm, uint64_t at_ns);

/* control_conn.c: a connection's bytes; it knows no session. */
typedef enum kvx_input {
    KVX_INPUT_MORE,  /* something was read, there may be more */
    KVX_INPUT_EMPTY, /* the socket is empty now */
    KVX_INPUT_ENDED, /* end of file or an error: errno of it, or 0 */
    KVX_INPUT_NO_MEMORY,
} kvx_input;

/* Takes fd in any case. NULL: no memory, or it cannot be watched. */
kvx_conn *kvx_conn_create(kvx_control *control, int fd, kvx_conn_state state);
void kvx_conn_destroy(kvx_conn *conn);
void kvx_conn_update_poll(kvx_conn *conn);
void kvx_conn_flush(kvx_conn *conn);
void kvx_conn_attend(kvx_conn *conn);
void kvx_conn_break(kvx_conn *conn, kvx_status status);
kvx_input kvx_conn_read(kvx_conn *conn, size_t *read_out);
/* The same for a bare socket. */
kvx_input kvx_socket_read(int fd, kvx_buffer *in, size_t *read_out);
void kvx_socket_tune(int fd);

/* control_link.c */
void kvx_conn_tend(kvx_conn *conn);
void kvx_conn_ready(kvx_conn *conn);
KVX_CHECKED kvx_status kvx_conn_open(kvx_conn *conn, uint64_t peer);
/* A visitor at our seat becomes a link; takes it. */
void kvx_conn_accept(kvx_control *control, kvx_visitor *visitor);

/* control_dial.c */
void kvx_dials_work(kvx_control *control);
void kvx_dials_cancel(kvx_control *control);
void kvx_dials_fini(kvx_control *control);
void kvx_dial_ready(kvx_conn *conn);

/* control_greet.c */
void kvx_listen_poll(uv_poll_t *poll, int status, int events);
void kvx_greet_poll(uv_poll_t *poll, int status, int events);
void kvx_greetings_end(kvx_control *control);
/* Send a REJECT on a connection that no session knows; what does not fit is lost. */
void kvx_reject_send(int fd, kvx_status status, const char *text);

#endif
