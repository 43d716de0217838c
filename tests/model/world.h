/* SPDX-License-Identifier: Apache-2.0 */
/* A small world under a virtual clock for the library's session core and pull engine: processes
 * with clocks of their own that can be stopped or killed, connections that delay and break, a
 * network card that reads at any later moment, and engines that publish and pull. A seed decides
 * everything. Every rule that is broken is written down by name (watch.h). */
#ifndef KVX_MODEL_WORLD_H
#define KVX_MODEL_WORLD_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/list.h"
#include "config/settings.h"
#include "kvx/transport.h"
#include "metrics/metrics.h"
#include "pool/pool.h"
#include "pull/pull.h"
#include "session/session.h"
#include "wire/message.h"

#define MS     UINT64_C(1000000)
#define US     UINT64_C(1000)
#define SECOND (1000 * MS)

#define PROCS_MAX      4
#define NODES_MAX      2 /* ranks in one process */
#define PAGES_MAX      8 /* of one node's pool */
#define REGIONS        2 /* k and v of one layer */
#define PAGE_WORDS     4 /* room, stamp, index and region, epoch */
#define PAGE_BYTES     (PAGE_WORDS * 8)
#define PAGE_STRIDE    40
#define PAGE_TOKENS    4
#define ROOM_PAGES_MAX 3
#define SEGMENTS_MAX   8

typedef struct world world;
typedef struct proc proc;
typedef struct node node;
typedef struct conn conn;
typedef struct end end;
typedef struct pub pub;
typedef struct sub sub;
typedef struct lease lease;
typedef struct joint joint;

/* What happens in the world at a time. */
typedef void (*happen_fn)(world *w, void *object, uint64_t a, uint64_t b);

typedef struct happening {
    uint64_t at;
    uint64_t order;
    happen_fn run;
    void *object;
    uint64_t a;
    uint64_t b;
} happening;

/* Bugs of the driver, the network card or the engine that can be planted; those of the session
 * core and the pull engine are planted in their source (mutants.py). */
typedef struct faults {
    bool cached_now_owner;
    bool cached_now_reader;
    bool late_reply;
    bool reregister_early;
} faults;

/* A settings set and the lane. */
typedef struct model_set {
    const char *name;
    kvx_settings settings;
    kvx_read_mode lane;
    bool is_joint;
    uint64_t chaos_ns; /* how long things go wrong */
} model_set;

/* How often things go wrong in this run. Chances are per 1024. */
typedef struct moods {
    uint32_t stop;       /* before or after any clock sample */
    uint32_t stop_owner; /* in an answer about a lease */
    uint32_t stop_post;  /* between sample and post */
    uint32_t forever;    /* of the stops */
    uint32_t hang;       /* of the closes */
    uint32_t cut_pull;   /* the connection breaks in mid-pull */
    uint32_t republish;  /* freed pages are published again at once */
    bool is_net_slow;
    bool is_data_slow;
    bool is_engine_slow;    /* events are polled late */
    bool is_room_contested; /* two nodes come for the same reader slot */
} moods;

/* A frame on its way, or in a socket. */
typedef struct frame {
    struct frame *next;
    end *to;
    uint32_t type; /* kvx_message_type, for choosing when to stop */
    uint32_t length;
    uint8_t bytes[];
} frame;

/* One end of a connection, in one process. */
struct end {
    conn *conn;
    proc *proc;
    node *node; /* owner's side: NULL until HELLO came */
    end *other;
    kvx_link_id link;
    frame *first; /* arrived, not read */
    frame **last;
    uint64_t arrival;      /* of the last frame sent to here */
    bool is_closed;        /* given up or lost on this side */
    bool has_fin;          /* the other side's end arrived, behind the frames */
    bool is_up;            /* the handshake is done as far as this side knows */
    bool has_said_bye;     /* this side leaves, and said so */
    bool is_suspect;       /* to be read empty, then judged */
    uint64_t sent_at[256]; /* clock at which PING or RENEW number n was sent, n modulo 256 */
    end *next;             /* of the process */
};

struct conn {
    end dialer;
    end owner;
    bool is_cut;
    conn *next; /* of the world */
};

typedef struct page_state {
    pub *published; /* newest publication with it */
    uint32_t publications;
    sub *puller; /* the pull that the engine gave it to */
    sub *taker;  /* the pull that has it, as the session agreed */
} page_state;

