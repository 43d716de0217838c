/* SPDX-License-Identifier: Apache-2.0 */
/* A process: its clock, what it has to do, its stops, and the nodes in it. Works like a real
 * driver of the session core: reads sockets, tells which were read empty, ticks, hands orders to
 * the pull engine, steps it, polls events. */
#ifndef KVX_MODEL_PROCESS_H
#define KVX_MODEL_PROCESS_H

#include "world.h"

typedef struct proc_params {
    int64_t rate;
    uint32_t nodes;
    uint32_t pages;
    bool is_listening;
    uint64_t nonce_seed;
} proc_params;

proc *proc_create(world *w, const char *name, const proc_params *params);
/* Destroy its nodes, whatever they are doing. */
void proc_destroy(proc *p);
/* kill -9; its connections break. */
void proc_kill(proc *p, bool is_silent);
/* A new process in the place of a killed one. */
void proc_restart(proc *p);
/* SIGSTOP in the middle of a call, by chance (of 1024). */
bool proc_may_stop(proc *p, uint32_t chance);
/* SIGSTOP now for a time (KVX_NEVER: for ever). */
void proc_stop(proc *p, uint64_t length);

uint64_t proc_clock(const proc *p);
/* What it shows at a true time. */
uint64_t proc_clock_at(const proc *p, uint64_t t);
/* What a sample of its clock gives: the clock, unless a bug was planted. */
uint64_t proc_sample(proc *p);
/* True time at which its clock shows `clock`. */
uint64_t proc_true(const proc *p, uint64_t clock);
/* When its present doings take effect. */
uint64_t proc_local(const proc *p);
/* True time it was stopped within [from, to]. */
uint64_t proc_stopped_ns(const proc *p, uint64_t from, uint64_t to);
bool proc_is_running(const proc *p);

void proc_command(node *n, command_fn run, void *object, uint64_t a);
void proc_command_at(node *n, uint64_t at, command_fn run, void *object, uint64_t a);
/* There is something to do. */
void proc_wake(proc *p);
void proc_wake_at(proc *p, uint64_t at);
/* The pull engine of a node has news. */
void node_news(node *n);
/* After every call into a node's session. */
void node_called(node *n);

/* node.c */
void node_create(node *n, proc *p, uint32_t rank, uint32_t pages, uint64_t nonce_seed);
void node_destroy(node *n);
void node_tick(node *n, uint64_t now);
void node_step(node *n, uint64_t now);
void node_poll(node *n);
void node_describe(
        node *n, kvx_hello *hello_out, uint8_t *blobs, kvx_blob *keys, kvx_hello_region *regions);
/* Frees its memory for something else: a new pool with a new epoch. */
void node_reregister(node *n, uint64_t now);

#endif
