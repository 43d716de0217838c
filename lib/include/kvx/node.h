/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * Node: one process's end for one GPU; publishes, subscribes and pulls.
 *
 * Prefill publishes a room and goes on. Decode subscribes (which holds no memory), learns with
 * READY how much there is and how it lies, takes pages, and pulls. PULLED comes only after the
 * owner has said that the pages were whole until the last byte was in.
 *
 * Results come as events from kvx_node_poll(), never as callbacks. A room or subscription holds
 * one pending event: an unpolled one is overwritten only by a terminal one, and terminal events
 * are never lost. Ids of different things are different types.
 *
 * Data flow:  config -> memory -> transport -> pool -> plan -> session -> pull -> [node]
 */
#ifndef KVX_NODE_H
#define KVX_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvx/config.h"
#include "kvx/layout.h"
#include "kvx/metrics.h"
#include "kvx/status.h"
#include "kvx/transport.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Most bytes of aux data of a publication. */
#define KVX_AUX_MAX 65536

/**
 * A node.
 *
 * Thread-safety: every function here may be called from any thread, beside any other, except
 * that kvx_node_close() must be the last call, and that with `progress = caller` only one thread
 * at a time is in kvx_node_progress(). After fork() every call in the child returns KVX_FORKED.
 */
typedef struct kvx_node kvx_node;

/** A remote node, as told by kvx_connect(). Value 0 is no peer. */
typedef struct kvx_peer_id {
    uint64_t value; /**< opaque */
} kvx_peer_id;

/** A subscription and the pull it becomes. Never reused. Value 0 is none. */
typedef struct kvx_subscription_id {
    uint64_t value; /**< opaque */
} kvx_subscription_id;

/** Which publication of a room: every message about it carries this. */
typedef struct kvx_generation {
    uint64_t epoch;   /**< of the publishing node; random per open */
    uint64_t counter; /**< rises with every publication of that node */
} kvx_generation;

/** How to open a node. Zero means the default everywhere. */
typedef struct kvx_node_params {
    size_t struct_size;       /**< set by KVX_NODE_PARAMS() */
    const kvx_config *config; /**< settings, copied; NULL: defaults and the environment */
    const kvx_layout *layout; /**< the pool; copied, its memory stays the caller's and must be valid
                                   until kvx_node_close() returned KVX_OK */
    const char *compat; /**< engine's model, revision and dtype; both sides must be equal; NULL: "" */
    uint32_t rank;      /**< TP rank of this node */
    uint32_t ranks;     /**< size of the TP group; 0: 1 */
    const char *listen; /**< "host:port", "[addr]:port", "unix:/path"; port 0: any; NULL: do not
                                   listen. Nodes of one process may name the same address */
} kvx_node_params;

/** Named parameters for kvx_node_open(). */
#define KVX_NODE_PARAMS(...) \
    (&(const kvx_node_params){ .struct_size = sizeof(kvx_node_params), __VA_ARGS__ })

/**
 * Open a node: transport, registration of the pool, listener, and its thread.
 *
 * @param params   see there
 * @param node_out [out] the node; close it with kvx_node_close()
 *
 * @retval KVX_INVALID     parameters or settings are wrong; the log says which
 * @retval KVX_UNSUPPORTED the transport is unknown, not built, or cannot run here
 * @retval KVX_IO          the address cannot be listened on; the log says why
 * @retval KVX_NO_MEMORY   out of host memory
 *
 * Cost: registers the pool; may take seconds for large pools on RDMA.
 */
KVX_API_CHECKED kvx_status kvx_node_open(const kvx_node_params *params, kvx_node **node_out);

/**
 * Close a node. Revokes every publication, ends every subscription, and waits until no peer can
 * read the pool any more and no read of ours can write to it.
 *
 * @param node       address of the node; cleared on KVX_OK; it or what it points at may be NULL
 * @param timeout_ms how long to wait; 0: until done (bounded by lease + fence)
 *
 * @retval KVX_OK    closed; the pool's memory is the caller's again
 * @retval KVX_AGAIN not yet quiet: the memory must stay valid; call again
 */
KVX_API_CHECKED kvx_status kvx_node_close(kvx_node **node, uint32_t timeout_ms);

/**
 * Stop taking new publications and subscriptions and wait until the present ones have ended.
 *
 * @param node       the node
 * @param timeout_ms how long to wait; > 0
 *
 * @retval KVX_OK    nothing is parked and nothing is subscribed
 * @retval KVX_AGAIN some are left; the node stays draining
 */
KVX_API_CHECKED kvx_status kvx_node_drain(kvx_node *node, uint32_t timeout_ms);