/* A publication as its engine knows it. */
struct pub {
    pub *next; /* of the world, newest first */
    node *node;
    uint64_t life;
    uint64_t room;
    uint64_t stamp;
    kvx_generation generation; /* counter 0: not seen on the wire yet */
    uint32_t page_count;
    kvx_page pages[ROOM_PAGES_MAX];
    uint64_t born;
    uint64_t born_clock;
    uint64_t freed;
    bool is_live; /* until RELEASED was polled */
    bool is_revoked;
    bool was_ended; /* a reader released, aborted or drained it */
    bool is_stuck;
    uint32_t valid_count[2]; /* per reader slot */
    lease *leases;
    sub *only; /* last subscription, while one node alone asked for it */
    bool is_asked_by_many;
};

/* A lease as its messages show it. */
struct lease {
    lease *next; /* of the publication */
    pub *pub;
    end *end;
    sub *sub;
    uint64_t nonce;
    uint32_t reader;
    uint64_t expiry; /* owner's clock */
    bool is_ended;
    bool is_revoked;
    bool is_lost;
};

typedef enum sub_state { SUB_WAIT, SUB_READY, SUB_PULL, SUB_END } sub_state;

/* A subscription as its engine knows it, and as its messages show it. */
struct sub {
    sub *next; /* of the node */
    node *node;
    end *end;
    kvx_subscription_id id;
    uint64_t nonce;
    uint64_t room;
    uint32_t reader;
    uint32_t readers;
    sub_state state;
    bool is_early;
    bool is_held;
    bool is_ready_told;
    bool is_pull_refused;
    uint32_t terminal_count;
    kvx_status status;
    kvx_generation generation; /* as READY said */
    pub *pub;
    uint32_t skip;
    uint32_t page_count;
    kvx_page pages[ROOM_PAGES_MAX];
    bool has_stolen_page; /* the engine gave a page that is not free */
    uint64_t trust;       /* own clock, recomputed from the messages; 0: none */
    uint64_t sampled;     /* true time of the last clock sample that let it post */
    uint32_t active_reads;
    uint32_t valid_sent;
    uint32_t valid_seen;
    bool is_release_sent;
    uint64_t born;
    joint *joint;
    uint32_t rank;
    struct wish *wish;
};

/* One subscription on every rank of a process. */
struct joint {
    sub *subs[NODES_MAX];
    uint32_t count;
    uint32_t bytes_in;
    uint32_t valid;
    uint32_t failed;
    uint32_t ready;
    bool is_released;
    bool is_delivered;
};

/* One read in the network card. */
typedef struct nic_read {
    kvx_list link; /* world.reads while it may touch memory */
    uint64_t id;
    kvx_ep *ep;
    node *reader;
    sub *sub;
    node *owner;
    uint64_t owner_epoch;
    uint64_t owner_life;
    uint32_t region;
    uint64_t offset;
    uint32_t segment_count;
    kvx_segment segments[SEGMENTS_MAX];
    uint64_t length;
    uint64_t sampled; /* true time of the clock sample that let it pass */
    uint64_t posted;
    bool is_posted;
    bool is_fetched;
    bool is_landed;
    bool is_dead;
    kvx_status status;
    /* served */
    bool is_serving;   /* an operation of the owner's */
    bool is_send_over; /* nothing reads for it any more, end not reported */
    struct nic_read *next_request;
    struct nic_read *next_done;
    uint8_t data[PAGES_MAX * PAGE_STRIDE];
} nic_read;

struct kvx_mr {
    kvx_domain *domain;
    uint8_t *base;
    uint64_t length;
    uint32_t region;
};

struct kvx_rkey {
    kvx_ep *ep;
    uint32_t region;
    uint64_t length;
};

struct kvx_ep {
    kvx_domain *domain;
    proc *remote;
    uint32_t remote_node;
    uint64_t remote_epoch;
    uint64_t ready_at;
    uint32_t keys;
    bool is_closing;
    bool is_hung;
    bool is_closed;
};

struct kvx_domain {
    node *node;
    uint64_t epoch;
    uint32_t regions;
    nic_read *done; /* landed or failed, not reported */
    nic_read **done_last;
    nic_read *requests; /* served lane: asked of us */
    nic_read **requests_last;
    nic_read *sends; /* served lane: begun by us (next_request) */
    uint32_t in_flight;
    uint32_t window;
    uint32_t segments_max;
    bool is_dead; /* its process is gone: nothing moves any more */
};

