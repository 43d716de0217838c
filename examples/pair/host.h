/* SPDX-License-Identifier: Apache-2.0 */
/* What the programs ask this host: time, memory, and whether somebody wants them to stop. */
#ifndef PAIR_HOST_H
#define PAIR_HOST_H

#include <stdbool.h>
#include <stdint.h>

#define HOST_NS_PER_MS     UINT64_C(1000000)
#define HOST_NS_PER_SECOND UINT64_C(1000000000)

/* Monotonic time. */
uint64_t host_now_ns(void);

/* Processor time of the whole process, and of this thread. */
uint64_t host_process_cpu_ns(void);
uint64_t host_thread_cpu_ns(void);

/* Memory that can be taken without swapping, within the limit of our control group. */
uint64_t host_available_bytes(void);

/* Where a standard stream is closed, nothing else may get its number. Call it first. */
void host_keep_streams(void);

/* From now on SIGINT and SIGTERM are noted; a second one of the same kind kills. */
void host_catch_signals(void);

/* The signal that came, or 0. */
int host_stop_signal(void);

#endif
