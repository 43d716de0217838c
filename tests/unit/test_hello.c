/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>

#include "unit/wire_samples.h"

static void expect_same_blob(kvx_blob a, kvx_blob b)
{
    cr_assert_eq(a.size, b.size);
    if (a.size > 0)
        cr_assert_arr_eq(a.data, b.data, a.size);
}

static void expect_same_shape(const kvx_hello *a, const kvx_hello *b)
{
    cr_assert_eq(a->component_count, b->component_count);
    for (uint32_t i = 0; i < a->component_count; i++) {
        cr_assert_str_eq(a->components[i].name, b->components[i].name);
        cr_assert_str_eq(a->components[i].axis, b->components[i].axis);
        cr_assert_eq(a->components[i].page_tokens, b->components[i].page_tokens);
        cr_assert_eq(a->components[i].page_count, b->components[i].page_count);
    }
    cr_assert_eq(a->region_count, b->region_count);
    for (uint32_t i = 0; i < a->region_count; i++) {
        cr_assert_eq(a->regions[i].component, b->regions[i].component);
        cr_assert_str_eq(a->regions[i].role, b->regions[i].role);
        cr_assert_eq(a->regions[i].layer, b->regions[i].layer);
        cr_assert_eq(a->regions[i].page_bytes, b->regions[i].page_bytes);
        cr_assert_eq(a->regions[i].page_stride, b->regions[i].page_stride);
    }
}

static void expect_same_hello(const kvx_hello *a, const kvx_hello *b)
{
    cr_assert_eq(a->version_min, b->version_min);
    cr_assert_eq(a->version_max, b->version_max);
    cr_assert_eq(a->auth_kind, b->auth_kind);
    expect_same_blob(a->auth, b->auth);
    cr_assert_eq(a->epoch, b->epoch);
    cr_assert_eq(a->rank_wanted, b->rank_wanted);
    cr_assert_eq(a->rank, b->rank);
    cr_assert_eq(a->ranks, b->ranks);
    cr_assert_str_eq(a->compat, b->compat);
    expect_same_shape(a, b);
    cr_assert_eq(a->path_count, b->path_count);
    for (uint32_t i = 0; i < a->path_count; i++) {
        cr_assert_eq(a->paths[i].rail, b->paths[i].rail);
        cr_assert_str_eq(a->paths[i].transport, b->paths[i].transport);
        expect_same_blob(a->paths[i].address, b->paths[i].address);
        for (uint32_t j = 0; j < a->region_count; j++)
            expect_same_blob(a->paths[i].keys[j], b->paths[i].keys[j]);
    }
}

static kvx_status encode(const kvx_hello *hello, kvx_buffer *out)
{
    const kvx_message message = { .type = KVX_MESSAGE_HELLO, .hello = hello };

    kvx_buffer_reset(out);
    return kvx_wire_encode(&message, out);
}

/* Decode what encode() wrote. */
static kvx_status decode(const kvx_buffer *frame, kvx_hello **hello_out)
{
    kvx_message message = { 0 };

    const kvx_status st = kvx_wire_decode(frame->data, (uint32_t)frame->size, &message);
    if (st == KVX_OK)
        *hello_out = message.hello_in;
    return st;
}

Test(hello, a_hello_and_its_copy_come_back_as_they_were_sent)
{
    uint64_t state = test_seed();
    kvx_buffer out = { 0 };

    for (uint64_t round = 0; round < test_rounds(300); round++) {
        kvx_hello *came = NULL;
        kvx_hello *copy = NULL;
        kvx_hello *sent = sample_hello(&state);
        cr_assert_eq(encode(sent, &out), KVX_OK);
        cr_assert_eq(decode(&out, &came), KVX_OK);
        expect_same_hello(sent, came);
        cr_assert_eq(kvx_hello_copy(came, &copy), KVX_OK);
        kvx_hello_destroy(&came);
        expect_same_hello(sent, copy);
        kvx_hello_destroy(&copy);
        kvx_hello_destroy(&sent);
    }
    kvx_buffer_fini(&out);
}

Test(hello, destroy_takes_null_and_clears_the_pointer)
{
    uint64_t state = test_seed();
    kvx_hello *hello = sample_hello(&state);

    kvx_hello_destroy(NULL);
    kvx_hello_destroy(&hello);
    cr_expect_null(hello);
    kvx_hello_destroy(&hello);
}

