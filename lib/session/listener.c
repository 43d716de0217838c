/* SPDX-License-Identifier: Apache-2.0 */
#include "session/listener.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/log.h"

/* Visitors that wait for a node which does not progress. */
#define INBOX_MAX 1024

struct kvx_listener {
    kvx_list node; /* in listeners */
    kvx_list seats;
    int fd;
    bool is_any_port;
    bool is_unix;
    char path[KVX_ADDRESS_PATH_MAX];
    dev_t path_device; /* the file that was made there */
    ino_t path_inode;
    char text[KVX_ADDRESS_TEXT_MAX];  /* as asked for */
    char bound[KVX_ADDRESS_TEXT_MAX]; /* as it became */
};

/* Protects the list, every listener in it, and what seats say is the listener's. */
static kvx_mutex listeners_lock = { PTHREAD_MUTEX_INITIALIZER };
static kvx_list listeners = { &listeners, &listeners };
static bool is_fork_watched;

/* Held while a listener is looked for and made, without the other lock: to look a host name up
 * takes as long as it takes, and the other nodes must go on. Taken first. */
static kvx_mutex making_lock = { PTHREAD_MUTEX_INITIALIZER };

/* --- fork: the child has no listeners; the parent's sockets and paths stay as they are --- */

static void before_fork(void) KVX_NO_ANALYSIS;
static void before_fork(void)
{
    kvx_lock(&listeners_lock);
}

static void after_fork_in_parent(void) KVX_NO_ANALYSIS;
static void after_fork_in_parent(void)
{
    kvx_unlock(&listeners_lock);
}

static void after_fork_in_child(void) KVX_NO_ANALYSIS;
static void after_fork_in_child(void)
{
    kvx_list_init(&listeners);
    kvx_unlock(&listeners_lock);
    kvx_mutex_init(&making_lock); /* a thread that is not here may have held it */
}

static kvx_status watch_forks(void) KVX_REQUIRES(&listeners_lock);
static kvx_status watch_forks(void)
{
    if (is_fork_watched)
        return KVX_OK;
    if (pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) != 0)
        return KVX_NO_MEMORY;
    is_fork_watched = true;
    return KVX_OK;
}

/* A child of a fork holds the socket as well, so that closing it alone would end nothing. */
void kvx_socket_end(int fd)
{
    (void)shutdown(fd, SHUT_RDWR);
    (void)close(fd);
}

/* --- finding and making --- */

void kvx_visitor_destroy(kvx_visitor **visitor)
{
    if (visitor == NULL || *visitor == NULL)
        return;
    if ((*visitor)->fd >= 0)
        kvx_socket_end((*visitor)->fd);
    kvx_hello_destroy(&(*visitor)->hello);
    kvx_buffer_fini(&(*visitor)->rest);
    free(*visitor);
    *visitor = NULL;
}

static kvx_seat *seat_of(const kvx_listener *listener, uint32_t rank)
{
    for (kvx_list *at = listener->seats.next; at != &listener->seats; at = at->next) {
        kvx_seat *seat = KVX_LIST_ENTRY(at, kvx_seat, node);
        if (seat->rank == rank)
            return seat;
    }
    return NULL;
}

/* The listener for this text, as it was asked for or as it became; with port 0 only one that has no such rank yet, so that two groups
 * of one process get a port each. */
static kvx_listener *listener_find(const char *text, uint32_t rank)
{
    for (kvx_list *at = listeners.next; at != &listeners; at = at->next) {
        kvx_listener *listener = KVX_LIST_ENTRY(at, kvx_listener, node);
        const bool is_free = seat_of(listener, rank) == NULL;
        if (strcmp(listener->bound, text) == 0 && is_free)
            return listener;
        if (strcmp(listener->text, text) == 0 && (!listener->is_any_port || is_free))
            return listener;
    }
    return NULL;
}

