/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include "contract.h"

#include "base/random.h"
#include "transport/domain.h"

/* Far more progress calls than anything here takes. */
#define PROGRESS_MAX 2000000

const kvx_transport_ops *transport_under_test(void)
{
    const char *const name = getenv("KVX_TEST_TRANSPORT");
    cr_assert_not_null(name, "set KVX_TEST_TRANSPORT to the name of a transport");
    const kvx_transport_ops *const ops = kvx_transport_find(name);
    cr_assert_not_null(ops, "transport %s was not built", name);
    return ops;
}

static const char *reader_setting(void *arg, const char *key)
{
    const test_reader *const reader = arg;
    const char *const *pairs = reader->settings;
    for (; pairs != NULL && pairs[0] != NULL; pairs += 2) {
        if (strcmp(pairs[0], key) == 0)
            return pairs[1];
    }
    const struct kvx_transport_setting *row = reader->ops->settings;
    while (row != NULL && row->key != NULL && strcmp(row->key, key) != 0)
        row++;
    return row != NULL ? row->default_value : NULL;
}

static void reader_completed(void *arg, uint64_t id, kvx_status status)
{
    test_reader *const reader = arg;
    cr_assert(reader->is_in_progress, "completed outside of progress");
    cr_assert_lt(id, COMPLETED_MAX, "an id that was never given");
    reader->times[id]++;
    cr_expect_eq(reader->times[id], 1, "read %llu completed twice", (unsigned long long)id);
    reader->status[id] = status;
    reader->completed_count++;
}

static kvx_status reader_authorize(void *arg, const kvx_served_range *range)
{
    (void)arg;
    (void)range;
    return KVX_REFUSED;
}

static void reader_served_end(void *arg, uint64_t peer, uint64_t cookie)
{
    (void)arg;
    (void)peer;
    (void)cookie;
    cr_assert_fail("an end of what was never permitted");
}

test_reader *reader_open(const kvx_transport_ops *ops, const char *const *settings)
{
    test_reader *const reader = calloc(1, sizeof(*reader));
    cr_assert_not_null(reader);
    reader->ops = ops;
    reader->settings = settings;
    kvx_domain_params params = {
        .struct_size = sizeof(params),
        .setting = reader_setting,
        .completed = reader_completed,
        .authorize = reader_authorize,
        .served_end = reader_served_end,
        .arg = reader,
    };
    cr_assert_eq(kvx_random(&params.identity), KVX_OK);
    cr_assert_eq(kvx_domain_open(ops, &params, &reader->domain, &reader->limits), KVX_OK);
    reader->local = malloc(LOCAL_BYTES);
    cr_assert_not_null(reader->local);
    memset(reader->local, UNTOUCHED, LOCAL_BYTES);
    cr_assert_eq(kvx_domain_reg(ops, reader->domain, reader->local, LOCAL_BYTES, KVX_MEMORY_HOST,
                         &reader->mr),
            KVX_OK);
    return reader;
}

void reader_close(test_reader *reader)
{
    reader->ops->unreg(reader->mr);
    reader->ops->close(reader->domain);
    free(reader->local);
    free(reader);
}

bool reader_progress(test_reader *reader)
{
    test_owner *const owner = reader->owner;
    reader->is_in_progress = true;
    bool is_busy = reader->ops->progress(reader->domain);
    reader->is_in_progress = false;
    if (owner != NULL && owner->pid == 0 && owner->state.domain != NULL)
        is_busy |= owner->state.ops->progress(owner->state.domain);
    return is_busy;
}

void reader_wait(test_reader *reader, uint32_t count)
{
    for (uint32_t i = 0; i < PROGRESS_MAX && reader->completed_count < count; i++)
        (void)reader_progress(reader);
    cr_assert_eq(reader->completed_count, count, "%u of %u reads completed",
            reader->completed_count, count);
}

void reader_drain(test_reader *reader)
{
    uint32_t calls = 0;
    while (reader_progress(reader))
        cr_assert_lt(calls++, PROGRESS_MAX, "progress never ends");
}

kvx_status reader_connect(
        test_reader *reader, const blob *address, char *why, size_t why_size, kvx_ep **ep_out)
{
    kvx_ep *ep;
    kvx_ep_info info = { 0 };
    kvx_status status = reader->ops->connect(
            reader->domain, address->data, address->length, why, why_size, &ep);
    if (status != KVX_OK)
        return status;
    do {
        (void)reader_progress(reader);
        status = reader->ops->probe(ep, why, why_size, &info);
    } while (status == KVX_AGAIN);
    if (status != KVX_OK) {
        while (reader->ops->disconnect(ep) == KVX_AGAIN)
            (void)reader_progress(reader);
        return status;
    }
    cr_expect_neq(info.lane[0], '\0', "the probe names the lane");
    *ep_out = ep;
    return KVX_OK;
}

test_pair pair_open(const char *const *settings)
{
    const kvx_transport_ops *const ops = transport_under_test();
    const owner_traits plain = { 0 };
    char why[256] = "";
    test_pair pair = { .owner = owner_start(ops, &plain) };
    pair.reader = reader_open(ops, settings);
    pair.reader->owner = pair.owner;
    cr_assert_eq(reader_connect(pair.reader, &pair.owner->offer.address, why, sizeof(why), &pair.ep),
            KVX_OK, "%s", why);
    for (uint32_t i = 0; i < REGION_COUNT; i++) {
        const blob *const key = &pair.owner->offer.keys[i];
        cr_assert_eq(ops->import_key(pair.ep, key->data, key->length, REGION_BYTES, &pair.rkeys[i]),
                KVX_OK);
    }
    return pair;
}

void pair_close(test_pair *pair)
{
    const kvx_transport_ops *const ops = pair->reader->ops;
    for (uint32_t i = 0; i < REGION_COUNT; i++)
        ops->forget_key(pair->rkeys[i]);
    while (pair->ep != NULL && ops->disconnect(pair->ep) == KVX_AGAIN)
        (void)reader_progress(pair->reader);
    reader_close(pair->reader);
    owner_stop(pair->owner);
}

kvx_status pair_get(test_pair *pair, uint64_t id, uint32_t region, uint64_t remote_off,
        uint64_t local_off, uint64_t length)
{
    uint32_t taken = 0;
    const kvx_segment segment = { pair->reader->local + local_off, length };
    const kvx_read read = {
        .id = id,
        .rkey = pair->rkeys[region],
        .remote_off = remote_off,
        .length_bytes = length,
        .segments = &segment,
        .segment_count = 1,
    };
    const kvx_status status =
            kvx_domain_get(pair->reader->ops, &pair->reader->limits, pair->ep, &read, 1, &taken);
    cr_expect_eq(taken, status == KVX_OK ? 1 : 0);
    return status;
}
