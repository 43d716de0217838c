/* SPDX-License-Identifier: Apache-2.0 */
/* What all transports share: registry, settings, frames and keys, the queue of reads; and what
 * loopback alone promises. */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kvx/transport.h"

#include "seed.h"
#include "transport/blob.h"
#include "transport/domain.h"
#include "transport/key.h"
#include "transport/queue.h"
#include "transport/setting.h"

Test(transport, transports_are_listed_once_and_found_by_name)
{
    size_t count = 0;
    for (const kvx_transport_ops *ops; (ops = kvx_transport_at(count)) != NULL; count++) {
        cr_expect_eq(kvx_transport_find(ops->name), ops);
        cr_expect_neq(ops->help[0], '\0');
    }
    cr_expect_null(kvx_transport_at(count + 1));
    cr_expect_null(kvx_transport_find("carrier-pigeon"));
    cr_expect_null(kvx_transport_find(""));
    cr_expect_null(kvx_transport_find(NULL));
}

Test(transport, loopback_is_the_last_choice)
{
    size_t last = 0;
    while (kvx_transport_at(last + 1) != NULL)
        last++;
    const kvx_transport_ops *const loopback = kvx_transport_find("loopback");
    if (loopback != NULL)
        cr_expect_eq(kvx_transport_at(last), loopback);
}

Test(transport, read_modes_have_names)
{
    cr_expect_str_eq(kvx_read_mode_name(KVX_READ_ONE_SIDED), "one-sided");
    cr_expect_str_eq(kvx_read_mode_name(KVX_READ_SERVED), "served");
    cr_expect_str_eq(kvx_read_mode_name((kvx_read_mode)9), "unknown");
}

static const char *const *given;

static const char *setting_given(void *arg, const char *key)
{
    (void)arg;
    (void)key;
    return *given;
}

static const struct kvx_transport_setting rows[] = {
    { "size", "8KiB", "a size", 4096, UINT64_C(1) << 30 },
    { NULL, NULL, NULL, 0, 0 },
};

Test(transport, settings_are_numbers_with_units_within_limits)
{
    static const struct {
        const char *text;
        uint64_t value; /* 0: refused */
    } cases[] = {
        { "4096", 4096 },
        { "4KiB", 4096 },
        { "4 KiB", 4096 },
        { "1GiB", UINT64_C(1) << 30 },
        { "3MiB", 3 << 20 },
        { NULL, 8192 },
        { "4095", 0 },
        { "2GiB", 0 },
        { "", 0 },
        { "KiB", 0 },
        { "4kib", 0 },
        { "4KiBs", 0 },
        { "-1", 0 },
        { "+4096", 0 },
        { " 4096", 0 },
        { "0x1000", 0 },
        { "18446744073709551616", 0 },
        { "18446744073709551615GiB", 0 },
    };
    const kvx_transport_ops ops = { .name = "test", .settings = rows };
    const kvx_domain_params params = { .setting = setting_given };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t value = 0;
        given = &cases[i].text;
        cr_expect_eq(kvx_setting_number(&ops, &params, "size", &value),
                cases[i].value != 0 ? KVX_OK : KVX_INVALID, "case %zu", i);
        cr_expect_eq(value, cases[i].value, "case %zu", i);
    }
    uint64_t value = 5;
    cr_expect_eq(kvx_setting_number(&ops, &params, "other", &value), KVX_INVALID);
    cr_expect_eq(value, 5);
}

Test(transport, a_frame_gives_back_what_was_put_in)
{
    uint8_t data[64];
    size_t length = 0;
    kvx_blob blob;
    kvx_reader reader;
    kvx_blob_begin(&blob, data, sizeof(data), 0x11223344);
    kvx_blob_u32(&blob, 7);
    kvx_blob_u64(&blob, UINT64_MAX - 1);
    kvx_blob_bytes(&blob, "abc", 3);
    cr_assert_eq(kvx_blob_end(&blob, &length), KVX_OK);
    cr_expect_eq(length, 4 + 4 + 8 + 3 + 8);
    cr_assert_eq(kvx_blob_open(&reader, data, length, 0x11223344), KVX_OK);
    cr_expect_eq(kvx_read_u32(&reader), 7);
    cr_expect_eq(kvx_read_u64(&reader), UINT64_MAX - 1);
    cr_expect_arr_eq(kvx_read_bytes(&reader, 3), "abc", 3);
    cr_expect(kvx_reader_is_done(&reader));
    cr_expect_eq(kvx_blob_open(&reader, data, length, 0x11223345), KVX_PROTOCOL);
    cr_expect_eq(kvx_blob_open(&reader, NULL, 0, 0x11223344), KVX_PROTOCOL);
}

