/* SPDX-License-Identifier: Apache-2.0 */
/* The session core's own structures. peer.c and link.c: connections; owner.c and lease.c: what we
 * publish and to whom it is promised; reader.c and trust.c: what we subscribe to and pull;
 * room.c: rooms by id and what is remembered of them; event.c: what the engine polls. */
#ifndef KVX_SESSION_CORE_H
#define KVX_SESSION_CORE_H

#include "admit/admit.h"
#include "base/list.h"
#include "base/map.h"
#include "base/timers.h"
#include "pool/book.h"
#include "session/session.h"

#define KVX_SENT_RING   256  /* PINGs and RENEWs whose send time is remembered */
#define KVX_READERS_MAX 1024 /* reader slots of a room */
#define KVX_ADDRESS_MAX 256

/* What a timer or an event slot belongs to. */
typedef enum kvx_owner_kind {
    KVX_OWNER_PEER,
    KVX_OWNER_LINK,
    KVX_OWNER_PUBLICATION,
    KVX_OWNER_LEASE,
    KVX_OWNER_SUBSCRIPTION,
    KVX_OWNER_SESSION,
} kvx_owner_kind;

typedef struct kvx_due {
    kvx_timer timer; /* first, so that a timer leads back here */
    kvx_owner_kind kind;
} kvx_due;

/* The one pending event of an object. */
typedef struct kvx_slot {
    kvx_list node; /* in session.events while pending */
    kvx_owner_kind kind;
    kvx_event_kind event; /* KVX_EVENT_NONE: nothing pending */
} kvx_slot;

/* --- connections --- */

typedef struct kvx_link kvx_link;

/* A remote node: dialled (ours, until disconnect) or accepted (lives as long as its link). */
typedef struct kvx_peer {
    uint64_t id;
    bool is_accepted;
    bool is_refused; /* never dialled again */
    bool is_leaving; /* the engine left it; BYE follows when its pulls are quiet */
    bool is_dialing;
    char address[KVX_ADDRESS_MAX];
    uint32_t remote_rank;
    kvx_link *link;
    uint64_t pause_ns; /* before the next dial */
    kvx_due redial;
    kvx_slot slot;
    kvx_status status; /* of the pending event */
    char text[192];
} kvx_peer;

typedef enum kvx_link_state {
    KVX_LINK_GREETING,   /* dialled: HELLO sent */
    KVX_LINK_CONNECTING, /* dialled: WELCOME came, the data path is being proven */
    KVX_LINK_UP,
} kvx_link_state;

struct kvx_link {
    kvx_link_id id;
    kvx_link_state state;
    kvx_peer *peer;
    kvx_hello *remote;
    uint64_t remote_epoch;
    uint64_t sequence; /* of the last PING or RENEW sent */
    uint64_t answered; /* the highest sequence that was answered; answers come in order */
    uint64_t sent_ns[KVX_SENT_RING];
    uint64_t echo; /* the last sequence of the other side's that we handled */
    uint64_t ping_at;
    bool is_suspect;
    kvx_list suspect; /* in session.suspects */
    kvx_due due;
    kvx_map leases;        /* nonce -> kvx_lease, what we promised over this link */
    kvx_list lease_list;   /* the same, since a map must not change during a walk */
    kvx_map subscriptions; /* room -> kvx_sub, what we want over this link */
    kvx_list subs;
};

/* --- owner's side --- */

typedef struct kvx_publication kvx_publication;

/* A room that has a subscriber, a publication or a reservation. */
typedef struct kvx_room {
    uint64_t id;
    kvx_publication *newest; /* NULL: not published, or freed */
    kvx_list waiting;        /* early subscriptions, in order */
    uint32_t readers;        /* fixed by the first subscription; 0: none yet */
    bool is_reserved;
    uint64_t reserved_bytes;
} kvx_room;

typedef enum kvx_reader_state {
    KVX_READER_OPEN, /* nobody took it yet */
    KVX_READER_HELD, /* a lease on a live link has it */
    KVX_READER_KEPT, /* its link was lost: kept for that node until kept_until, then for anyone */
    KVX_READER_DONE,
} kvx_reader_state;

typedef struct kvx_reader_slot {
    kvx_reader_state state;
    uint64_t epoch; /* node that has or had it */
    uint64_t kept_until;
} kvx_reader_slot;