static void listener_destroy(kvx_listener *listener)
{
    kvx_list_remove(&listener->node);
    if (listener->fd >= 0)
        kvx_socket_end(listener->fd);
    free(listener);
}

static void note_path(kvx_listener *listener)
{
    struct stat made;

    if (!listener->is_unix || lstat(listener->path, &made) != 0)
        return;
    listener->path_device = made.st_dev;
    listener->path_inode = made.st_ino;
}

/* Somebody may have removed our socket's file, and another process may listen there now. */
static void remove_path(const kvx_listener *listener)
{
    struct stat found;

    if (listener->is_unix && lstat(listener->path, &found) == 0 &&
            found.st_dev == listener->path_device && found.st_ino == listener->path_inode)
        (void)unlink(listener->path);
}

static kvx_status listener_create(const char *text, kvx_listener **listener_out)
{
    kvx_address address;
    char why[256];

    if (kvx_address_parse(text, &address, why, sizeof(why)) != KVX_OK) {
        kvx_log(KVX_LOG_ERROR, "cannot listen: %s", why);
        return KVX_INVALID;
    }
    kvx_listener *listener = calloc(1, sizeof(*listener));
    KVX_ENSURE(listener != NULL, KVX_NO_MEMORY);
    kvx_list_init(&listener->node);
    kvx_list_init(&listener->seats);
    listener->fd = -1;
    listener->is_unix = address.is_unix;
    listener->is_any_port = !address.is_unix && address.port == 0;
    memcpy(listener->path, address.path, sizeof(listener->path));
    (void)snprintf(listener->text, sizeof(listener->text), "%s", text);

    const kvx_status status = kvx_listener_bind(
            &address, text, &listener->fd, listener->bound, sizeof(listener->bound));
    if (status != KVX_OK) {
        listener_destroy(listener);
        return status;
    }
    note_path(listener);
    kvx_log(KVX_LOG_INFO, "listening on %s", listener->bound);
    *listener_out = listener;
    return KVX_OK;
}

/* KVX_NOT_FOUND: nobody listens there. */
static kvx_status join_locked(const char *text, kvx_seat *seat) KVX_REQUIRES(&listeners_lock);
static kvx_status join_locked(const char *text, kvx_seat *seat)
{
    KVX_TRY(watch_forks());
    kvx_listener *listener = listener_find(text, seat->rank);

    KVX_ENSURE(listener != NULL, KVX_NOT_FOUND);
    if (seat_of(listener, seat->rank) != NULL) {
        kvx_log(KVX_LOG_ERROR, "cannot listen on %s: rank %u of this process listens there already",
                text, seat->rank);
        return KVX_INVALID;
    }
    seat->listener = listener;
    kvx_list_append(&listener->seats, &seat->node);
    return KVX_OK;
}

static void join_first(kvx_listener *listener, kvx_seat *seat) KVX_REQUIRES(&listeners_lock);
static void join_first(kvx_listener *listener, kvx_seat *seat)
{
    seat->listener = listener;
    kvx_list_append(&listener->seats, &seat->node);
    kvx_list_append(&listeners, &listener->node);
}

static kvx_status join(const char *text, kvx_seat *seat) KVX_REQUIRES(&making_lock);
static kvx_status join(const char *text, kvx_seat *seat)
{
    kvx_listener *listener;

    kvx_lock(&listeners_lock);
    const kvx_status status = join_locked(text, seat);
    kvx_unlock(&listeners_lock);
    if (status != KVX_NOT_FOUND)
        return status;
    KVX_TRY(listener_create(text, &listener));
    kvx_lock(&listeners_lock);
    join_first(listener, seat);
    kvx_unlock(&listeners_lock);
    return KVX_OK;
}