Test(transport, a_frame_that_does_not_fit_is_refused)
{
    for (size_t size = 0; size < 19; size++) {
        uint8_t data[20];
        size_t length = 99;
        kvx_blob blob;
        memset(data, 0xAA, sizeof(data));
        kvx_blob_begin(&blob, data, size, 1);
        kvx_blob_u64(&blob, 2);
        cr_expect_eq(kvx_blob_end(&blob, &length), KVX_NO_SPACE);
        cr_expect_eq(length, 99);
        cr_expect_eq(data[size], 0xAA, "wrote past the end");
    }
}

Test(transport, no_changed_byte_of_a_random_key_goes_unseen)
{
    uint64_t state = test_seed();
    for (int round = 0; round < 200; round++) {
        const kvx_key key = { test_random(&state), test_random(&state), test_random(&state) };
        uint8_t data[64];
        size_t length = 0;
        kvx_key back = { 0 };
        cr_assert_eq(kvx_key_pack(&key, 42, data, sizeof(data), &length), KVX_OK);
        cr_assert_eq(
                kvx_key_unpack(data, length, 42, key.identity, key.length_bytes, &back), KVX_OK);
        cr_expect_eq(back.handle, key.handle);
        const size_t at = test_random_below(&state, length);
        data[at] ^= (uint8_t)(1 + test_random_below(&state, 255));
        cr_expect_eq(kvx_key_unpack(data, length, 42, key.identity, key.length_bytes, &back),
                KVX_PROTOCOL);
    }
}

Test(transport, a_key_is_for_one_domain_and_one_length)
{
    const kvx_key key = { .identity = 1, .handle = 2, .length_bytes = 3 };
    uint8_t data[64];
    size_t length = 0;
    kvx_key back = { 0 };
    cr_assert_eq(kvx_key_pack(&key, 42, data, sizeof(data), &length), KVX_OK);
    cr_expect_eq(kvx_key_unpack(data, length, 42, 9, 3, &back), KVX_PROTOCOL);
    cr_expect_eq(kvx_key_unpack(data, length, 42, 1, 4, &back), KVX_INVALID);
    cr_expect_eq(kvx_key_unpack(data, length, 43, 1, 3, &back), KVX_PROTOCOL);
    cr_expect_eq(back.handle, 0);
}

#define POOL_READS    16
#define POOL_SEGMENTS 40
#define QUEUES        3

/* The queue beside a plain model: what each read still lacks, in order. */
typedef struct queue_model {
    uint64_t ids[POOL_READS];
    uint64_t left[POOL_READS];
    uint32_t count;
} queue_model;

static void push_random(kvx_read_pool *pool, kvx_read_queue *queue, queue_model *model,
        uint64_t *state, uint64_t id)
{
    static char memory[1024];
    kvx_segment segments[6];
    kvx_read read = { .id = id, .segments = segments };
    read.segment_count = 1 + (uint32_t)test_random_below(state, 6);
    for (uint32_t i = 0; i < read.segment_count; i++) {
        segments[i] = (kvx_segment){ memory, 1 + test_random_below(state, 9) };
        read.length_bytes += segments[i].length_bytes;
    }
    if (!kvx_read_pool_has_room(pool, &read))
        return;
    kvx_read_queue_push(pool, queue, &read, 0, 0);
    model->ids[model->count] = id;
    model->left[model->count++] = read.length_bytes;
}

static void advance_random(
        kvx_read_pool *pool, kvx_read_queue *queue, queue_model *model, uint64_t *state)
{
    kvx_queued_read *const read = kvx_read_queue_first(pool, queue);
    const uint64_t bytes = 1 + test_random_below(state, read->left_bytes);
    cr_assert_eq(read->id, model->ids[0]);
    cr_assert_eq(read->left_bytes, model->left[0]);
    kvx_queued_read_advance(pool, read, bytes);
    model->left[0] -= bytes;
    if (model->left[0] > 0)
        return;
    cr_assert_eq(kvx_read_queue_pop(pool, queue), model->ids[0]);
    model->count--;
    memmove(model->ids, model->ids + 1, model->count * sizeof(model->ids[0]));
    memmove(model->left, model->left + 1, model->count * sizeof(model->left[0]));
}

