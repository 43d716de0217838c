/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * Transport: the contract of what moves bytes.
 *
 * A transport knows endpoints, keys, offsets and lengths; never a page, a layer or a room.
 *
 * Locking: for one domain (all its endpoints, registrations and keys with it) the library calls
 * at most one entry point at a time, always from the thread that progresses the node; an
 * implementation locks only against threads of its own. Domains are independent.
 * No entry point calls back into the library except progress(), through the functions in
 * kvx_domain_params. No entry point blocks, unless its slot says so and gives the bound.
 *
 * Data flow:  memory -> [transport] -> pool -> plan -> session -> pull -> node
 */
#ifndef KVX_TRANSPORT_H
#define KVX_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvx/memory.h"
#include "kvx/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Most bytes of an endpoint address or of a packed key. */
#define KVX_BLOB_MAX 4096

/** A transport's instance for one node and one path; made by open. */
typedef struct kvx_domain kvx_domain;
/** A way to one remote domain; made by connect. */
typedef struct kvx_ep kvx_ep;
/** Registered local memory. */
typedef struct kvx_mr kvx_mr;
/** Imported key to remote registered memory, used with the endpoint it was imported for. */
typedef struct kvx_rkey kvx_rkey;

/** How bytes are read. Names in output are "one-sided" and "served". */
typedef enum kvx_read_mode {
    KVX_READ_ONE_SIDED, /**< without the owner's processor taking part */
    KVX_READ_SERVED,    /**< the owner answers each request, after authorize() */
} kvx_read_mode;

/** One local piece of a read. */
typedef struct kvx_segment {
    void *base;            /**< local address, inside memory registered on the same domain */
    uint64_t length_bytes; /**< never 0 */
} kvx_segment;

/** One read: a contiguous remote range into a list of local segments. */
typedef struct kvx_read {
    uint64_t id;           /**< caller's; comes back in completed(); never reused by the library */
    uint64_t cookie;       /**< shown to the owner's authorize() when the read is served */
    kvx_rkey *rkey;        /**< key of the remote registration */
    uint64_t remote_off;   /**< bytes from the start of the remote registration */
    uint64_t length_bytes; /**< bytes to read; equals the sum over the segments; never 0 */
    const kvx_segment *segments; /**< borrowed until get() returns */
    uint32_t segment_count;      /**< 1 ... limits.segments_max */
} kvx_read;

/** What the owner is asked before it answers a served read. */
typedef struct kvx_served_range {
    uint64_t peer;    /**< identity given by the asking domain: its kvx_domain_params.identity */
    uint64_t cookie;  /**< kvx_read.cookie */
    const kvx_mr *mr; /**< local registration asked for */
    uint64_t offset_bytes; /**< from the start of the registration; inside it, already checked */
    uint64_t length_bytes; /**< never 0; offset + length is inside the registration */
} kvx_served_range;

/** What the library gives a domain at open. */
typedef struct kvx_domain_params {
    size_t struct_size; /**< sizeof(kvx_domain_params) of the caller */
    uint64_t identity;  /**< random, tells this domain from every other */
    const char *bind;   /**< numeric address of the interface to stay on; NULL: no preference */

    /** Value of a setting of this transport as text ("call_bytes"), never NULL for own keys. */
    const char *(*setting)(void *arg, const char *key);
    /**
     * A read ended: KVX_OK when every byte is in place, KVX_READ_FAILED, KVX_PEER_LOST or
     * KVX_REFUSED otherwise. Called once per accepted read, from progress() only; never after the
     * disconnect() of its endpoint returned KVX_OK.
     */
    void (*completed)(void *arg, uint64_t id, kvx_status status);
    /**
     * Owner's side of a served read: may it be answered? KVX_OK counts an operation of the owner's
     * on that lease until served_end() is called for it, once, when nothing reads the local
     * memory for it any more. Called from progress() only.
     */
    kvx_status (*authorize)(void *arg, const kvx_served_range *range);
    /** Ends what authorize() began. Called from progress(), disconnect() or close(). */
    void (*served_end)(void *arg, uint64_t peer, uint64_t cookie);
    void *arg; /**< first argument of the four functions */
} kvx_domain_params;

/** What a domain can do; constant after open. */
typedef struct kvx_domain_limits {
    uint64_t read_bytes_max;      /**< most bytes of one read */
    uint32_t segments_max;        /**< most local segments of one read */
    uint32_t reads_in_flight_max; /**< most reads accepted and not completed, over all endpoints */
    uint64_t memory_kinds;        /**< bit (1 << kvx_memory_kind) for each kind it can register */
    bool same_process_only;       /**< reaches domains of its own process only */
    bool same_host_only;          /**< reaches domains of its own host only */
} kvx_domain_limits;

/** What the probe found out. */
typedef struct kvx_ep_info {
    kvx_read_mode read_mode; /**< how bytes will be read */
    char lane[64];           /**< for people: "process_vm_readv pid 4711" */
} kvx_ep_info;

/**
 * Table of one transport. Slots marked optional may be NULL.
 *
 * The table is constant data with static lifetime.
 */