/**
 * Give the node another pool. Revokes everything as kvx_node_close() does, then starts a new
 * epoch, closes every connection and registers @p layout.
 *
 * @param node       the node
 * @param layout     the new pool, as in kvx_node_params
 * @param timeout_ms how long to wait; 0: until done
 *
 * @retval KVX_OK      the old memory is the caller's again and the new pool is in use
 * @retval KVX_AGAIN   not yet quiet; the node refuses work until this is called again
 * @retval KVX_BUSY    another thread is in this call
 * @retval KVX_INVALID the layout is wrong
 */
KVX_API_CHECKED kvx_status kvx_node_reregister(
        kvx_node *node, const kvx_layout *layout, uint32_t timeout_ms);

/**
 * The address that the node listens on, with the real port.
 *
 * @param node        the node
 * @param buffer      [out] zero-terminated text
 * @param buffer_size bytes at @p buffer
 *
 * @retval KVX_NOT_FOUND the node does not listen
 * @retval KVX_NO_SPACE  @p buffer is too small
 */
KVX_API_CHECKED kvx_status kvx_node_address(kvx_node *node, char *buffer, size_t buffer_size);

/**
 * Begin to connect to a remote node. It stays connected, or tries to, until kvx_disconnect():
 * KVX_EVENT_PEER_UP and KVX_EVENT_PEER_LOST tell. Names are resolved again at each try.
 *
 * @param node        the node
 * @param address     "host:port", "[addr]:port" or "unix:/path" of the remote listener
 * @param remote_rank TP rank wanted there
 * @param peer_out    [out] the peer
 *
 * @retval KVX_INVALID  the address is malformed
 * @retval KVX_NO_SPACE too many peers
 */
KVX_API_CHECKED kvx_status kvx_connect(
        kvx_node *node, const char *address, uint32_t remote_rank, kvx_peer_id *peer_out);

/**
 * Leave a peer: ends its subscriptions (each makes its event) and says BYE.
 *
 * @param node the node
 * @param peer as told by kvx_connect()
 *
 * @retval KVX_NOT_FOUND no such peer
 */
KVX_API_CHECKED kvx_status kvx_disconnect(kvx_node *node, kvx_peer_id peer);

/** A page table of one component. */
typedef struct kvx_page_table {
    const kvx_page *pages; /**< page numbers in token order; copied by the call that takes it */
    uint32_t page_count;   /**< entries in pages */
} kvx_page_table;

/** An offer of a room's pages. Zero means the default everywhere. */
typedef struct kvx_offer {
    size_t struct_size;           /**< set by KVX_OFFER() */
    uint64_t room;                /**< id of the request, chosen by the router */
    uint32_t tokens;              /**< tokens in the pages; > 0 */
    const kvx_page_table *tables; /**< one per component, in the layout's order; the i-th needs
                                       kvx_pages_for_tokens() pages if its pages stand for tokens */
    uint32_t table_count;         /**< components of the layout */
    const void *aux;    /**< small data for the reader, for example the first token; copied */
    uint32_t aux_bytes; /**< at most KVX_AUX_MAX */
    bool is_partial;    /**< a chunk of a room that goes on: refused, not built yet */
    void *user;         /**< comes back in this room's events */
} kvx_offer;

/** Named parameters for kvx_publish(). */
#define KVX_OFFER(...) (&(const kvx_offer){ .struct_size = sizeof(kvx_offer), __VA_ARGS__ })

/**
 * Publish a room: from now on its pages must not change until KVX_EVENT_RELEASED.
 *
 * @param node  the node
 * @param offer see there; arrays are copied
 *
 * @retval KVX_AGAIN       parked bytes or rooms are at their limit; KVX_EVENT_ROOM tells when
 *                         there is room again
 * @retval KVX_BUSY        the room is live already, or a page is the target of a pull
 * @retval KVX_INVALID     tokens, pages or aux do not fit the layout
 * @retval KVX_UNSUPPORTED a partial offer
 * @retval KVX_CLOSED      the node is draining or closing
 * @retval KVX_NO_MEMORY   out of host memory
 *
 * On any error no page was taken and no event is made.
 * Cost: O(pages).
 */
KVX_API_CHECKED kvx_status kvx_publish(kvx_node *node, const kvx_offer *offer);

/**
 * Ask for room before computing: a later kvx_publish() of this room cannot be refused with
 * KVX_AGAIN if it is not larger than reserved.
 *
 * @param node  the node
 * @param room  id of the request
 * @param bytes that its pages will take, over all regions; 0 gives the reservation up
 *
 * @retval KVX_AGAIN    no room now; KVX_EVENT_ROOM tells when there is
 * @retval KVX_BUSY     the room is published or reserved already
 * @retval KVX_NO_SPACE larger than the limit: it will never fit
 */
