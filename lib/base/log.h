/* SPDX-License-Identifier: Apache-2.0 */
/* Writing log lines. The function that decides an error logs it, once, with names. */
#ifndef KVX_BASE_LOG_H
#define KVX_BASE_LOG_H

#include <stdbool.h>

#include "base/check.h"
#include "kvx/log.h"

/* Formats one line (cut at 1 KiB) and passes it on; keeps errno. */
void kvx_log(kvx_log_level level, const char *format, ...) KVX_PRINTF(2, 3);

/* Whether a line of this level would be passed on: guards costly arguments. */
bool kvx_log_wants(kvx_log_level level);

#endif
