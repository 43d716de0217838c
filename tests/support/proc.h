/* SPDX-License-Identifier: Apache-2.0 */
/* Roles of a test as real processes. A child dies with the test that started it. Whatever goes
 * wrong inside (no memory, no program) ends the test with a message: tests need not check. */
#ifndef KVX_TEST_PROC_H
#define KVX_TEST_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A running program with pipes at its stdin, stdout and stderr. One thread only. */
typedef struct proc proc;

/* Path of a program that was built, "kvx-prefill" for example; static until the next call.
 * Its folder is KVX_TEST_PROGRAMS. */
const char *proc_program(const char *name);

/* Start argv[0] with the arguments up to NULL. env: "NAME=VALUE" up to NULL on top of the
 * environment, or NULL. */
proc *proc_start(const char *const argv[], const char *const env[]);

/* Wait until a whole line of stdout or stderr contains text, from the first line on that an
 * earlier call has not passed. The line is copied to line_out (may be NULL). False: the time ran
 * out, or the program ended without it; what it wrote is then shown on stderr. */
bool proc_wait_line(
        proc *p, const char *text, uint32_t timeout_ms, char *line_out, size_t line_size);

/* Wait for the end of the program and of its output. *code_out is the exit status, or 128 + the
 * signal that killed it. False: it still runs; what it wrote is shown on stderr. */
bool proc_wait_exit(proc *p, uint32_t timeout_ms, int *code_out);

/* Whether it has not ended. */
bool proc_is_running(proc *p);

/* Send a signal. */
void proc_signal(proc *p, int signal);

/* SIGSTOP, and wait until every thread has stopped; SIGCONT. */
void proc_stop(proc *p);
void proc_continue(proc *p);

/* Write text to its stdin; close its stdin. False: it does not read any more. */
bool proc_send(proc *p, const char *text);
void proc_send_end(proc *p);

/* All that it wrote so far to stdout, to stderr; valid until the next call on it. */
const char *proc_output(proc *p);
const char *proc_errors(proc *p);

pid_t proc_pid(const proc *p);

/* Kill it if it runs, forget it, clear the pointer; NULL is fine. */
void proc_end(proc **p);

/* Milliseconds of a clock that only rises, for measuring between events. */
uint64_t proc_now_ms(void);

#endif
