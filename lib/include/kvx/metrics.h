/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * Metrics: counters and histograms of a node, rendered as Prometheus text.
 */
#ifndef KVX_METRICS_H
#define KVX_METRICS_H

#include <stddef.h>
#include <stdint.h>

#include "kvx/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** X(name, help): counters, only ever rising. */
#define KVX_COUNTER_LIST(X)                                                              \
    X(published, "rooms published")                                                      \
    X(released, "publications freed after every reader was done")                        \
    X(lapsed, "publications freed because a lease, the hold or the age ran out")         \
    X(taken_back, "publications freed after a revoke")                                   \
    X(subscribed, "subscriptions sent")                                                  \
    X(pulled, "pulls delivered")                                                         \
    X(failed_expired, "pulls and subscriptions failed: lease or patience ran out")       \
    X(failed_revoked, "pulls and subscriptions failed: the owner took the pages back")   \
    X(failed_cancelled, "pulls and subscriptions failed: cancelled")                     \
    X(failed_peer_lost, "pulls and subscriptions failed: the peer was lost")             \
    X(failed_deadline, "pulls failed: the deadline passed")                              \
    X(failed_refused, "pulls and subscriptions failed: refused or gone")                 \
    X(failed_protocol, "pulls and subscriptions failed: protocol, read or memory error") \
    X(bytes_read, "bytes delivered by completed reads")                                  \
    X(reads, "reads completed")                                                          \
    X(pages_read, "pages of delivered pulls, counted once per region")                   \
    X(renewals, "lease renewals sent")                                                   \
    X(leases_granted, "leases granted to readers, renewals apart")                       \
    X(leases_expired, "leases that ran past expiry and fence")                           \
    X(foreign_messages, "messages about a lease that is not the sender's, refused")      \
    X(links_opened, "control connections that finished the handshake")                   \
    X(links_lost, "control connections lost")                                            \
    X(links_rejected, "control connections refused in the handshake")                    \
    X(protocol_errors, "malformed frames and unexpected messages")                       \
    X(endpoint_closes, "endpoints closed because a read would not drain")                \
    X(pages_held, "pulls that ended with pages held by a close that hangs")

/** X(name, help): gauges. */
#define KVX_GAUGE_LIST(X)                                               \
    X(parked_rooms, "publications live now")                            \
    X(parked_bytes, "bytes of pages in live publications")              \
    X(reserved_bytes, "bytes promised to reservations")                 \
    X(leases, "leases live now")                                        \
    X(waiting_subscriptions, "early subscriptions kept for a room")     \
    X(subscriptions, "own subscriptions and pulls that have not ended") \
    X(reads_in_flight, "reads posted and not completed")                \
    X(bytes_in_flight, "bytes of reads in flight")

/** X(name, help): histograms, in nanoseconds. */
#define KVX_HIST_LIST(X)                                   \
    X(wait_ns, "subscribe to READY")                       \
    X(allocate_ns, "READY to pull: the engine's own time") \
    X(plan_ns, "pull to planned")                          \
    X(wire_ns, "planned to last byte")                     \
    X(confirm_ns, "last byte to the owner's word")         \
    X(usable_ns, "READY to usable")

/** A copy of a node's counters. Missing kinds are zero. */
typedef struct kvx_metrics_snapshot {
    size_t struct_size; /**< set by the caller: sizeof(kvx_metrics_snapshot) */
#define KVX_METRICS_FIELD(name, help) uint64_t name; /**< help */
    KVX_COUNTER_LIST(KVX_METRICS_FIELD)
    KVX_GAUGE_LIST(KVX_METRICS_FIELD)
#undef KVX_METRICS_FIELD
} kvx_metrics_snapshot;

#ifdef __cplusplus
}
#endif
#endif