kvx_status kvx_listener_join(const char *address, kvx_seat *seat)
{
    kvx_list_init(&seat->node);
    kvx_list_init(&seat->inbox);
    seat->inbox_count = 0;
    seat->listener = NULL;
    if (strlen(address) >= KVX_ADDRESS_TEXT_MAX) {
        kvx_log(KVX_LOG_ERROR, "cannot listen: an address has at most %d bytes, not %zu",
                KVX_ADDRESS_TEXT_MAX - 1, strlen(address));
        return KVX_INVALID;
    }
    kvx_lock(&making_lock);
    const kvx_status status = join(address, seat);
    kvx_unlock(&making_lock);
    return status;
}

static kvx_visitor *take_locked(kvx_seat *seat) KVX_REQUIRES(&listeners_lock);
static kvx_visitor *take_locked(kvx_seat *seat)
{
    if (kvx_list_is_empty(&seat->inbox))
        return NULL;
    kvx_visitor *visitor = KVX_LIST_ENTRY(seat->inbox.next, kvx_visitor, node);
    kvx_list_remove(&visitor->node);
    seat->inbox_count--;
    return visitor;
}

void kvx_listener_leave(kvx_seat *seat)
{
    kvx_listener *listener = seat->listener;

    if (listener == NULL)
        return;
    kvx_lock(&listeners_lock);
    for (kvx_visitor *visitor; (visitor = take_locked(seat)) != NULL;)
        kvx_visitor_destroy(&visitor);
    kvx_list_remove(&seat->node);
    if (kvx_list_is_empty(&listener->seats)) {
        remove_path(listener);
        listener_destroy(listener);
    }
    kvx_unlock(&listeners_lock);
    seat->listener = NULL;
}

int kvx_listener_fd(const kvx_seat *seat)
{
    return seat->listener->fd;
}

const char *kvx_listener_address(const kvx_seat *seat)
{
    return seat->listener->bound;
}

/* --- visitors --- */

/* For people: "rank 3 is not here, but ranks 0 1 2 are". */
static void describe_ranks(const kvx_listener *listener, uint32_t wanted, char *why, size_t size)
{
    size_t used = (size_t)snprintf(
            why, size, "rank %u is not on %s; it has ranks", wanted, listener->bound);

    for (kvx_list *at = listener->seats.next; at != &listener->seats; at = at->next) {
        if (used >= size)
            return;
        used += (size_t)snprintf(
                why + used, size - used, " %u", KVX_LIST_ENTRY(at, kvx_seat, node)->rank);
    }
}

static kvx_status give_locked(const kvx_listener *listener, kvx_visitor *visitor, char *why,
        size_t why_size) KVX_REQUIRES(&listeners_lock);
static kvx_status give_locked(
        const kvx_listener *listener, kvx_visitor *visitor, char *why, size_t why_size)
{
    const uint64_t one = 1;
    kvx_seat *target = seat_of(listener, visitor->hello->rank_wanted);

    if (target == NULL) {
        describe_ranks(listener, visitor->hello->rank_wanted, why, why_size);
        return KVX_NOT_FOUND;
    }
    if (target->inbox_count >= INBOX_MAX) {
        (void)snprintf(why, why_size, "rank %u has %u connections waiting and takes none",
                target->rank, target->inbox_count);
        return KVX_NO_SPACE;
    }
    target->inbox_count++;
    kvx_list_append(&target->inbox, &visitor->node);
    (void)!write(target->wake_fd, &one, sizeof(one)); /* full means: woken already */
    return KVX_OK;
}

kvx_status kvx_listener_give(const kvx_seat *seat, kvx_visitor *visitor, char *why, size_t why_size)
{
    kvx_lock(&listeners_lock);
    const kvx_status status = give_locked(seat->listener, visitor, why, why_size);
    kvx_unlock(&listeners_lock);
    return status;
}

kvx_visitor *kvx_listener_take(kvx_seat *seat)
{
    if (seat->listener == NULL)
        return NULL;
    kvx_lock(&listeners_lock);
    kvx_visitor *visitor = take_locked(seat);
    kvx_unlock(&listeners_lock);
    return visitor;
}
