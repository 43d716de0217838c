/* SPDX-License-Identifier: Apache-2.0 */
/* The rules that must hold at any time, each with a name. The first that breaks ends the run.
 *
 * I1  PULLED delivers the bytes of the publication that READY named, and no others
 * I2  no posted read of a running reader, and no send of an owner, touches a freed page
 * I3  nothing writes a page but the pull that it belongs to, and nothing after that is terminal
 * I4  every published page is freed in bounded time
 * I5  every subscription ends in bounded time, with exactly one terminal event
 * I6  PULLED follows a `valid` RELEASED of its own nonce (lease_confirm = owner)
 * I7  an owner's state stays bounded
 * I8  every served byte has a live lease of its asker
 * I9  a sole reader that comes again gets READY
 * I10 a reader slot of a generation is valid at most once
 * I11 owner: no lease is revived, granted or called valid after its end, expiry or REVOKE
 * I12 owner: no page is freed while a lease of it lives, is inside its fence or is unanswered
 * I13 reader: no read is posted without trust
 * I14 reader: RELEASE, ABORT and DRAINED are said only when its reads are over
 * I15 a page is in at most one pull, and not in a pull and a publication
 * I16 the ranks of a group end alike, and RELEASE waits for the bytes of all
 * I17 all gauges return to zero
 * I18 a duplicated or untimely command is refused by name and changes nothing
 * I19 no message between well-behaved nodes is called a protocol error, nothing spins
 * I20 silence is judged only after the socket was read empty
 * I21 SUBSCRIBE gets the newest publication of its room, whole */
#ifndef KVX_MODEL_WATCH_H
#define KVX_MODEL_WATCH_H

#include "world.h"

void watch_broken(world *w, const char *rule, const char *format, ...) KVX_PRINTF(3, 4);

/* A message leaves a session; one reaches it and is about to be handled. */
void watch_sent(node *n, end *e, const kvx_message *message);
void watch_arrived(node *n, end *e, const kvx_message *message);

/* A clock sample let a read pass and it is handed to the card now. */
void watch_posting(nic_read *r);
/* It is in the card now. */
void watch_posted(nic_read *r);
void watch_fetch(nic_read *r);
void watch_landing(nic_read *r, const kvx_segment *segment);
/* The owner agreed to serve a read. */
void watch_serve(nic_read *r);

/* A message as text; static until the next call. */
const char *watch_describe(const kvx_message *message, bool is_decoded);

/* An engine's view. */
void watch_publish(pub *p);
/* The session gave entries of a table to a pull. */
void watch_taken(sub *s, uint32_t first, uint32_t count);
/* From now on its pages hold something else, whether or not the session freed them. */
void watch_freed(pub *p, kvx_status status);
void watch_pulled(sub *s);
void watch_terminal(sub *s);
void watch_link_closed(end *e);
/* After each step of a process. */
void watch_step(node *n);

/* Nothing is parked or subscribed any more on processes that live and run. */
bool watch_is_all_over(world *w);
/* At the end of a run: what must be over by now. */
void watch_end(world *w);

#endif
