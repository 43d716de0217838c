/* SPDX-License-Identifier: Apache-2.0 */
/* The control messages, decoded. What a decoded message points at lies in the frame. */
#ifndef KVX_WIRE_MESSAGE_H
#define KVX_WIRE_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/check.h"
#include "kvx/layout.h"
#include "kvx/node.h"

#define KVX_WIRE_VERSION_MIN  1
#define KVX_WIRE_VERSION_MAX  1
#define KVX_WIRE_HEADER_BYTES 8
#define KVX_WIRE_FRAME_MAX    (UINT32_C(16) << 20) /* whole frame, header included */
#define KVX_WIRE_HELLO_MAX    (UINT32_C(64) << 10) /* before the handshake is done */
#define KVX_WIRE_RENEW_MAX    4096                 /* items of one RENEW or LEASE */
#define KVX_PATH_MAX          8
#define KVX_COMPAT_MAX        256 /* with its terminating zero */

typedef enum kvx_message_type {
    KVX_MESSAGE_HELLO = 1,
    KVX_MESSAGE_WELCOME = 2,
    KVX_MESSAGE_REJECT = 3,
    KVX_MESSAGE_SUBSCRIBE = 4,
    KVX_MESSAGE_READY = 5,
    KVX_MESSAGE_RENEW = 6,
    KVX_MESSAGE_LEASE = 7,
    KVX_MESSAGE_RELEASE = 8,
    KVX_MESSAGE_RELEASED = 9,
    KVX_MESSAGE_ABORT = 10,
    KVX_MESSAGE_REVOKE = 11,
    KVX_MESSAGE_DRAINED = 12,
    KVX_MESSAGE_FAILED = 13,
    KVX_MESSAGE_PING = 14,
    KVX_MESSAGE_PONG = 15,
    KVX_MESSAGE_BYE = 16,
} kvx_message_type;

/* Bytes that the message borrows. */
typedef struct kvx_blob {
    const uint8_t *data;
    uint32_t size;
} kvx_blob;

typedef struct kvx_hello_component {
    char name[KVX_NAME_MAX];
    char axis[KVX_NAME_MAX];
    uint32_t page_tokens;
    uint32_t page_count;
} kvx_hello_component;

typedef struct kvx_hello_region {
    uint32_t component;
    char role[KVX_NAME_MAX];
    uint32_t layer;
    uint64_t page_bytes;
    uint64_t page_stride;
} kvx_hello_region;

typedef struct kvx_hello_path {
    uint32_t rail;
    char transport[KVX_NAME_MAX];
    kvx_blob address;
    kvx_blob *keys; /* one per region; owned by the hello */
} kvx_hello_path;

/* HELLO and WELCOME: everything that a side says of itself. Owned, see kvx_hello_destroy(); its
 * blobs point into storage that it owns too. */
typedef struct kvx_hello {
    uint32_t version_min;
    uint32_t version_max; /* no version in common: decoding sets nothing but these two */
    uint32_t auth_kind;   /* 0: none, the only one that kvx_hello_match() takes; 16 bits */
    kvx_blob auth;        /* what the kind needs; empty for 0 */
    uint64_t epoch;
    uint32_t rank_wanted; /* HELLO: rank wanted of the listener; WELCOME: as asked. The hello given
                             as ours to kvx_hello_match() for a WELCOME holds what we asked */
    uint32_t rank;
    uint32_t ranks;
    char compat[KVX_COMPAT_MAX];
    uint32_t component_count;
    kvx_hello_component components[KVX_COMPONENT_MAX];
    uint32_t region_count;
    kvx_hello_region *regions;
    uint32_t path_count;
    kvx_hello_path paths[KVX_PATH_MAX];
    uint8_t *storage; /* bytes of the blobs */
} kvx_hello;

void kvx_hello_destroy(kvx_hello **hello);
KVX_CHECKED kvx_status kvx_hello_copy(const kvx_hello *hello, kvx_hello **copy_out);

/* Do the two sides describe the same cache? KVX_MISMATCH: why names the first difference with
 * both values ("page_tokens of component kv: ours 64, theirs 16; ..."). Pure. `wanted_here`: theirs is
 * a HELLO that must want our rank. */