Test(hello, keys_that_do_not_fit_the_handshake_have_no_space)
{
    uint64_t state = test_seed();
    kvx_hello *hello = sample_hello_sized(&state, 400, 1024);
    kvx_buffer out = { 0 };

    hello->path_count = 0;
    cr_expect_eq(encode(hello, &out), KVX_OK);
    kvx_hello_destroy(&hello);
    for (;;) {
        hello = sample_hello_sized(&state, 400, 1024);
        if (hello->path_count > 2)
            break;
        kvx_hello_destroy(&hello);
    }
    kvx_buffer_reset(&out);
    cr_expect_eq(encode(hello, &out), KVX_NO_SPACE);
    cr_expect_eq(kvx_buffer_length(&out), (size_t)0);
    kvx_hello_destroy(&hello);
    kvx_buffer_fini(&out);
}

Test(hello, regions_that_do_not_fit_the_handshake_have_no_space)
{
    uint64_t state = test_seed();
    kvx_hello *hello = sample_hello_sized(&state, KVX_REGION_MAX, 0);
    kvx_buffer out = { 0 };

    hello->path_count = 0;
    cr_expect_eq(encode(hello, &out), KVX_NO_SPACE);
    cr_expect_eq(kvx_buffer_length(&out), (size_t)0);
    kvx_hello_destroy(&hello);
    kvx_buffer_fini(&out);
}

/* One way to spoil a hello. */
typedef void (*spoiler)(kvx_hello *hello);

static void no_version(kvx_hello *hello)
{
    hello->version_min = 0;
}

static void versions_crossed(kvx_hello *hello)
{
    hello->version_min = hello->version_max + 1;
}

static void auth_without_kind(kvx_hello *hello)
{
    hello->auth_kind = 0;
    hello->auth = (kvx_blob){ (const uint8_t *)"x", 1 };
}

static void compat_with_control(kvx_hello *hello)
{
    hello->compat[1] = '\n';
}

static void compat_without_end(kvx_hello *hello)
{
    memset(hello->compat, 'x', sizeof(hello->compat));
}

static void component_without_name(kvx_hello *hello)
{
    hello->components[0].name[0] = '\0';
}

static void component_without_pages(kvx_hello *hello)
{
    hello->components[0].page_count = 0;
}

static void too_many_components(kvx_hello *hello)
{
    hello->component_count = KVX_COMPONENT_MAX + 1;
}

static void foreign_component(kvx_hello *hello)
{
    hello->regions[0].component = hello->component_count;
}

static void empty_page(kvx_hello *hello)
{
    hello->regions[0].page_bytes = 0;
}

static void short_stride(kvx_hello *hello)
{
    hello->regions[0].page_stride = hello->regions[0].page_bytes - 1;
}

static void endless_stride(kvx_hello *hello)
{
    hello->components[hello->regions[0].component].page_count = 3;
    hello->regions[0].page_stride = UINT64_MAX / 2;
}

static void key_too_large(kvx_hello *hello)
{
    hello->paths[0].keys[0].size = KVX_BLOB_MAX + 1;
}

static void too_many_paths(kvx_hello *hello)
{
    hello->path_count = KVX_PATH_MAX + 1;
}

static kvx_hello *hello_with_all(uint64_t *state)
{
    for (;;) {
        kvx_hello *hello = sample_hello(state);
        if (hello->region_count > 0 && hello->path_count > 0)
            return hello;
        kvx_hello_destroy(&hello);
    }
}

Test(hello, a_spoilt_hello_is_not_sent)
{
    static const struct {
        const char *what;
        spoiler spoil;
    } rows[] = {
        { "no version", no_version },
        { "versions crossed", versions_crossed },
        { "auth without kind", auth_without_kind },
        { "compat with a control character", compat_with_control },
        { "compat without an end", compat_without_end },
        { "component without name", component_without_name },
        { "component without pages", component_without_pages },
        { "too many components", too_many_components },
        { "region of no component", foreign_component },
        { "empty page", empty_page },
        { "stride below page", short_stride },
        { "span overflows", endless_stride },
        { "key too large", key_too_large },
        { "too many paths", too_many_paths },
    };
    uint64_t state = test_seed();
    kvx_buffer out = { 0 };

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        kvx_hello *hello = hello_with_all(&state);
        rows[i].spoil(hello);
        cr_expect_eq(encode(hello, &out), KVX_INVALID, "%s", rows[i].what);
        kvx_hello_destroy(&hello);
    }
    kvx_buffer_fini(&out);
}

