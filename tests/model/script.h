/* SPDX-License-Identifier: Apache-2.0 */
/* Directed scenarios: short words for a quiet world of one owner and some readers. */
#ifndef KVX_MODEL_SCRIPT_H
#define KVX_MODEL_SCRIPT_H

#include <criterion/criterion.h>

#include "engine.h"
#include "network.h"
#include "process.h"
#include "scenario.h"
#include "watch.h"

#define ROOM UINT64_C(100)

extern world script;

/* Begin with a set; settings may be changed between script_set() and script_begin(). */
kvx_settings *script_set(const char *name);
void script_begin(uint32_t readers);
/* One more, which connects; the settings of the moment are its own. */
void script_add_reader(const char *name);
/* No rule was broken; frees everything. */
void script_end(void);

node *owner(void);
node *reader(uint32_t index);
void run_ms(uint64_t ms);

/* What the engines do. */
pub *publish(uint64_t room);
void revoke(uint64_t room);
sub *subscribe(uint32_t index, uint64_t room);
/* READY is left to the script. */
sub *want(uint32_t index, uint64_t room, uint32_t slot, uint32_t slots);
void pull(sub *s);
void cancel(sub *s);
void stop(node *n, uint64_t ms);
void cut(uint32_t index, bool is_silent);

/* A message that no session would send, over the connection of a reader. */
void say(uint32_t index, kvx_message_type type, uint64_t nonce, const pub *p);

bool is_pulled(const sub *s);
bool is_failed(const sub *s, kvx_status status);
/* Events of a kind that any engine polled; the last of a kind is kept. */
uint32_t events(kvx_event_kind kind);
const kvx_event *last_event(kvx_event_kind kind);
/* Messages of a type that were sent; the last RELEASED is kept. */
uint32_t messages(kvx_message_type type);
kvx_status last_released(void);

#endif
