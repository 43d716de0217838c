/* SPDX-License-Identifier: Apache-2.0 */
/* The session's driver: control connections over TCP and Unix sockets, on a libuv loop.
 *
 * One thread at a time, the loop thread, runs and works the loop. The functions marked (locked)
 * are called with the node's lock held, since they touch the session and the output queues; those
 * of them that are not marked (loop) may come from any thread, and what they cannot do at once is
 * done by the loop thread at its next kvx_control_work(). */
#ifndef KVX_SESSION_CONTROL_H
#define KVX_SESSION_CONTROL_H

#include "metrics/metrics.h"
#include "session/session.h"

typedef struct kvx_control kvx_control;

KVX_CHECKED kvx_status kvx_control_create(
        const kvx_settings *settings, kvx_metrics *metrics, kvx_control **control_out);
/* Closes every socket at once. Blocks only while a host name is being looked up. No thread is in
 * the loop any more. Accepts any stage of creation, and clears. */
void kvx_control_destroy(kvx_control **control);

/* The session that is driven; before the loop runs. */
void kvx_control_attach(kvx_control *control, kvx_session *session);
/* Listen for connections that want this rank; before the loop runs. */
KVX_CHECKED kvx_status kvx_control_listen(kvx_control *control, const char *address, uint32_t rank);
/* Where it listens; NULL: nowhere. Any thread. */
const char *kvx_control_address(const kvx_control *control);
/* Wake the loop also when this descriptor is readable, and no longer; while no thread is in it. */
KVX_CHECKED kvx_status kvx_control_watch(kvx_control *control, int fd);
void kvx_control_unwatch(kvx_control *control);

/* --- the session's sink (locked) ------------------------------------------------------------- */

/* Make sure that a dial will find its record. */
KVX_CHECKED kvx_status kvx_control_reserve_dial(kvx_control *control);
/* The peer is gone (or never was, with 0): end its dial, give its record up. */
void kvx_control_unreserve_dial(kvx_control *control, uint64_t peer);
void kvx_control_dial(kvx_control *control, uint64_t peer, const char *address);
void kvx_control_send(kvx_control *control, kvx_link_id link, const kvx_message *message);
void kvx_control_close_link(kvx_control *control, kvx_link_id link);
/* The link cannot go on: it is reported lost, with this status, by the loop thread. */
void kvx_control_break_link(kvx_control *control, kvx_link_id link, kvx_status status);

/* Write what was queued, as far as the sockets take it now (locked). */
void kvx_control_flush(kvx_control *control);
/* Whether something waits for the loop thread (locked). */
bool kvx_control_has_work(const kvx_control *control);
/* Make the loop thread return from kvx_control_run(). Any thread, no lock. */
void kvx_control_wake(kvx_control *control);
/* Peer that a link was dialled for; 0: accepted, or unknown (locked). */
uint64_t kvx_control_peer_of(const kvx_control *control, kvx_link_id link);

/* --- the loop thread ------------------------------------------------------------------------- */

/* Look what is ready, or wait for it (may_block); calls nothing of the session. True: something
 * was ready. No lock. */
bool kvx_control_run(kvx_control *control, bool may_block);
/* Do a bounded piece of what is ready; true: there is more (locked, loop). */
bool kvx_control_work(kvx_control *control);
/* Read the sockets of silent links empty before their silence is judged (locked, loop). */
void kvx_control_check_suspects(kvx_control *control);
/* When the loop must run without other news; KVX_NEVER: not (locked, loop). */
uint64_t kvx_control_next_due(const kvx_control *control);
/* Return from waiting at this time at the latest; KVX_NEVER: not for time (loop). */
void kvx_control_arm(kvx_control *control, uint64_t due_ns);
/* A descriptor that polls readable when the loop should run. Any thread. */
int kvx_control_fd(const kvx_control *control);

/* From now on refuse who comes, and dial nobody (locked, loop). */
void kvx_control_leave(kvx_control *control);
/* A look-up of a host name is under way, which cannot be ended (locked, loop). */
bool kvx_control_is_resolving(const kvx_control *control);
/* No connection is left (locked, loop). */
bool kvx_control_is_quiet(const kvx_control *control);

#endif