Test(hello, a_frame_over_the_handshake_limit_is_refused)
{
    const uint32_t length = KVX_WIRE_HELLO_MAX + 1;
    uint8_t *frame = calloc(1, length);
    const uint8_t header[] = { (uint8_t)length, (uint8_t)(length >> 8), (uint8_t)(length >> 16), 0,
        KVX_MESSAGE_HELLO, 0, 'K', 'V', 'K', 'V', 'E', 'X', 'P', 'R', 'E', 'S', 9, 0, 0, 0, 9 };
    kvx_message message = { 0 };

    cr_assert_not_null(frame);
    memcpy(frame, header, sizeof(header));
    cr_expect_eq(kvx_wire_decode(frame, length, &message), KVX_PROTOCOL);
    free(frame);
}

Test(hello, another_magic_is_refused)
{
    uint64_t state = test_seed();
    kvx_hello *hello = sample_hello(&state);
    kvx_hello *came = NULL;
    kvx_buffer out = { 0 };

    cr_assert_eq(encode(hello, &out), KVX_OK);
    out.data[KVX_WIRE_HEADER_BYTES] = 'k';
    cr_expect_eq(decode(&out, &came), KVX_PROTOCOL);
    cr_expect_null(came);
    kvx_hello_destroy(&hello);
    kvx_buffer_fini(&out);
}

/* --- matching ------------------------------------------------------------------------------- */

static kvx_hello_region regions_of_two_layers[] = {
    { 0, "k", 0, 4096, 4096 },
    { 0, "v", 0, 4096, 4096 },
    { 0, "k", 1, 4096, 4096 },
    { 0, "v", 1, 4096, 4096 },
};

static kvx_hello_region regions_swapped[] = {
    { 0, "v", 0, 4096, 4096 },
    { 0, "k", 0, 4096, 4096 },
    { 0, "k", 1, 4096, 4096 },
    { 0, "v", 1, 4096, 4096 },
};

static kvx_hello_region regions_of_half_pages[] = {
    { 0, "k", 0, 2048, 4096 },
    { 0, "v", 0, 4096, 4096 },
    { 0, "k", 1, 4096, 4096 },
    { 0, "v", 1, 4096, 4096 },
};

static kvx_hello_region regions_spread[] = {
    { 0, "k", 0, 4096, 8192 },
    { 0, "v", 0, 4096, 8192 },
    { 0, "k", 1, 4096, 8192 },
    { 0, "v", 1, 4096, 8192 },
};

/* Neither destroyed nor encoded: what it points at is static. */
static kvx_hello plain_hello(void)
{
    return (kvx_hello){
        .version_min = 1,
        .version_max = 1,
        .rank_wanted = 3,
        .rank = 3,
        .ranks = 8,
        .compat = "llama-70b bf16",
        .component_count = 1,
        .components = { { "kv", "token,head", 64, 1000 } },
        .region_count = 4,
        .regions = regions_of_two_layers,
        .path_count = 2,
        .paths = { { .rail = 0, .transport = "cma" }, { .rail = 1, .transport = "loopback" } },
    };
}

Test(hello, sides_with_other_page_counts_strides_rails_and_path_order_match)
{
    const kvx_hello ours = plain_hello();
    kvx_hello theirs = plain_hello();
    char why[256] = "untouched";

    theirs.version_max = 5;
    theirs.components[0].page_count = 77;
    theirs.regions = regions_spread;
    theirs.path_count = 1;
    theirs.paths[0] = (kvx_hello_path){ .rail = 5, .transport = "loopback" };
    cr_expect_eq(kvx_hello_match(&ours, &theirs, true, why, sizeof(why)), KVX_OK);
    cr_expect_eq(kvx_hello_match(&ours, &theirs, false, why, sizeof(why)), KVX_OK);
    cr_expect_str_eq(why, "untouched");
}

static void expect_difference(const kvx_hello *theirs, bool wanted_here, const char *begin)
{
    const kvx_hello ours = plain_hello();
    char why[256] = "";

    cr_expect_eq(kvx_hello_match(&ours, theirs, wanted_here, why, sizeof(why)), KVX_MISMATCH);
    cr_expect_eq(strncmp(why, begin, strlen(begin)), 0, "\"%s\" is not \"%s\"", why, begin);
    /* The remedy follows. */
    cr_expect_not_null(strchr(why, ';'), "%s", why);
    cr_expect_eq(kvx_hello_match(&ours, theirs, wanted_here, NULL, 0), KVX_MISMATCH);
}