/* A reader's promise, or its place in the queue for one. */
typedef struct kvx_lease {
    kvx_link *link; /* NULL: the link was lost */
    uint64_t epoch; /* of the reader's node */
    uint64_t nonce;
    kvx_room *room;               /* while waiting */
    kvx_publication *publication; /* once granted */
    uint32_t reader;
    uint32_t readers;
    uint64_t expiry;
    bool is_ended;       /* only our own operations keep it */
    bool is_closing;     /* close_sends was asked */
    uint32_t operations; /* served reads that are not complete */
    kvx_due due;         /* patience, while waiting */
    kvx_list node;       /* in room.waiting or publication.leases */
    kvx_list on_link;    /* in link.lease_list */
} kvx_lease;

struct kvx_publication {
    kvx_generation generation;
    kvx_room *room; /* NULL once freed */
    uint64_t room_id;
    uint32_t tokens;
    uint32_t component_count;
    struct {
        kvx_page_run *runs;
        uint32_t count;
    } tables[KVX_COMPONENT_MAX];
    uint8_t *aux;
    uint32_t aux_bytes;
    uint64_t bytes;
    void *user;
    uint64_t born;
    uint64_t hold_end;
    uint32_t readers; /* slots; 0: nobody came yet */
    kvx_reader_slot *slots;
    kvx_list leases;
    uint64_t lost_until; /* latest end of the leases whose links were lost, folded; 0: none */
    bool is_revoked;
    bool is_aborted; /* revoked for good: who asks later hears that it is gone */
    bool has_lapsed; /* some reader never came or never finished */
    bool is_freed;
    uint64_t stuck_at; /* when to tell that our own operations do not end; 0: not closing */
    kvx_due due;
    kvx_slot slot;
    kvx_status status; /* how it ended */
    kvx_list node;     /* in session.publications */
};

/* --- reader's side --- */

typedef enum kvx_sub_state {
    KVX_SUB_WAITING,  /* SUBSCRIBE sent */
    KVX_SUB_READY,    /* READY came; the engine has the word */
    KVX_SUB_PULLING,  /* the pull engine has it, or will */
    KVX_SUB_BYTES_IN, /* joint: waits for the other ranks' bytes */
    KVX_SUB_CONFIRM,  /* RELEASE sent */
    KVX_SUB_VALID,    /* joint: confirmed, waits for the other ranks' */
    KVX_SUB_DRAINING, /* failed, the engine makes it quiet */
    KVX_SUB_HELD,     /* failed, a close hangs */
    KVX_SUB_ENDED,
} kvx_sub_state;

typedef struct kvx_sub {
    kvx_pull_job job;
    uint64_t room;
    void *user;
    uint64_t peer;
    kvx_link *link; /* NULL: lost */
    kvx_sub_state state;
    bool is_joint;
    bool is_early;
    bool is_with_engine; /* START was handed out */
    bool owes_drained;   /* REVOKE came: DRAINED when quiet, not ABORT */
    bool needs_start, needs_stop, needs_trust;
    kvx_status cause;
    const char *why; /* static; NULL: the status says it */
    bool has_page;
    kvx_page page;
    /* what READY said; owned */
    kvx_generation generation;
    uint32_t tokens;
    struct {
        kvx_page_run *runs;
        uint32_t count;
        uint32_t pages;
    } source[KVX_COMPONENT_MAX];
    uint8_t *aux;
    uint32_t aux_bytes;
    uint64_t lease_ns;
    uint64_t trust_until; /* 0: none yet */
    /* what pull said; owned */
    kvx_page *pages[KVX_COMPONENT_MAX];
    uint32_t page_count[KVX_COMPONENT_MAX];
    uint32_t table_count;
    uint32_t taken[KVX_COMPONENT_MAX]; /* pages marked in the book */
    uint32_t first_token;
    uint32_t deadline_ms;
    uint64_t credit_bytes;
    bool has_credit;
    uint64_t patience_ns;
    uint64_t patience_at, renew_at, deadline_at;
    uint64_t subscribed_at, ready_at, pulled_at, planned_at, done_at;
    kvx_pull_stats stats;
    kvx_due due;
    kvx_slot slot;
    kvx_list on_link; /* in link.subs */
    kvx_list in_jobs; /* in session.jobs */
    kvx_list in_joints;
    kvx_joint_step joint_step;
} kvx_sub;

