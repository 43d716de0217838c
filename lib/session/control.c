/* SPDX-License-Identifier: Apache-2.0 */
/* The loop: what wakes it, in which order ready things are handled, when it is due. */
#include "session/control.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "session/control_state.h"

/* Connections handled before the lock is given to others. */
#define WORK_BATCH 16

/* --- alarms --- */

kvx_status kvx_alarm_init(kvx_control *control, kvx_alarm *alarm,
        void (*ring)(kvx_control *control, kvx_alarm *alarm))
{
    alarm->timer = (kvx_timer){ 0 };
    alarm->ring = ring;
    return kvx_timers_reserve(&control->alarms);
}

void kvx_alarm_fini(kvx_control *control, kvx_alarm *alarm)
{
    kvx_timers_clear(&control->alarms, &alarm->timer);
    kvx_timers_unreserve(&control->alarms);
}

void kvx_alarm_set(kvx_control *control, kvx_alarm *alarm, uint64_t at_ns)
{
    kvx_timers_set(&control->alarms, &alarm->timer, at_ns);
}

static void ring_alarms(kvx_control *control, uint64_t now)
{
    for (kvx_timer *first; (first = kvx_timers_first(&control->alarms)) != NULL;) {
        kvx_alarm *alarm = KVX_CONTAINER_OF(first, kvx_alarm, timer);
        if (first->at_ns > now)
            return;
        kvx_timers_clear(&control->alarms, first);
        alarm->ring(control, alarm);
    }
}

/* --- making --- */

/* The count that an eventfd or a timerfd holds means nothing here: it only wakes. */
static void drain(int fd)
{
    uint64_t count;

    (void)!read(fd, &count, sizeof(count));
}

static void on_wake(uv_poll_t *poll, int status, int events)
{
    kvx_control *control = poll->data;

    (void)status;
    (void)events;
    drain(control->wake_fd);
    control->is_stirred = true;
    control->has_inbox = true;
}

static void on_timer(uv_poll_t *poll, int status, int events)
{
    kvx_control *control = poll->data;

    (void)status;
    (void)events;
    drain(control->timer_fd);
    control->is_stirred = true;
    control->armed_ns = KVX_NEVER;
}

/* Whose descriptor it is handles it; being awake is enough. */
static void on_watched(uv_poll_t *poll, int status, int events)
{
    kvx_control *control = poll->data;

    (void)status;
    (void)events;
    control->is_stirred = true;
}

static kvx_status poll_begin(kvx_control *control, uv_poll_t *poll, int fd, uv_poll_cb ready)
{
    KVX_ENSURE(uv_poll_init(&control->loop, poll, fd) == 0, KVX_IO);
    poll->data = control;
    if (uv_poll_start(poll, UV_READABLE, ready) == 0)
        return KVX_OK;
    uv_close((uv_handle_t *)poll, NULL);
    return KVX_IO;
}

static kvx_status open_loop(kvx_control *control)
{
    KVX_ENSURE(uv_loop_init(&control->loop) == 0, KVX_IO);
    control->has_loop = true;
    control->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    control->timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
    KVX_ENSURE(control->wake_fd >= 0 && control->timer_fd >= 0, KVX_IO);
    KVX_TRY(poll_begin(control, &control->wake_poll, control->wake_fd, on_wake));
    return poll_begin(control, &control->timer_poll, control->timer_fd, on_timer);
}

static void init_lists(kvx_control *control)
{
    kvx_list *const lists[] = { &control->greetings, &control->conns, &control->ready,
        &control->attention, &control->dirty, &control->dials_spare, &control->dials_asked,
        &control->dials_active, &control->dials_found };

    for (size_t i = 0; i < sizeof(lists) / sizeof(*lists); i++)
        kvx_list_init(lists[i]);
}

kvx_status kvx_control_create(
        const kvx_settings *settings, kvx_metrics *metrics, kvx_control **control_out)
{
    kvx_control *control = calloc(1, sizeof(*control));
    KVX_ENSURE(control != NULL, KVX_NO_MEMORY);

    control->settings = *settings;
    control->metrics = metrics;
    control->wake_fd = -1;
    control->timer_fd = -1;
    control->listen_fd = -1;
    control->armed_ns = KVX_NEVER;
    init_lists(control);
    kvx_status status = kvx_alarm_init(control, &control->accept_alarm, NULL);
    if (status != KVX_OK)
        goto fail;
    control->has_accept_alarm = true;
    status = open_loop(control);
    if (status != KVX_OK) {
        kvx_log(KVX_LOG_ERROR, "cannot make an event loop: too many open files, or no memory");
        goto fail;
    }
    *control_out = control;
    return KVX_OK;

fail:
    kvx_control_destroy(&control);
    return status;
}

/* --- ending --- */

static void close_fd(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}

