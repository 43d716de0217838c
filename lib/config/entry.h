/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of a kvx_config: one entry per setting that exists, own ones first. */
#ifndef KVX_CONFIG_ENTRY_H
#define KVX_CONFIG_ENTRY_H

#include <stddef.h>

#include "base/check.h"
#include "config/table.h"
#include "kvx/config.h"
#include "kvx/transport.h"

typedef struct kvx_entry {
    const kvx_transport_ops *transport; /* NULL: the library's own */
    kvx_field field;
    char name[KVX_SETTING_NAME_BYTES]; /* `key` or `transport.key` */
    char value[KVX_SETTING_VALUE_BYTES];
    char source[112]; /* "default", "program", "environment", "file:line" */
} kvx_entry;

struct kvx_config {
    kvx_entry *entries;
    size_t count;
    char error[640];
};

/* NULL: no such setting. */
kvx_entry *kvx_config_find(const kvx_config *config, const char *name);
/* The entry whose name is most like this one; never NULL. */
kvx_entry *kvx_config_nearest(const kvx_config *config, const char *name);

/* Check a value and give it to an entry, remembering its source. The error names the place if
 * there is one (NULL: none). */
KVX_CHECKED kvx_status kvx_config_assign(kvx_config *config, kvx_entry *entry, const char *value,
        const char *source, const char *place);

/* Keep the sentence for kvx_config_error(), log it, and return the status. */
KVX_CHECKED kvx_status kvx_config_fail(kvx_config *config, kvx_status status, const char *place,
        const char *format, ...) KVX_PRINTF(4, 5);

#endif
