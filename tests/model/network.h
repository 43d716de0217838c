/* SPDX-License-Identifier: Apache-2.0 */
/* Control connections: FIFO each way, with delays, cut loudly or silently. */
#ifndef KVX_MODEL_NETWORK_H
#define KVX_MODEL_NETWORK_H

#include "world.h"

uint64_t network_delay(world *w);
void network_dial(node *n, uint64_t peer, const char *address);
void network_send(node *n, kvx_link_id link, const kvx_message *message);
void network_close(node *n, kvx_link_id link);
/* Break a connection; silently: nobody is told. */
void network_cut(conn *c, bool is_silent);
/* Break one that lives. */
void network_cut_any(world *w, bool is_silent);
/* Break all of a process. */
void network_cut_all(proc *p, bool is_silent);
end *network_find(const node *n, kvx_link_id link);
/* Hand the first frame of a socket, or its end, to the session. */
void network_read(end *e, uint64_t now);
void network_read_end(end *e, uint64_t now);
/* A socket was empty at `now`. */
void network_idle(end *e, uint64_t now);

#endif