Test(transport, queues_keep_order_and_lose_nothing)
{
    uint64_t state = test_seed();
    kvx_read_pool pool;
    kvx_read_queue queues[QUEUES] = { 0 };
    queue_model models[QUEUES] = { 0 };
    cr_assert_eq(kvx_read_pool_init(&pool, POOL_READS, POOL_SEGMENTS), KVX_OK);
    for (uint64_t step = 0; step < 100000; step++) {
        const uint64_t q = test_random_below(&state, QUEUES);
        const uint64_t what = test_random_below(&state, 40);
        cr_assert_eq(kvx_read_queue_is_empty(&queues[q]), models[q].count == 0);
        if (what == 0) {
            kvx_read_queue_clear(&pool, &queues[q]);
            models[q].count = 0;
        } else if (what < 18) {
            push_random(&pool, &queues[q], &models[q], &state, step);
        } else if (models[q].count > 0) {
            advance_random(&pool, &queues[q], &models[q], &state);
        }
    }
    for (uint64_t q = 0; q < QUEUES; q++)
        kvx_read_queue_clear(&pool, &queues[q]);
    cr_expect_eq(pool.read_free_count, POOL_READS);
    cr_expect_eq(pool.segment_free_count, POOL_SEGMENTS);
    cr_expect(kvx_read_pool_is_idle(&pool));
    cr_expect_null(kvx_read_pool_turn(&pool));
    kvx_read_pool_fini(&pool);
}

Test(transport, queues_that_have_reads_take_turns)
{
    kvx_read_pool pool;
    kvx_read_queue queues[QUEUES] = { 0 };
    char byte;
    const kvx_segment segment = { &byte, 1 };
    const kvx_read read = { .length_bytes = 1, .segments = &segment, .segment_count = 1 };
    cr_assert_eq(kvx_read_pool_init(&pool, POOL_READS, POOL_SEGMENTS), KVX_OK);
    kvx_read_queue_push(&pool, &queues[0], &read, 0, 0);
    kvx_read_queue_push(&pool, &queues[2], &read, 0, 0);
    cr_expect_eq(kvx_read_pool_turn(&pool), &queues[0]);
    cr_expect_eq(kvx_read_pool_turn(&pool), &queues[2]);
    cr_expect_eq(kvx_read_pool_turn(&pool), &queues[0]);
    kvx_read_pool_fini(&pool);
}

static kvx_status last_status;

static void completed(void *arg, uint64_t id, kvx_status status)
{
    (void)arg;
    (void)id;
    last_status = status;
}

static kvx_status authorize(void *arg, const kvx_served_range *range)
{
    (void)arg;
    (void)range;
    return KVX_REFUSED;
}

static void served_end(void *arg, uint64_t peer, uint64_t cookie)
{
    (void)arg;
    (void)peer;
    (void)cookie;
}

static kvx_domain_params params_make(uint64_t identity)
{
    return (kvx_domain_params){
        .struct_size = sizeof(kvx_domain_params),
        .identity = identity,
        .completed = completed,
        .authorize = authorize,
        .served_end = served_end,
    };
}

static const kvx_transport_ops *loopback_get(void)
{
    const kvx_transport_ops *const ops = kvx_transport_find("loopback");
    if (ops == NULL)
        cr_skip_test("loopback was not built");
    return ops;
}

Test(transport, a_domain_without_what_it_needs_is_refused)
{
    const kvx_transport_ops *const ops = loopback_get();
    kvx_domain *domain = NULL;
    kvx_domain_limits limits;
    kvx_domain_params params = params_make(0);
    cr_expect_eq(kvx_domain_open(ops, &params, &domain, &limits), KVX_INVALID);
    params = params_make(1);
    params.completed = NULL;
    cr_expect_eq(kvx_domain_open(ops, &params, &domain, &limits), KVX_INVALID);
    params = params_make(1);
    params.struct_size--;
    cr_expect_eq(kvx_domain_open(ops, &params, &domain, &limits), KVX_INVALID);
    cr_expect_null(domain);
}

