/* SPDX-License-Identifier: Apache-2.0 */
/* The engines on both sides: they publish, subscribe, take pages, pull, cancel, and try again. */
#ifndef KVX_MODEL_ENGINE_H
#define KVX_MODEL_ENGINE_H

#include "world.h"

/* Commands, see command_fn. */
void engine_connect(node *n, uint64_t now, void *unused, uint64_t proc_index);
void engine_disconnect(node *n, uint64_t now, void *unused, uint64_t proc_index);
void engine_reserve(node *n, uint64_t now, void *unused, uint64_t room);
void engine_publish(node *n, uint64_t now, void *unused, uint64_t room);
void engine_revoke(node *n, uint64_t now, void *unused, uint64_t room);
void engine_abort_room(node *n, uint64_t now, void *unused, uint64_t room);
void engine_pull(node *n, uint64_t now, void *object, uint64_t unused);
void engine_cancel(node *n, uint64_t now, void *object, uint64_t unused);
void engine_reregister(node *n, uint64_t now, void *unused, uint64_t unused_too);

/* What engine_subscribe() is given. */
typedef struct wish {
    uint32_t peer; /* index of the process */
    uint64_t room;
    uint32_t reader;
    uint32_t readers;
    bool is_early;
    uint32_t skip; /* pages */
    uint32_t patience_ms;
    bool is_passive; /* READY is left to the script */
    sub *made;       /* the last one made */
} wish;
void engine_subscribe(node *n, uint64_t now, void *object, uint64_t unused);

void engine_event(node *n, const kvx_event *event);
void engine_joint_step(node *n);
sub *engine_find(node *n, uint64_t nonce);
/* Bytes of page k of a publication, region r. */
void engine_page_words(const pub *p, uint32_t k, uint32_t region, uint64_t words[PAGE_WORDS]);

/* reader.c: the reading side of the engine, and what both sides use. */
void engine_sub_event(node *n, const kvx_event *event);
void engine_credit(node *n);
bool engine_choose_pages(node *n, uint32_t count, kvx_page *pages_out);
void engine_page_fill(node *n, kvx_page page, uint8_t value);

#endif