/* What is remembered of ended rooms: a ring, with an index. */
typedef struct kvx_memory_of_rooms {
    struct kvx_remembered {
        uint64_t room;
        uint64_t until;
        kvx_status status;
        bool is_used;
    } * ring;
    uint32_t capacity;
    uint32_t next;
    kvx_map index; /* room -> its row */
} kvx_memory_of_rooms;

struct kvx_session {
    kvx_settings settings;
    kvx_hello *hello;
    const kvx_pool *pool;
    kvx_metrics *metrics;
    kvx_session_sink sink;
    bool is_draining;
    bool is_closing;

    kvx_timers timers;
    kvx_list events;
    kvx_slot room_slot;   /* KVX_EVENT_ROOM */
    kvx_slot credit_slot; /* KVX_EVENT_CREDIT */

    uint64_t peer_count;
    uint64_t dialed_count; /* peers of ours */
    kvx_map peers;         /* id -> kvx_peer */
    kvx_map links;         /* id -> kvx_link */
    kvx_list suspects;

    kvx_book books[KVX_COMPONENT_MAX];
    kvx_admit parked;
    uint64_t generation_count;
    kvx_map rooms;         /* id -> kvx_room */
    kvx_list publications; /* also freed ones whose event was not polled */
    uint32_t live_count;   /* publications not freed */
    uint32_t waiting_count;
    kvx_memory_of_rooms tombstones;

    kvx_admit credits;
    uint64_t nonce;
    kvx_map subs;           /* nonce -> kvx_sub, also ended ones whose event was not polled */
    uint32_t running_count; /* subscriptions that have not ended, held ones included */
    kvx_list jobs;
    kvx_list joints;
    kvx_memory_of_rooms ended;
    kvx_renew_item renew_items[KVX_WIRE_RENEW_MAX];
    kvx_lease_item lease_items[KVX_WIRE_RENEW_MAX];
};

/* link.c */
void kvx_link_ping(kvx_session *session, kvx_link *link, uint64_t now);
uint64_t kvx_link_next_sequence(kvx_link *link, uint64_t now);
/* When a sequence was sent; 0: unknown or too long ago. */
uint64_t kvx_link_sent(const kvx_link *link, uint64_t sequence);
void kvx_link_answered(kvx_link *link, uint64_t sequence);
void kvx_link_due(kvx_session *session, kvx_link *link, uint64_t now);
/* Say BYE and end, as soon as no pull on it drains: the owner hears each ABORT before. */
void kvx_link_leave(kvx_session *session, kvx_link *link, uint64_t now);
/* Forget a link: its subscriptions fail, its leases are folded. The owner closes the socket. */
void kvx_link_end(
        kvx_session *session, kvx_link *link, kvx_status status, const char *text, uint64_t now);
void kvx_link_protocol_error(kvx_session *session, kvx_link *link, const char *what, uint64_t now);
kvx_link *kvx_link_create(kvx_session *session, kvx_link_id id, kvx_peer *peer);
void kvx_link_hello(kvx_session *session, kvx_link *link, uint64_t now);

/* peer.c */
kvx_peer *kvx_peer_create(kvx_session *session, bool is_accepted);
void kvx_peer_free(kvx_session *session, kvx_peer *peer);
void kvx_peer_tell(kvx_session *session, kvx_peer *peer, kvx_event_kind event, kvx_status status,
        const char *text);
void kvx_peer_redial(kvx_session *session, kvx_peer *peer, uint64_t now);
void kvx_peer_due(kvx_session *session, kvx_peer *peer);

/* room.c */
kvx_room *kvx_room_find(const kvx_session *session, uint64_t id);
kvx_room *kvx_room_get(kvx_session *session, uint64_t id);  /* made if needed; NULL: no memory */
void kvx_room_settle(kvx_session *session, kvx_room *room); /* frees it if nothing needs it */
/* Park a publication of it, for which a reservation is used up; kvx_room_unreserve() follows. */
kvx_status kvx_room_park(kvx_session *session, const kvx_room *room, uint64_t bytes);
void kvx_room_unreserve(kvx_session *session, kvx_room *room); /* its bytes go another way */
kvx_status kvx_remember_init(kvx_memory_of_rooms *memory, uint32_t capacity);
void kvx_remember_fini(kvx_memory_of_rooms *memory);
void kvx_remember(kvx_memory_of_rooms *memory, uint64_t room, kvx_status status, uint64_t until);
void kvx_forget(kvx_memory_of_rooms *memory, uint64_t room);
bool kvx_recall(
        const kvx_memory_of_rooms *memory, uint64_t room, uint64_t now, kvx_status *status_out);