KVX_API_CHECKED kvx_status kvx_reserve(kvx_node *node, uint64_t room, uint64_t bytes);

/**
 * Want the pages of a published room back. Readers are told, drain, and answer; then, or when
 * their leases are past, KVX_EVENT_RELEASED with reason KVX_REVOKED comes.
 *
 * @param node the node
 * @param room published room
 *
 * @retval KVX_NOT_FOUND not published (any more)
 */
KVX_API_CHECKED kvx_status kvx_revoke(kvx_node *node, uint64_t room);

/**
 * Say that a room failed and will not come (any more): who waits for it, or asks later, gets
 * KVX_GONE at once. If it is published it is revoked too.
 *
 * @param node the node
 * @param room any room
 *
 * @retval KVX_CLOSED the node is closing
 */
KVX_API_CHECKED kvx_status kvx_abort(kvx_node *node, uint64_t room);

/** Interest in a room. Zero means the default everywhere. */
typedef struct kvx_subscription {
    size_t struct_size;   /**< set by KVX_SUBSCRIPTION() */
    kvx_peer_id peer;     /**< who will publish it; must be up */
    uint64_t room;        /**< id of the request */
    uint32_t reader;      /**< which reader of the room this is: 0 ... readers - 1 */
    uint32_t readers;     /**< how many read the room; 0: 1; the first to subscribe fixes it */
    uint32_t patience_ms; /**< how long to wait for READY, and then for the pull; 0: the setting */
    void *user;           /**< comes back in this subscription's events */
} kvx_subscription;

/** Named parameters for kvx_subscribe(). */
#define KVX_SUBSCRIPTION(...) \
    (&(const kvx_subscription){ .struct_size = sizeof(kvx_subscription), __VA_ARGS__ })

/** What to pull. Zero means the default everywhere. */
typedef struct kvx_pull_params {
    size_t struct_size;           /**< set by KVX_PULL() */
    const kvx_page_table *tables; /**< one per component: where its pages go; copied */
    uint32_t table_count; /**< components of the layout; 0 if nothing is wanted but release */
    uint32_t first_token; /**< skip these tokens (a prefix that is here already): a multiple of
                                       page_tokens; pages[0] takes this token */
    uint32_t deadline_ms; /**< for all stages together; 0: the setting */
} kvx_pull_params;

/** Named parameters for kvx_pull(). */
#define KVX_PULL(...) \
    (&(const kvx_pull_params){ .struct_size = sizeof(kvx_pull_params), __VA_ARGS__ })

/**
 * Subscribe to a room. Takes no memory of the pool. Makes READY, later PULLED or FAILED.
 *
 * @param node         the node
 * @param subscription see there
 * @param id_out       [out] names it in later calls and events
 *
 * @retval KVX_AGAIN     the peer is not up; KVX_EVENT_PEER_UP tells
 * @retval KVX_NOT_FOUND no such peer
 * @retval KVX_BUSY      this room is subscribed on this peer already
 * @retval KVX_NO_SPACE  too many subscriptions
 * @retval KVX_INVALID   reader is not below readers
 * @retval KVX_CLOSED    the node is draining or closing
 *
 * On any error no event is made.
 */
KVX_API_CHECKED kvx_status kvx_subscribe(
        kvx_node *node, const kvx_subscription *subscription, kvx_subscription_id *id_out);

/**
 * Subscribe and give the pages now, the push systems' way (reserve policy "early"): the pull
 * starts by itself when READY is here. READY makes no event of its own. The count must fit the
 * tokens that are published, else the pull fails with KVX_INVALID.
 *
 * @param node         the node
 * @param subscription see there
 * @param pull         the pages, which belong to the library until the terminal event
 * @param id_out       [out] names it in later calls and events
 *
 * @return as kvx_subscribe() and kvx_pull()
 */
KVX_API_CHECKED kvx_status kvx_subscribe_early(kvx_node *node, const kvx_subscription *subscription,
        const kvx_pull_params *pull, kvx_subscription_id *id_out);

/**
 * Pull a READY room into our pages. The pages belong to the library until the terminal event.
 *
 * @param node the node
 * @param id   subscription that is READY
 * @param pull where the pages go; arrays are copied
 *
 * @retval KVX_NOT_FOUND the subscription ended
 * @retval KVX_AGAIN     too many bytes or pulls under way; KVX_EVENT_CREDIT tells when to retry
 * @retval KVX_BUSY      it is not READY, or is pulled already
 * @retval KVX_INVALID   first token or page count do not line up; the log gives the positions
 * @retval KVX_NO_MEMORY out of host memory
 *
 * On any error no page was taken and no event is made. On KVX_OK exactly one terminal event
 * comes. Errors that planning finds (a page twice, busy or out of range) come as KVX_EVENT_FAILED.
 * Cost: a copy of the tables; never plans, never blocks.
 */