Test(hello, who_they_are_is_compared_and_the_difference_is_named)
{
    kvx_hello theirs = plain_hello();

    theirs.auth_kind = 3;
    expect_difference(&theirs, true, "authentication kind 3 is not supported");
    theirs = plain_hello();
    theirs.ranks = 4;
    expect_difference(&theirs, true, "ranks: ours 8, theirs 4");
    theirs = plain_hello();
    theirs.rank_wanted = 5;
    expect_difference(&theirs, true, "rank: ours 3, theirs wants 5");
    theirs = plain_hello();
    theirs.rank = 5;
    expect_difference(&theirs, false, "rank: ours wants 3, theirs 5");
    theirs = plain_hello();
    (void)snprintf(theirs.compat, sizeof(theirs.compat), "llama-70b fp8");
    expect_difference(&theirs, true, "compat: ours \"llama-70b bf16\", theirs \"llama-70b fp8\"");
    theirs = plain_hello();
    theirs.path_count = 1;
    (void)snprintf(theirs.paths[0].transport, KVX_NAME_MAX, "ucp");
    expect_difference(&theirs, true, "transport: ours cma loopback, theirs ucp");
    theirs.path_count = 0;
    expect_difference(&theirs, true, "transport: ours cma loopback, theirs none");
}

Test(hello, what_the_cache_looks_like_is_compared_and_the_difference_is_named)
{
    kvx_hello theirs = plain_hello();

    theirs.component_count = 2;
    expect_difference(&theirs, true, "components: ours 1, theirs 2");
    theirs = plain_hello();
    (void)snprintf(theirs.components[0].name, KVX_NAME_MAX, "state");
    expect_difference(&theirs, true, "name of component 0: ours kv, theirs state");
    theirs = plain_hello();
    theirs.components[0].page_tokens = 16;
    expect_difference(&theirs, true, "page_tokens of component kv: ours 64, theirs 16");
    theirs = plain_hello();
    (void)snprintf(theirs.components[0].axis, KVX_NAME_MAX, "head,token");
    expect_difference(
            &theirs, true, "axis of component kv: ours \"token,head\", theirs \"head,token\"");
    theirs = plain_hello();
    theirs.region_count = 2;
    expect_difference(&theirs, true, "regions: ours 4, theirs 2");
    theirs = plain_hello();
    theirs.regions = regions_swapped;
    expect_difference(&theirs, true,
            "region 0: ours k of layer 0 in component kv, theirs v of layer 0 in component kv");
    theirs = plain_hello();
    theirs.regions = regions_of_half_pages;
    expect_difference(&theirs, true, "page_bytes of region 0 (k, layer 0): ours 4096, theirs 2048");
}

Test(hello, another_protocol_version_decodes_to_its_range_and_is_rejected_by_name)
{
    static const uint8_t frame[] = { 35, 0, 0, 0, KVX_MESSAGE_HELLO, 0, 'K', 'V', 'K', 'V', 'E',
        'X', 'P', 'R', 'E', 'S', 2, 0, 0, 0, 3, 0, 0, 0, 'w', 'h', 'a', 't', ' ', 'e', 'v', 'e',
        'r', '?', '!' };
    kvx_message message = { 0 };

    cr_assert_eq(kvx_wire_decode(frame, sizeof(frame), &message), KVX_OK);
    cr_expect_eq(message.hello_in->version_min, 2u);
    cr_expect_eq(message.hello_in->version_max, 3u);
    cr_expect_eq(message.hello_in->region_count, 0u);
    cr_expect_eq(message.hello_in->path_count, 0u);
    expect_difference(message.hello_in, true, "protocol version: ours 1-1, theirs 2-3");
    kvx_hello_destroy(&message.hello_in);
}

Test(hello, a_newer_peer_that_still_speaks_our_version_is_decoded_whole)
{
    uint64_t state = test_seed();
    kvx_hello *hello = sample_hello(&state);
    kvx_hello *came = NULL;
    kvx_buffer out = { 0 };

    hello->version_max = 7;
    cr_assert_eq(encode(hello, &out), KVX_OK);
    cr_assert_eq(decode(&out, &came), KVX_OK);
    expect_same_hello(hello, came);
    kvx_hello_destroy(&came);
    kvx_hello_destroy(&hello);
    kvx_buffer_fini(&out);
}