typedef struct kvx_transport_ops {
    size_t size;      /**< sizeof this table when the transport was built */
    const char *name; /**< in settings, HELLO, logs and metrics */
    const char *help; /**< one line: what it is for */
    /** Settings of this transport: {key, default, help} rows, ended by a NULL key; optional. */
    const struct kvx_transport_setting {
        const char *key;           /**< without the transport's name */
        const char *default_value; /**< as text */
        const char *help;          /**< one line, with unit and limits */
        uint64_t min;              /**< smallest number allowed; numbers take KiB, MiB, GiB */
        uint64_t max;              /**< largest number allowed; 0 and min 0: free text */
    } * settings;                  /**< rows; NULL: it has none */

    /**
     * Open a domain. May take milliseconds.
     * KVX_UNSUPPORTED: this machine cannot; the reason was logged.
     */
    kvx_status (*open)(const kvx_domain_params *params, kvx_domain **domain_out);
    /** Free a domain; the caller has ended its endpoints, registrations and keys. NULL is fine. */
    void (*close)(kvx_domain *domain);
    /** Fill what the domain can do. */
    void (*query)(const kvx_domain *domain, kvx_domain_limits *limits_out);
    /** Write the address that a peer's connect() takes; at most KVX_BLOB_MAX bytes. */
    kvx_status (*address)(kvx_domain *domain, void *buffer, size_t size, size_t *length_out);

    /**
     * Begin to connect. KVX_UNREACHABLE: never will, the reason was logged (wrong host, not
     * permitted) and written to why. KVX_PROTOCOL: the address is malformed. The endpoint may not
     * read before probe() said KVX_OK. Borrows address for the call.
     */
    kvx_status (*connect)(kvx_domain *domain, const void *address, size_t length, char *why,
            size_t why_size, kvx_ep **ep_out);
    /**
     * Has the endpoint proved itself (a round trip, then a nonce read through the data path)?
     * KVX_AGAIN: not yet, progress and ask again; the caller bounds the tries (1 s).
     * KVX_UNREACHABLE: refused, why says the reason and the remedy. Info is set on KVX_OK.
     */
    kvx_status (*probe)(kvx_ep *ep, char *why, size_t why_size, kvx_ep_info *info_out);
    /**
     * End an endpoint. KVX_OK: closed and freed; nothing of it writes into local memory any more,
     * inbound data included, and reads not completed yet never will be. KVX_AGAIN: closing,
     * progress and call again; the endpoint takes no reads meanwhile.
     */
    kvx_status (*disconnect)(kvx_ep *ep);

    /** Register local memory, kept valid by the caller until unregister. */
    kvx_status (*reg)(kvx_domain *domain, void *base, uint64_t length_bytes, kvx_memory_kind kind,
            kvx_mr **mr_out);
    /** End a registration; no read into it and none served from it is in flight. NULL is fine. */
    void (*unreg)(kvx_mr *mr);
    /** Write the key that lets a peer read this registration; at most KVX_BLOB_MAX bytes. */
    kvx_status (*pack_key)(kvx_mr *mr, void *buffer, size_t size, size_t *length_out);
    /**
     * Make a peer's packed key usable on an endpoint. KVX_PROTOCOL: damaged or foreign.
     * KVX_INVALID: its registration is not length_bytes long.
     */
    kvx_status (*import_key)(kvx_ep *ep, const void *key, size_t key_length, uint64_t length_bytes,
            kvx_rkey **rkey_out);
    /** Free an imported key; before the disconnect() of its endpoint. NULL is fine. */
    void (*forget_key)(kvx_rkey *rkey);

    /**
     * Start reads, in order, as many as fit. Bounds are checked here: a range outside the remote
     * registration is KVX_INVALID. *taken_out of them are accepted, and each completes once
     * through completed(), never from here. KVX_AGAIN: none accepted, the window is full.
     * KVX_PEER_LOST: the endpoint is dead. Cost: O(segments taken).
     */
    kvx_status (*get)(kvx_ep *ep, const kvx_read *reads, uint32_t count, uint32_t *taken_out);

    /** Optional: allocate memory that peers can read best; freed with memory_free. */
    kvx_status (*memory_alloc)(kvx_domain *domain, uint64_t length_bytes, void **base_out);
    /** Optional: free what memory_alloc gave. */
    void (*memory_free)(kvx_domain *domain, void *base);

    /**
     * Do a bounded piece of work (at most about a millisecond). Returns true when there may be
     * more to do at once, false when the caller can wait for event_fd or for its own work.
     */
    bool (*progress)(kvx_domain *domain);
    /** A descriptor that polls readable when progress is due after arm(); -1: none is needed. */
    int (*event_fd)(kvx_domain *domain);
    /** Get ready to wait on event_fd. KVX_AGAIN: progress first, something came meanwhile. */
    kvx_status (*arm)(kvx_domain *domain);
} kvx_transport_ops;

/**
 * The i-th transport that was built, in order of preference for "auto".
 *
 * @param index 0, 1, ...
 * @return its table, static; NULL past the last
 *
 * Thread-safety: any thread.
 */
KVX_API const kvx_transport_ops *kvx_transport_at(size_t index);

/**
 * A transport by name.
 *
 * @param name for example "cma"
 * @return its table, static; NULL: unknown or not built
 *
 * Thread-safety: any thread.
 */
KVX_API const kvx_transport_ops *kvx_transport_find(const char *name);

/**
 * Name of a read mode: "one-sided", "served".
 *
 * @param mode any value; unknown ones give "unknown"
 * @return a static string, never NULL
 *
 * Thread-safety: any thread.
 */
KVX_API const char *kvx_read_mode_name(kvx_read_mode mode);

#ifdef __cplusplus
}
#endif
#endif
