/* SPDX-License-Identifier: Apache-2.0 */
/* The library's own settings, parsed. The table in settings.c gives each its default as text,
 * limits and help; a transport's settings stay text and are read by the transport. */
#ifndef KVX_CONFIG_SETTINGS_H
#define KVX_CONFIG_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"
#include "kvx/config.h"

typedef enum kvx_lease_confirm {
    KVX_CONFIRM_OWNER, /* RELEASED valid delivers; no clock is trusted with correctness */
    KVX_CONFIRM_CLOCK, /* trust alone delivers; wrong where the reader's clock pauses with it
                          (virtual machine snapshot, migration) */
} kvx_lease_confirm;

typedef enum kvx_progress_mode {
    KVX_PROGRESS_THREAD,
    KVX_PROGRESS_CALLER,
} kvx_progress_mode;

typedef struct kvx_settings {
    char transport[32]; /* "auto" or a name */
    kvx_progress_mode progress;
    kvx_lease_confirm lease_confirm;

    /* protocol, DESIGN section 4 */
    uint64_t lease_ns;           /* lease_ms 10000 */
    uint64_t margin_ns;          /* margin_ms 100; 0.1 % of the lease comes on top */
    uint64_t fence_ns;           /* fence_ms 2000 */
    uint64_t hold_ns;            /* hold_ms 30000: how long an untaken reader slot stays open */
    uint64_t patience_ns;        /* patience_ms 60000 */
    uint64_t deadline_ns;        /* deadline_ms 30000, of a pull */
    uint64_t publication_age_ns; /* publication_age_ms 120000 */
    uint64_t ping_ns;            /* ping_ms 250 */
    uint64_t peer_timeout_ns;    /* peer_timeout_ms 2000 */
    uint64_t drain_ns;           /* drain_ms 100: posted reads get this long before the close */
    uint64_t close_ns; /* close_ms 1000: an endpoint's close gets this long, then the pages are held */
    uint64_t hello_ns;     /* hello_ms 2000: a connection gets this long for its handshake */
    uint64_t redial_ns;    /* redial_ms 100: pause between tries to connect, doubled up to 1 s */
    uint64_t tombstone_ns; /* tombstone_ms 60000: how long an ended room is remembered */

    /* bounds */
    uint64_t parked_bytes_max;  /* 64GiB */
    uint32_t parked_rooms_max;  /* 4096 */
    uint32_t waiting_max;       /* 65536 early subscriptions */
    uint32_t tombstones_max;    /* 16384 */
    uint32_t subscriptions_max; /* 16384 own ones that have not ended */
    uint32_t pulls_max;         /* 64 at once */
    uint64_t pull_bytes_max;    /* 16GiB at once; one larger pull alone is let through */
    uint32_t peers_max;         /* 1024 */
    uint32_t connections_max;   /* 4096 accepted ones */
    uint32_t handshakes_max;    /* 64 connections that have not said HELLO; the oldest gives way */
    uint64_t output_bytes_max;  /* 64MiB waiting to be sent on one connection; more: it is closed */

    /* pulling */
    uint64_t window_bytes;   /* 256MiB of reads in flight */
    uint32_t window_reads;   /* 4096 reads in flight */
    uint64_t read_bytes_max; /* 16MiB: larger reads are cut; never above window_bytes */
} kvx_settings;

/* Parse a set. KVX_INVALID: values do not fit together (the config's error says which). */
KVX_CHECKED kvx_status kvx_settings_from(kvx_config *config, kvx_settings *settings_out);

/* Text of a transport's setting, for kvx_domain_params.setting; NULL: no such key. */
const char *kvx_config_transport_setting(
        const kvx_config *config, const char *transport, const char *key);

/* A copy that lives on its own. */
KVX_CHECKED kvx_status kvx_config_copy(const kvx_config *config, kvx_config **copy_out);

#endif
