/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics of all ranks in one file of Prometheus text. */
#ifndef PAIR_METRICS_FILE_H
#define PAIR_METRICS_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "kvx/group.h"

/* Write the file anew; a reader sees the old or the new one, never a part. False: errno says why. */
bool metrics_file_write(kvx_group *group, uint32_t rank_count, const char *path);

/* Merge texts of the same families, so that each family stands once. The texts are used up. */
void metrics_merge(char **texts, uint32_t count, FILE *out);

#endif
