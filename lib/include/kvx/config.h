/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * Config: settings as text, from a file, then the environment, then the program.
 *
 * A setting is named `key` or `transport.key` (`lease_ms`, `cma.call_bytes`). In a file it is
 * `key = value`, transports in sections: `[cma]`. In the environment it is `KVX_KEY` or
 * `KVX_TRANSPORT_KEY`. Later sources win. Unknown keys are errors that name the nearest key;
 * values out of range are errors that name the key and its limits.
 */
#ifndef KVX_CONFIG_H
#define KVX_CONFIG_H

#include <stddef.h>
#include <stdio.h>

#include "kvx/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * A set of settings. Starts with every default.
 *
 * Thread-safety: one thread at a time; a node copies what it needs at open.
 */
typedef struct kvx_config kvx_config;

/**
 * Create a set with every default.
 *
 * @param config_out [out] the set; destroy it with kvx_config_destroy()
 * @retval KVX_NO_MEMORY out of host memory
 */
KVX_API_CHECKED kvx_status kvx_config_create(kvx_config **config_out);

/**
 * Free a set and clear the pointer.
 *
 * @param config address of the set; it or what it points at may be NULL
 */
KVX_API void kvx_config_destroy(kvx_config **config);

/**
 * Set one setting by name.
 *
 * @param config the set
 * @param key    `key` or `transport.key`
 * @param value  text; sizes take KiB, MiB, GiB
 *
 * @retval KVX_NOT_FOUND no such key; kvx_config_error() names the nearest
 * @retval KVX_INVALID   value out of range; kvx_config_error() names the limits
 */
KVX_API_CHECKED kvx_status kvx_config_set(kvx_config *config, const char *key, const char *value);

/**
 * Read settings from a file.
 *
 * @param config the set; on failure it may hold some of the file's settings
 * @param path   file to read
 *
 * @retval KVX_NOT_FOUND file or a key in it does not exist; kvx_config_error() says which
 * @retval KVX_INVALID   a line or a value is wrong; kvx_config_error() gives file and line
 */
KVX_API_CHECKED kvx_status kvx_config_load_file(kvx_config *config, const char *path);

/**
 * Read settings from the environment (`KVX_*`).
 *
 * Variables that begin with `KVX_` and name no setting are errors too.
 *
 * @param config the set
 * @retval KVX_NOT_FOUND a variable names no setting; kvx_config_error() names the nearest
 * @retval KVX_INVALID   a value is out of range
 *
 * Thread-safety: nothing may change the environment meanwhile.
 */
KVX_API_CHECKED kvx_status kvx_config_load_env(kvx_config *config);

/**
 * Text of one setting's value.
 *
 * @param config the set
 * @param key    `key` or `transport.key`
 * @return the text, valid until the set changes; NULL when there is no such key
 */
KVX_API const char *kvx_config_get(const kvx_config *config, const char *key);

/**
 * Print every setting with its value, where it came from, and its help, as a file that
 * kvx_config_load_file() reads.
 *
 * @param config the set
 * @param out    open for writing
 */
KVX_API void kvx_config_print(const kvx_config *config, FILE *out);

/**
 * What was wrong in the last call that failed on this set.
 *
 * @param config the set
 * @return one sentence, valid until the next call on this set; never NULL
 */
KVX_API const char *kvx_config_error(const kvx_config *config);

#ifdef __cplusplus
}
#endif
#endif