KVX_API_CHECKED kvx_status kvx_pull(
        kvx_node *node, kvx_subscription_id id, const kvx_pull_params *pull);

/**
 * End a READY room without reading it: everything is here already. Makes PULLED when the owner
 * agrees, like a pull of no pages.
 *
 * @param node the node
 * @param id   subscription that is READY
 * @return as kvx_pull()
 */
KVX_API_CHECKED kvx_status kvx_release(kvx_node *node, kvx_subscription_id id);

/**
 * End a subscription or pull in whatever state it is. KVX_EVENT_FAILED with KVX_CANCELLED comes
 * when its pages are quiet, unless it succeeds or fails otherwise first.
 *
 * @param node the node
 * @param id   any subscription
 *
 * @retval KVX_NOT_FOUND it ended
 */
KVX_API_CHECKED kvx_status kvx_cancel(kvx_node *node, kvx_subscription_id id);

/** What an event tells. */
typedef enum kvx_event_kind {
    KVX_EVENT_NONE,        /**< nothing */
    KVX_EVENT_PEER_UP,     /**< a peer is connected: subscribe now (or it may, is_accepted) */
    KVX_EVENT_PEER_LOST,   /**< a peer was lost or refused us (status); it is tried again unless
                                it refused (KVX_MISMATCH, KVX_UNREACHABLE) */
    KVX_EVENT_READY,       /**< a subscribed room is published */
    KVX_EVENT_PULLED,      /**< terminal: every page is in place and was valid */
    KVX_EVENT_FAILED,      /**< terminal: subscription or pull failed; the pages are quiet unless
                                pages_held */
    KVX_EVENT_PAGES_QUIET, /**< the pages of a pull that failed with pages_held are quiet now */
    KVX_EVENT_RELEASED,    /**< terminal: a publication ended and its pages are ours again */
    KVX_EVENT_PAGES_STUCK, /**< a publication is past its leases, but an operation of ours on its
                                pages does not end: the pages stay held */
    KVX_EVENT_ROOM,        /**< kvx_publish() or kvx_reserve() may succeed again */
    KVX_EVENT_CREDIT,      /**< kvx_pull() may succeed again */
} kvx_event_kind;

/** What a pull did. */
typedef struct kvx_pull_stats {
    uint64_t bytes;       /**< read */
    uint64_t reads;       /**< reads that the plan needed */
    uint64_t pages;       /**< pages, counted once per region */
    uint64_t wait_ns;     /**< subscribe to READY */
    uint64_t allocate_ns; /**< READY to pull: the engine's own time */
    uint64_t plan_ns;     /**< pull to planned */
    uint64_t wire_ns;     /**< planned to last byte */
    uint64_t confirm_ns;  /**< last byte to the owner's word */
} kvx_pull_stats;

/** What was published. */
typedef struct kvx_ready {
    kvx_generation generation; /**< of the publication */
    uint32_t tokens;           /**< tokens in its pages */
    uint32_t component_count;  /**< components of the layout */
    struct {
        const kvx_page_run *runs;    /**< the owner's page table, in token order */
        uint32_t run_count;          /**< entries in runs */
        uint32_t page_count;         /**< pages in all runs */
    } components[KVX_COMPONENT_MAX]; /**< in the layout's order */
    const void *aux;                 /**< small data from the publisher */
    uint32_t aux_bytes;              /**< bytes at aux */
} kvx_ready;

/**
 * One event. What it points at (runs, aux) lives until the terminal event of the same
 * subscription has been polled; text lives inside.
 */
typedef struct kvx_event {
    kvx_event_kind kind; /**< what happened */
    kvx_status status;   /**< why; for RELEASED: OK released, EXPIRED, REVOKED */
    kvx_scope scope;     /**< how far it reaches */
    kvx_peer_id peer;    /**< PEER_*, and subscriptions */
    bool is_accepted;    /**< PEER_*: the peer connected to us; PEER_LOST with KVX_OK: it
                                           said BYE */
    uint64_t room;       /**< rooms and subscriptions */
    kvx_subscription_id subscription; /**< subscriptions */
    void *user;                       /**< as given for this room or subscription */
    bool pages_held;                  /**< FAILED: a close hangs, the pages are not ours yet */
    bool has_page;                    /**< FAILED: page tells which destination page failed */
    kvx_page page;                    /**< see has_page */
    kvx_ready ready;                  /**< READY */
    kvx_pull_stats stats;             /**< PULLED, FAILED */
    char text[192]; /**< one line for people; empty when there is nothing to say */
} kvx_event;

