/* SPDX-License-Identifier: Apache-2.0 */
/* The two sides that a contract test plays with: an owner of memory, in a process of its own
 * where the transport reaches other processes, and a reader in the test. */
#ifndef KVX_TEST_CONTRACT_H
#define KVX_TEST_CONTRACT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "kvx/transport.h"

#define REGION_COUNT  2
#define REGION_BYTES  ((UINT64_C(1) << 20) + 4096 + 77)
#define LOCAL_BYTES   (UINT64_C(8) << 20)
#define UNTOUCHED     0xEE
#define COMPLETED_MAX 65536

typedef struct blob {
    uint8_t data[KVX_BLOB_MAX];
    size_t length;
} blob;

/* What an owner tells: its address and a key for each region. */
typedef struct test_offer {
    kvx_status status;
    blob address;
    blob keys[REGION_COUNT];
} test_offer;

typedef enum test_order {
    ORDER_OFFER,      /* say it again */
    ORDER_REGISTER,   /* end the registrations and make new ones */
    ORDER_UNREGISTER, /* end the registrations */
    ORDER_CLOSE,      /* close the domain */
    ORDER_UNMAP,      /* take region 0's second page out of the process */
    ORDER_EXEC,       /* become another program; no answer but the end of the pipe */
    ORDER_FORK,       /* make a child that lives on; its process number comes as status */
} test_order;

/* What an owner does to itself before it opens. */
typedef struct owner_traits {
    uid_t uid;
    bool has_own_pid_namespace;
    bool is_undumpable;
} owner_traits;

/* The owner's own state, in whichever process it lives. */
typedef struct owner_state {
    const kvx_transport_ops *ops;
    kvx_domain *domain;
    uint8_t *regions[REGION_COUNT];
    kvx_mr *mrs[REGION_COUNT];
    uint64_t open_permits; /* authorize() minus served_end() */
} owner_state;

/* The test's end of an owner. */
typedef struct test_owner {
    pid_t pid; /* 0: lives in this process */
    int fd;
    owner_state state; /* when it lives in this process */
    test_offer offer;
} test_owner;

typedef struct test_reader {
    const kvx_transport_ops *ops;
    kvx_domain *domain;
    kvx_domain_limits limits;
    kvx_mr *mr;
    uint8_t *local;
    test_owner *owner;           /* progressed along with it when in this process */
    const char *const *settings; /* key, value, ..., NULL: instead of the defaults */
    bool is_in_progress;
    uint32_t completed_count;
    uint8_t times[COMPLETED_MAX]; /* how often each id completed */
    kvx_status status[COMPLETED_MAX];
} test_reader;

/* A reader that is connected to an owner, with the keys. */
typedef struct test_pair {
    test_owner *owner;
    test_reader *reader;
    kvx_ep *ep;
    kvx_rkey *rkeys[REGION_COUNT];
} test_pair;

const kvx_transport_ops *transport_under_test(void);
uint8_t pattern_at(uint32_t region, uint64_t off);
/* Whether bytes are those of a region from an offset. */
bool pattern_matches(uint32_t region, uint64_t off, const uint8_t *bytes, uint64_t length);

test_owner *owner_start(const kvx_transport_ops *ops, const owner_traits *traits);
/* Give an order and take the answer; false: the owner's process has ended. */
bool owner_order(test_owner *owner, test_order order);
/* Kill without waiting for it: it stays a zombie until owner_stop(). */
void owner_kill(test_owner *owner);
void owner_stop(test_owner *owner);
/* Used by the owner's process. */
bool owner_open(owner_state *state, const kvx_transport_ops *ops, test_offer *offer_out);
bool owner_obey(owner_state *state, test_order order, test_offer *offer_out);
void owner_state_close(owner_state *state);

test_reader *reader_open(const kvx_transport_ops *ops, const char *const *settings);
void reader_close(test_reader *reader);
bool reader_progress(test_reader *reader);
/* Progress until count reads have completed in all; fails the test when they never do. */
void reader_wait(test_reader *reader, uint32_t count);
/* Progress until nothing is left to do. */
void reader_drain(test_reader *reader);
/* Connect and probe; ep_out is set on KVX_OK. */
kvx_status reader_connect(
        test_reader *reader, const blob *address, char *why, size_t why_size, kvx_ep **ep_out);

test_pair pair_open(const char *const *settings);
void pair_close(test_pair *pair);
/* One read of one segment, with id, into local + local_off. */
kvx_status pair_get(test_pair *pair, uint64_t id, uint32_t region, uint64_t remote_off,
        uint64_t local_off, uint64_t length);

#endif