/* owner.c */
void kvx_publication_revoke(kvx_session *session, kvx_publication *publication, uint64_t now);
/* Free its pages if L1 allows, else set its timer. */
void kvx_publication_check(kvx_session *session, kvx_publication *publication, uint64_t now);
void kvx_publication_destroy(kvx_session *session, kvx_publication *publication);
/* Still takes readers. */
bool kvx_publication_is_live(const kvx_publication *publication, uint64_t now);
void kvx_owner_reopened(kvx_session *session);

/* lease.c */
void kvx_lease_subscribe(
        kvx_session *session, kvx_link *link, const kvx_message *message, uint64_t now);
void kvx_lease_renew(kvx_session *session, kvx_link *link, const kvx_message *message, uint64_t now);
void kvx_lease_release(
        kvx_session *session, kvx_link *link, const kvx_message *message, uint64_t now);
void kvx_lease_abort(kvx_session *session, kvx_link *link, const kvx_message *message, uint64_t now);
void kvx_lease_drained(
        kvx_session *session, kvx_link *link, const kvx_message *message, uint64_t now);
void kvx_lease_grant(
        kvx_session *session, kvx_lease *lease, kvx_publication *publication, uint64_t now);
void kvx_lease_fail(kvx_session *session, kvx_lease *lease, kvx_status status);
void kvx_lease_lost(kvx_session *session, kvx_lease *lease, uint64_t now);
void kvx_lease_end(kvx_session *session, kvx_lease *lease);
void kvx_lease_free(kvx_session *session, kvx_lease *lease);

/* reader.c */
void kvx_sub_ready(kvx_session *session, kvx_link *link, const kvx_message *message, uint64_t now);
void kvx_sub_failed(kvx_session *session, kvx_link *link, const kvx_message *message, uint64_t now);
void kvx_sub_released(
        kvx_session *session, kvx_link *link, const kvx_message *message, uint64_t now);
void kvx_sub_revoked(kvx_session *session, kvx_link *link, const kvx_message *message, uint64_t now);
void kvx_sub_fail(
        kvx_session *session, kvx_sub *sub, kvx_status cause, const char *why, uint64_t now);
void kvx_sub_end(kvx_session *session, kvx_sub *sub, kvx_status status, uint64_t now);
void kvx_sub_free(kvx_session *session, kvx_sub *sub);
void kvx_sub_due(kvx_session *session, kvx_sub *sub, uint64_t now);
void kvx_sub_arm(kvx_session *session, kvx_sub *sub);
void kvx_sub_queue(kvx_session *session, kvx_sub *sub);
void kvx_sub_send_about(kvx_session *session, kvx_sub *sub, kvx_message_type type);
void kvx_sub_joint(kvx_session *session, kvx_sub *sub, kvx_joint_step step);
kvx_status kvx_sub_begin_pull(
        kvx_session *session, kvx_sub *sub, const kvx_pull_params *pull, uint64_t now);
kvx_sub *kvx_sub_of_job(kvx_pull_job *job);

/* trust.c */
void kvx_trust_lease(kvx_session *session, kvx_link *link, const kvx_message *message, uint64_t now);
void kvx_trust_extend(kvx_session *session, kvx_sub *sub, uint64_t sent_ns);
void kvx_trust_renew(kvx_session *session, kvx_link *link, uint64_t now);

/* event.c */
void kvx_slot_set(kvx_session *session, kvx_slot *slot, kvx_event_kind event);
void kvx_slot_clear(kvx_slot *slot);

/* session.c */
kvx_status kvx_due_init(kvx_session *session, kvx_due *due, kvx_owner_kind kind);
void kvx_due_fini(kvx_session *session, kvx_due *due);
void kvx_due_set(kvx_session *session, kvx_due *due, uint64_t at_ns);

#endif