struct node {
    proc *proc;
    uint32_t rank;
    uint64_t epoch;
    uint64_t life; /* counts restarts: older happenings are void */
    kvx_session *session;
    kvx_puller *puller;
    kvx_pool *pool;
    kvx_domain domain;
    kvx_metrics metrics;
    uint8_t memory[REGIONS][PAGES_MAX * PAGE_STRIDE];
    uint32_t page_count;
    page_state pages[PAGES_MAX];
    sub *subs;
    sub *subscribing; /* while kvx_session_subscribe() runs */
    kvx_peer_id peers[PROCS_MAX];
    bool is_peer_up[PROCS_MAX];
    uint32_t retries;
    uint64_t reserved[2]; /* bytes promised for rooms 100 and 101 */
    bool is_room_awaited; /* KVX_AGAIN was said, ROOM is due */
    bool is_ticking;      /* inside kvx_session_tick() */
    uint64_t now;         /* last given to the session */
    bool has_tick;
    bool has_step;
    bool has_orders;
    bool has_poll;
    bool is_closing; /* re-registration under way */
    bool is_over;    /* everything destroyed */
};

typedef enum item_kind {
    ITEM_NONE,
    ITEM_FRAME,
    ITEM_FIN,
    ITEM_IDLE,
    ITEM_COMMAND,
    ITEM_TICK,
    ITEM_STEP,
    ITEM_POLL,
} item_kind;

typedef void (*command_fn)(node *n, uint64_t now, void *object, uint64_t a);

typedef struct command {
    struct command *next;
    node *node;
    command_fn run;
    void *object;
    uint64_t a;
} command;

typedef struct work {
    item_kind kind;
    end *end;
    node *node;
    command *command;
    bool has_now;
    uint64_t now;
} work;

#define STOPS_MAX 64
typedef struct stop_span {
    uint64_t from;
    uint64_t to;
} stop_span;

struct proc {
    world *w;
    char name[8];
    uint32_t index;
    uint64_t life;
    int64_t rate; /* per thousand */
    uint64_t offset;
    bool is_dead;
    bool is_stopped;
    bool is_running; /* inside proc_run() */
    uint64_t local; /* true time that it lives in: later than the world's after a stop inside a call */
    uint64_t wake_at;
    work held;
    bool has_held;
    bool is_cached; /* planted bug: the clock of before the stop */
    uint64_t cached;
    stop_span stops[STOPS_MAX];
    uint32_t stop_count;
    command *commands;
    command **commands_last;
    end *ends;
    node nodes[NODES_MAX];
    uint32_t node_count;
    bool is_listening;
};

struct world {
    uint64_t t;
    uint64_t random;
    uint64_t chaos_end;
    uint64_t horizon;
    const model_set *set;
    kvx_settings settings; /* the set's, varied */
    moods moods;
    faults faults;
    bool is_traced;
    bool is_scripted; /* a directed scenario: nothing goes wrong by itself */
    bool is_over;
    happening *heap;
    uint32_t heap_count;
    uint32_t heap_capacity;
    uint64_t order;
    proc procs[PROCS_MAX];
    uint32_t proc_count;
    conn *conns;
    pub *pubs;
    kvx_list reads;
    uint64_t link_count;
    uint64_t stamp_count;
    uint64_t epoch_count;
    /* directed scenarios */
    uint64_t script_delay; /* of frames and reads */
    uint64_t script_hang;  /* how long closes hang, 0: they do not */
    const char *compat;    /* of the nodes made from now on; NULL: the usual one */
    void (*on_sent)(node *n, const kvx_message *message);
    void (*on_event)(node *n, const kvx_event *event);
    uint64_t steps_now; /* process steps at this very time */
    char violation[256];
    uint64_t excused_stop;
    uint64_t excused_hang;
    uint64_t pulled;
    uint64_t failed;
    uint64_t held;
    uint64_t happened;
    struct arena_chunk *chunks;
    struct arena_chunk *chunk;
    kvx_buffer encode;
};

/* --- world.c: time, chance, memory ---------------------------------------------------------- */

/* Reuses what an earlier run allocated; a zeroed world is a new one. */
void world_begin(world *w, const model_set *set, uint64_t seed, const faults *planted, bool traced);
void world_end(world *w);
void world_fini(world *w);
/* Memory that lives until the next world_begin(), zeroed. */
void *world_take(world *w, size_t size);
void world_at(world *w, uint64_t at, happen_fn run, void *object, uint64_t a, uint64_t b);
/* Let everything happen until a time, or until a rule is broken. */
void world_run(world *w, uint64_t until);
void world_log(world *w, const char *who, const char *format, ...) KVX_PRINTF(3, 4);
#define WORLD_LOG(w, ...)                \
    do {                                 \
        if ((w)->is_traced)              \
            world_log((w), __VA_ARGS__); \
    } while (0)

uint64_t world_random(world *w);
uint64_t world_below(world *w, uint64_t below);
/* True in chance of 1024. */
bool world_chance(world *w, uint32_t chance);
/* Up to `most`, uniformly. */
uint64_t world_span(world *w, uint64_t most);
bool world_is_chaos(const world *w);

#endif
