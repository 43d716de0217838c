/* SPDX-License-Identifier: Apache-2.0 */
/* Field tables: one row says everything about a setting, and the same row reads the file, the
 * environment and the program, checks, and prints. */
#ifndef KVX_CONFIG_TABLE_H
#define KVX_CONFIG_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "kvx/transport.h"

/* Bytes of a setting's full name, `key` or `transport.key`, with its zero. */
#define KVX_SETTING_NAME_BYTES 64
/* Bytes of a value's text with its zero. A line of a file must hold both. */
#define KVX_SETTING_VALUE_BYTES 128

/* How a value is read, and what it becomes in kvx_settings. */
typedef enum kvx_field_kind {
    KVX_FIELD_COUNT,     /* a number; uint32_t */
    KVX_FIELD_BYTES,     /* a number that takes KiB, MiB, GiB; uint64_t */
    KVX_FIELD_MS,        /* a number of milliseconds; uint64_t nanoseconds */
    KVX_FIELD_CHOICE,    /* one of choices; an enum, the index of the choice */
    KVX_FIELD_TRANSPORT, /* "auto" or a transport that was built; char[32] */
    KVX_FIELD_TEXT,      /* anything; only transports have such */
} kvx_field_kind;

typedef struct kvx_field {
    const char *key;
    const char *default_text;
    kvx_field_kind kind;
    uint64_t min;               /* numbers: allowed from here */
    uint64_t max;               /* to here, both included */
    const char *const *choices; /* ended by NULL */
    const char *help;
    size_t offset; /* into kvx_settings */
} kvx_field;

/* The library's own settings, in settings.c. */
extern const kvx_field kvx_settings_table[];
extern const size_t kvx_settings_table_count;

/* A transport's row in our terms. */
kvx_field kvx_field_from_transport(const struct kvx_transport_setting *setting);

/* Check a value. KVX_INVALID: *why (of size bytes) says what is allowed, as a phrase that goes
 * behind "name = value". */
KVX_CHECKED kvx_status kvx_field_check(
        const kvx_field *field, const char *text, char *why, size_t size);

/* The number of a value that was checked: as written, bytes and choices resolved. */
uint64_t kvx_field_number(const kvx_field *field, const char *text);

/* What a field allows, for people: "10 ... 3600000". */
void kvx_field_allowed(const kvx_field *field, char *text, size_t size);

/* How many single characters must change to make one name of another; a dot is as good as an
 * underscore. */
size_t kvx_name_distance(const char *a, const char *b);

#endif
