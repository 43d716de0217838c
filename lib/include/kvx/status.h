/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * Status: what went wrong, and how far the damage reaches.
 *
 * Every function that can fail returns a kvx_status. Outputs are written only
 * on KVX_OK. The scope of a status tells the caller what to give up: one
 * request, everything on one peer, or the node.
 */
#ifndef KVX_STATUS_H
#define KVX_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

/** A symbol of the library's public interface. */
#define KVX_API __attribute__((visibility("default")))
/** A public function whose result must not be ignored. */
#define KVX_API_CHECKED __attribute__((visibility("default"), warn_unused_result))

/**
 * X(name, value, scope, text). Values are wire and ABI: never reuse one.
 */
#define KVX_STATUS_LIST(X)                                                      \
    X(OK, 0, NONE, "success")                                                   \
    X(AGAIN, -1, REQUEST, "not possible now, wait for an event and call again") \
    X(INVALID, -2, REQUEST, "argument out of range")                            \
    X(NO_SPACE, -3, REQUEST, "a limit is reached")                              \
    X(BUSY, -4, REQUEST, "in use by another transfer")                          \
    X(NOT_FOUND, -5, REQUEST, "no such room, peer or key")                      \
    X(UNSUPPORTED, -6, REQUEST, "not supported")                                \
    X(EXPIRED, -10, REQUEST, "the lease or the patience ran out")               \
    X(REVOKED, -11, REQUEST, "the owner took the pages back")                   \
    X(CANCELLED, -12, REQUEST, "cancelled by the caller")                       \
    X(DEADLINE, -13, REQUEST, "the deadline passed")                            \
    X(REFUSED, -14, REQUEST, "the owner refused")                               \
    X(GONE, -15, REQUEST, "released, failed or never published")                \
    X(READ_FAILED, -16, REQUEST, "the transport could not read")                \
    X(PEER_LOST, -20, PEER, "the peer closed, died or fell silent")             \
    X(PROTOCOL, -21, PEER, "malformed or unexpected message")                   \
    X(MISMATCH, -22, PEER, "the two sides do not describe the same cache")      \
    X(UNREACHABLE, -23, PEER, "the peer's memory or address cannot be reached") \
    X(NO_MEMORY, -40, NODE, "out of host memory")                               \
    X(IO, -41, NODE, "a system call failed")                                    \
    X(CLOSED, -42, NODE, "the node is closing")                                 \
    X(FORKED, -43, NODE, "called in a child after fork, open a node of its own")

/** Result of a call or of a transfer. */
typedef enum kvx_status {
#define KVX_STATUS_ENUM(name, value, scope, text) KVX_##name = (value),
    KVX_STATUS_LIST(KVX_STATUS_ENUM)
#undef KVX_STATUS_ENUM
} kvx_status;

/** The largest thing that a status says is affected. */
typedef enum kvx_scope {
    KVX_SCOPE_NONE,    /**< nothing failed */
    KVX_SCOPE_REQUEST, /**< this call or this room only */
    KVX_SCOPE_PEER,    /**< everything on this peer */
    KVX_SCOPE_NODE,    /**< the node */
} kvx_scope;

/**
 * Text of a status, a constant lower-case phrase without a full stop.
 *
 * @param status any value; unknown ones give "unknown status"
 * @return a static string, never NULL
 *
 * Thread-safety: any thread.
 */
KVX_API const char *kvx_status_text(kvx_status status);

/**
 * Name of a status as written in the source, for example "PEER_LOST".
 *
 * @param status any value; unknown ones give "UNKNOWN"
 * @return a static string, never NULL
 *
 * Thread-safety: any thread.
 */
KVX_API const char *kvx_status_name(kvx_status status);

/**
 * How far the damage of a status reaches.
 *
 * @param status any value; unknown ones give KVX_SCOPE_NODE
 * @return the scope
 *
 * Thread-safety: any thread.
 */
KVX_API kvx_scope kvx_status_scope(kvx_status status);

#ifdef __cplusplus
}
#endif
#endif