KVX_CHECKED kvx_status kvx_hello_match(const kvx_hello *ours, const kvx_hello *theirs,
        bool wanted_here, char *why, size_t why_size);

/* Run-length page table, decoded lazily: 8 bytes a run. */
typedef struct kvx_wire_runs {
    const uint8_t *data;
    uint32_t count;
} kvx_wire_runs;
kvx_page_run kvx_wire_run_at(const kvx_wire_runs *runs, uint32_t index);

typedef struct kvx_renew_item {
    uint64_t nonce;
    kvx_generation generation;
} kvx_renew_item;

typedef struct kvx_lease_item {
    uint64_t nonce;
    kvx_status status; /* KVX_OK: granted; else why not */
} kvx_lease_item;

/* One message. When encoding, tables come as arrays; when decoding, as views of the frame. */
typedef struct kvx_message {
    kvx_message_type type;
    union {
        const kvx_hello *hello; /* HELLO, WELCOME, encoding */
        kvx_hello *hello_in;    /* HELLO, WELCOME, decoding: given to the receiver */
        struct {
            kvx_status status;
            char text[256]; /* the named difference */
        } reject;
        struct {
            uint64_t room;
            uint64_t nonce;
            uint32_t reader;
            uint32_t readers;
            uint32_t patience_ms;
        } subscribe;
        struct {
            uint64_t nonce;
            uint64_t room;
            kvx_generation generation;
            uint32_t tokens;
            uint32_t lease_ms;
            uint64_t echo; /* sequence of the last PING or RENEW handled on this connection; 0: none */
            bool is_partial;
            uint32_t component_count;
            struct {
                const kvx_page_run *runs; /* encoding */
                kvx_wire_runs view;       /* decoding */
                uint32_t run_count;       /* encoding */
            } tables[KVX_COMPONENT_MAX];
            kvx_blob aux;
        } ready;
        struct {
            uint64_t sequence;
            const kvx_renew_item *items; /* encoding */
            const uint8_t *view;         /* decoding: kvx_wire_renew_at() */
            uint32_t count;
        } renew;
        struct {
            uint64_t sequence;           /* of the RENEW that it answers */
            const kvx_lease_item *items; /* encoding */
            const uint8_t *view;         /* decoding: kvx_wire_lease_at() */
            uint32_t count;
        } lease;
        struct {
            uint64_t nonce;
            uint64_t room;
            kvx_generation generation;
        } about; /* RELEASE, ABORT, REVOKE, DRAINED */
        struct {
            uint64_t nonce;
            kvx_status status; /* KVX_OK: valid; else the reason */
        } released;            /* RELEASED, FAILED */
        struct {
            uint64_t sequence;
        } ping; /* PING, PONG */
    };
} kvx_message;

kvx_renew_item kvx_wire_renew_at(const uint8_t *view, uint32_t index);
kvx_lease_item kvx_wire_lease_at(const uint8_t *view, uint32_t index);

/* Append one frame. KVX_INVALID: the message would not decode (a count, a name or a status is out
 * of range). KVX_NO_MEMORY: the buffer could not grow or is over its limit; it is left as
 * before. KVX_NO_SPACE: the message is over KVX_WIRE_FRAME_MAX (HELLO, WELCOME: KVX_WIRE_HELLO_MAX). */
KVX_CHECKED kvx_status kvx_wire_encode(const kvx_message *message, kvx_buffer *out);

/* Length of the first frame in data, header included. KVX_AGAIN: fewer than KVX_WIRE_HEADER_BYTES
 * are here. KVX_PROTOCOL: not ours, or over frame_max. The frame may still be incomplete. */
KVX_CHECKED kvx_status kvx_wire_frame_length(
        const uint8_t *data, size_t size, uint32_t frame_max, uint32_t *length_out);

/* Decode one whole frame. KVX_PROTOCOL: malformed. KVX_NO_MEMORY: a hello could not be stored. */
KVX_CHECKED kvx_status kvx_wire_decode(
        const uint8_t *frame, uint32_t length, kvx_message *message_out);

const char *kvx_message_name(kvx_message_type type);

#endif