/**
 * Take the next event.
 *
 * @param node      the node
 * @param event_out [out] the event; kind is KVX_EVENT_NONE when there is none
 * @return whether there was one
 */
KVX_API bool kvx_node_poll(kvx_node *node, kvx_event *event_out);

/**
 * Wait for the next event, for small programs. With `progress = caller` it progresses.
 *
 * @param node       the node
 * @param event_out  [out] the event; kind is KVX_EVENT_NONE after the timeout
 * @param timeout_ms how long to wait
 * @return whether there was one
 */
KVX_API bool kvx_node_wait(kvx_node *node, kvx_event *event_out, uint32_t timeout_ms);

/**
 * A descriptor that polls readable when there is something to do. With the node's own thread:
 * events to poll. With `progress = caller`: progress is due as well; call kvx_node_arm() before
 * each wait. It stays the node's: never read, write or close it.
 *
 * @param node the node
 * @return the descriptor; -1 after fork
 */
KVX_API int kvx_node_event_fd(kvx_node *node);

/**
 * Get ready to wait on the descriptor: call it after the last kvx_node_poll() that found nothing.
 *
 * @param node the node
 * @retval KVX_OK    wait now
 * @retval KVX_AGAIN there is something to do already: progress and poll
 */
KVX_API_CHECKED kvx_status kvx_node_arm(kvx_node *node);

/**
 * Do the node's work, with `progress = caller` only.
 *
 * @param node the node
 * @retval KVX_OK      done for now
 * @retval KVX_AGAIN   there is more to do at once
 * @retval KVX_INVALID the node has a thread of its own
 */
KVX_API_CHECKED kvx_status kvx_node_progress(kvx_node *node);

/** Where a room stands on this node. */
typedef enum kvx_room_state {
    KVX_ROOM_UNKNOWN,   /**< never heard of, or long forgotten */
    KVX_ROOM_RESERVED,  /**< owner: bytes are reserved */
    KVX_ROOM_AWAITED,   /**< owner: somebody subscribed, not published */
    KVX_ROOM_PUBLISHED, /**< owner: published */
    KVX_ROOM_REVOKING,  /**< owner: revoked, readers are draining */
    KVX_ROOM_FREED,     /**< owner: released, expired, revoked or aborted; status says which */
    KVX_ROOM_WAITING,   /**< reader: subscribed, not READY */
    KVX_ROOM_READY,     /**< reader: READY, not pulled */
    KVX_ROOM_PULLING,   /**< reader: reads under way, or the owner's word awaited */
    KVX_ROOM_DRAINING,  /**< reader: failed, pages not quiet */
    KVX_ROOM_ENDED,     /**< reader: PULLED (status OK) or FAILED (status says why) */
} kvx_room_state;

/**
 * Where a room stands, also after it ended (for a bounded time). What the node owns is told
 * before what it reads.
 *
 * @param node       the node
 * @param room       any room
 * @param status_out [out] how it ended, KVX_OK while it has not; may be NULL
 * @return the state
 *
 * Cost: O(1).
 */
KVX_API kvx_room_state kvx_room_query(kvx_node *node, uint64_t room, kvx_status *status_out);

/**
 * Copy the counters.
 *
 * @param node     the node
 * @param snapshot [in,out] struct_size set by the caller; the rest is filled
 *
 * @retval KVX_INVALID struct_size is 0 or larger than this library's
 */
KVX_API_CHECKED kvx_status kvx_node_metrics(kvx_node *node, kvx_metrics_snapshot *snapshot);

/**
 * Render counters and histograms as Prometheus text.
 *
 * @param node   the node
 * @param buffer [out] zero-terminated text, cut if @p size is too small
 * @param size   bytes at @p buffer
 * @return bytes that the whole text needs, without the zero
 */
KVX_API size_t kvx_node_metrics_text(kvx_node *node, char *buffer, size_t size);

/**
 * Name of the transport in use, and how it reads from a peer.
 *
 * @param node     the node
 * @param peer     a peer that is up; value 0: any
 * @param info_out [out] read mode and lane; may be NULL
 * @return name, static; NULL if the peer is not up (info is not set then)
 */
KVX_API const char *kvx_node_transport(kvx_node *node, kvx_peer_id peer, kvx_ep_info *info_out);

#ifdef __cplusplus
}
#endif
#endif