static void close_handle(uv_handle_t *handle, void *arg)
{
    (void)arg;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

static void close_loop(kvx_control *control)
{
    if (!control->has_loop)
        return;
    uv_walk(&control->loop, close_handle, NULL);
    while (uv_loop_close(&control->loop) != 0)
        (void)uv_run(&control->loop, UV_RUN_ONCE);
    control->has_loop = false;
}

void kvx_control_destroy(kvx_control **control_in)
{
    if (control_in == NULL || *control_in == NULL)
        return;
    kvx_control *control = *control_in;

    kvx_dials_cancel(control);
    kvx_greetings_end(control);
    kvx_list_foreach (node, &control->conns)
        kvx_conn_destroy(KVX_LIST_ENTRY(node, kvx_conn, node));
    close_loop(control);
    kvx_dials_fini(control);
    kvx_listener_leave(&control->seat);
    close_fd(&control->listen_fd);
    close_fd(&control->wake_fd);
    close_fd(&control->timer_fd);
    if (control->has_accept_alarm)
        kvx_alarm_fini(control, &control->accept_alarm);
    kvx_timers_fini(&control->alarms);
    kvx_map_fini(&control->links);
    free(control);
    *control_in = NULL;
}

/* --- before the loop runs --- */

void kvx_control_attach(kvx_control *control, kvx_session *session)
{
    control->session = session;
}

kvx_status kvx_control_listen(kvx_control *control, const char *address, uint32_t rank)
{
    control->seat.rank = rank;
    control->seat.wake_fd = control->wake_fd;
    KVX_TRY(kvx_listener_join(address, &control->seat));
    control->listen_fd = fcntl(kvx_listener_fd(&control->seat), F_DUPFD_CLOEXEC, 0);
    if (control->listen_fd < 0 || poll_begin(control, &control->listen_poll, control->listen_fd,
                                          kvx_listen_poll) != KVX_OK) {
        kvx_log(KVX_LOG_ERROR, "cannot watch %s: too many open files",
                kvx_listener_address(&control->seat));
        return KVX_IO;
    }
    return KVX_OK;
}

const char *kvx_control_address(const kvx_control *control)
{
    return control->seat.listener == NULL ? NULL : kvx_listener_address(&control->seat);
}

kvx_status kvx_control_watch(kvx_control *control, int fd)
{
    KVX_TRY(poll_begin(control, &control->watch_poll, fd, on_watched));
    control->has_watch = true;
    return KVX_OK;
}

static void on_unwatched(uv_handle_t *handle)
{
    kvx_control *control = handle->data;

    control->has_watch = false;
}

/* The handle may be used again, so the loop must be done with it. */
void kvx_control_unwatch(kvx_control *control)
{
    if (!control->has_watch)
        return;
    uv_close((uv_handle_t *)&control->watch_poll, on_unwatched);
    while (control->has_watch)
        (void)uv_run(&control->loop, UV_RUN_NOWAIT);
}

/* --- any thread --- */

void kvx_control_wake(kvx_control *control)
{
    const uint64_t one = 1;

    (void)!write(control->wake_fd, &one, sizeof(one)); /* full means: woken already */
}

bool kvx_control_has_work(const kvx_control *control)
{
    return !kvx_list_is_empty(&control->attention) || !kvx_list_is_empty(&control->dials_asked);
}

int kvx_control_fd(const kvx_control *control)
{
    return uv_backend_fd(&control->loop);
}

/* --- the loop thread --- */

bool kvx_control_run(kvx_control *control, bool may_block)
{
    control->is_stirred = false;
    (void)uv_run(&control->loop, may_block ? UV_RUN_ONCE : UV_RUN_NOWAIT);
    return control->is_stirred;
}

static void tend_links(kvx_control *control)
{
    while (!kvx_list_is_empty(&control->attention)) {
        kvx_conn *conn = KVX_LIST_ENTRY(control->attention.next, kvx_conn, attention);
        kvx_list_remove(&conn->attention);
        kvx_conn_tend(conn);
    }
}

static void take_visitors(kvx_control *control)
{
    for (int i = 0; i < WORK_BATCH && control->has_inbox; i++) {
        kvx_visitor *visitor = kvx_listener_take(&control->seat);
        control->has_inbox = visitor != NULL;
        if (visitor != NULL)
            kvx_conn_accept(control, visitor);
    }
}

static void read_ready(kvx_control *control)
{
    for (int i = 0; i < WORK_BATCH && !kvx_list_is_empty(&control->ready); i++) {
        kvx_conn *conn = KVX_LIST_ENTRY(control->ready.next, kvx_conn, ready);
        kvx_list_remove(&conn->ready);
        kvx_conn_ready(conn);
    }
}

bool kvx_control_work(kvx_control *control)
{
    take_visitors(control);
    kvx_dials_work(control);
    read_ready(control);
    ring_alarms(control, kvx_now());
    tend_links(control);
    return !kvx_list_is_empty(&control->ready) || control->has_inbox;
}

uint64_t kvx_control_next_due(const kvx_control *control)
{
    const kvx_timer *first = kvx_timers_first(&control->alarms);

    return first == NULL ? KVX_NEVER : first->at_ns;
}

void kvx_control_arm(kvx_control *control, uint64_t due_ns)
{
    struct itimerspec when = { 0 };

    if (due_ns == control->armed_ns)
        return;
    if (due_ns != KVX_NEVER) { /* 0 would disarm */
        when.it_value.tv_sec = (time_t)(due_ns / KVX_NS_PER_SECOND);
        when.it_value.tv_nsec = (long)(due_ns % KVX_NS_PER_SECOND) + (due_ns == 0);
    }
    (void)timerfd_settime(control->timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
    control->armed_ns = due_ns;
}

void kvx_control_leave(kvx_control *control)
{
    control->is_leaving = true;
    kvx_dials_cancel(control);
}

bool kvx_control_is_resolving(const kvx_control *control)
{
    for (kvx_list *at = control->dials_active.next; at != &control->dials_active; at = at->next) {
        if (KVX_LIST_ENTRY(at, kvx_dial, node)->is_resolving)
            return true;
    }
    return false;
}

bool kvx_control_is_quiet(const kvx_control *control)
{
    for (kvx_list *at = control->conns.next; at != &control->conns; at = at->next) {
        if (KVX_LIST_ENTRY(at, kvx_conn, node)->state != KVX_CONN_DIALING)
            return false;
    }
    return true;
}