Test(transport, memory_that_cannot_be_read_is_not_registered)
{
    const kvx_transport_ops *const ops = loopback_get();
    const kvx_domain_params params = params_make(1);
    kvx_domain *domain;
    kvx_domain_limits limits;
    kvx_mr *mr = NULL;
    char bytes[8];
    cr_assert_eq(kvx_domain_open(ops, &params, &domain, &limits), KVX_OK);
    cr_expect_eq(kvx_domain_reg(ops, domain, NULL, 8, KVX_MEMORY_HOST, &mr), KVX_INVALID);
    cr_expect_eq(kvx_domain_reg(ops, domain, bytes, 0, KVX_MEMORY_HOST, &mr), KVX_INVALID);
    cr_expect_eq(kvx_domain_reg(ops, domain, bytes, 8, KVX_MEMORY_ROCM, &mr), KVX_UNSUPPORTED);
    cr_expect_eq(kvx_domain_reg(ops, domain, bytes, 8, (kvx_memory_kind)64, &mr), KVX_UNSUPPORTED);
    cr_expect_null(mr);
    ops->close(domain);
}

Test(loopback, an_identity_is_used_once)
{
    const kvx_transport_ops *const ops = loopback_get();
    const kvx_domain_params params = params_make(5);
    kvx_domain *first;
    kvx_domain *second = NULL;
    cr_assert_eq(ops->open(&params, &first), KVX_OK);
    cr_expect_eq(ops->open(&params, &second), KVX_BUSY);
    cr_expect_null(second);
    ops->close(first);
    cr_assert_eq(ops->open(&params, &second), KVX_OK);
    ops->close(second);
}

Test(loopback, another_process_is_refused_with_the_remedy)
{
    const kvx_transport_ops *const ops = loopback_get();
    const kvx_domain_params params = params_make(5);
    kvx_domain *domain;
    uint8_t address[KVX_BLOB_MAX];
    size_t length;
    cr_assert_eq(ops->open(&params, &domain), KVX_OK);
    cr_assert_eq(ops->address(domain, address, sizeof(address), &length), KVX_OK);
    const pid_t child = fork();
    if (child == 0) {
        char why[128] = "";
        kvx_ep *ep;
        const kvx_status status = ops->connect(domain, address, length, why, sizeof(why), &ep);
        _exit(status == KVX_UNREACHABLE && strstr(why, "transport = cma") != NULL ? 0 : 1);
    }
    int status = -1;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_expect_eq(status, 0);
    ops->close(domain);
}

Test(loopback, a_registration_that_ended_is_not_read)
{
    const kvx_transport_ops *const ops = loopback_get();
    const kvx_domain_params params = params_make(5);
    kvx_domain *domain;
    kvx_mr *mr;
    kvx_ep *ep;
    kvx_ep_info info;
    kvx_rkey *rkey;
    uint8_t address[KVX_BLOB_MAX];
    uint8_t key[KVX_BLOB_MAX];
    size_t length;
    char memory[2][8] = { "source", "target" };
    uint32_t taken;
    char why[128];
    cr_assert_eq(ops->open(&params, &domain), KVX_OK);
    cr_assert_eq(ops->reg(domain, memory[0], 8, KVX_MEMORY_HOST, &mr), KVX_OK);
    cr_assert_eq(ops->address(domain, address, sizeof(address), &length), KVX_OK);
    cr_assert_eq(ops->connect(domain, address, length, why, sizeof(why), &ep), KVX_OK);
    const kvx_segment segment = { memory[1], 8 };
    kvx_read read = { .length_bytes = 8, .segments = &segment, .segment_count = 1 };
    cr_assert_eq(ops->pack_key(mr, key, sizeof(key), &length), KVX_OK);
    cr_assert_eq(ops->import_key(ep, key, length, 8, &rkey), KVX_OK);
    read.rkey = rkey;
    cr_expect_eq(ops->get(ep, &read, 1, &taken), KVX_INVALID, "not probed yet");
    cr_assert_eq(ops->probe(ep, why, sizeof(why), &info), KVX_OK);
    cr_assert_eq(ops->get(ep, &read, 1, &taken), KVX_OK);
    ops->unreg(mr);
    while (ops->progress(domain))
        continue;
    cr_expect_eq(last_status, KVX_READ_FAILED);
    cr_expect_str_eq(memory[1], "target");
    ops->forget_key(rkey);
    cr_expect_eq(ops->disconnect(ep), KVX_OK);
    ops->close(domain);
}
