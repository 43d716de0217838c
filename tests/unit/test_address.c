/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include "session/address.h"
#include "support/seed.h"

static kvx_address address;
static char why[256];

static kvx_status parse(const char *text)
{
    memset(&address, 0x5a, sizeof(address));
    memset(why, 0, sizeof(why));
    return kvx_address_parse(text, &address, why, sizeof(why));
}

Test(address, a_host_and_a_port_are_taken_apart)
{
    cr_assert_eq(parse("10.0.0.3:7000"), KVX_OK);
    cr_expect_not(address.is_unix);
    cr_expect_str_eq(address.host, "10.0.0.3");
    cr_expect_eq(address.port, 7000);
    cr_assert_eq(parse("prefill-1.example:0"), KVX_OK);
    cr_expect_str_eq(address.host, "prefill-1.example");
    cr_expect_eq(address.port, 0);
}

Test(address, an_ipv6_address_stands_in_brackets)
{
    cr_assert_eq(parse("[::1]:65535"), KVX_OK);
    cr_expect_str_eq(address.host, "::1");
    cr_expect_eq(address.port, 65535);
    cr_assert_eq(parse("[fe80::1%eth0]:1"), KVX_OK);
    cr_expect_str_eq(address.host, "fe80::1%eth0");
}

Test(address, a_unix_path_is_absolute_and_fits)
{
    char text[256] = "unix:";

    cr_assert_eq(parse("unix:/run/kvx.sock"), KVX_OK);
    cr_expect(address.is_unix);
    cr_expect_str_eq(address.path, "/run/kvx.sock");
    cr_expect_eq(parse("unix:kvx.sock"), KVX_INVALID);
    cr_expect_neq(strstr(why, "kvx.sock"), NULL, "%s", why);
    cr_expect_eq(parse("unix:"), KVX_INVALID);

    memset(text + 5, '/', KVX_ADDRESS_PATH_MAX - 1);
    cr_expect_eq(parse(text), KVX_OK);
    text[5 + KVX_ADDRESS_PATH_MAX - 1] = '/';
    cr_expect_eq(parse(text), KVX_INVALID);
    cr_expect_neq(strstr(why, "107"), NULL, "%s", why);
}

Test(address, what_is_wrong_is_named_and_the_output_is_left_alone)
{
    static const struct {
        const char *text;
        const char *says;
    } rows[] = {
        { "", "host:port" },
        { "localhost", "host:port" },
        { ":7000", "names no host" },
        { "[]:7000", "names no host" },
        { "[::1]", "host:port" },
        { "[::1]7000", "host:port" },
        { "[::1:7000", "host:port" },
        { "::1:7000", "brackets" },
        { "host:", "0 to 65535" },
        { "host:x", "0 to 65535" },
        { "host:70000", "0 to 65535" },
        { "host:99999999999999999999", "0 to 65535" },
        { "host:-1", "0 to 65535" },
        { "host: 1", "0 to 65535" },
        { "host:1 ", "0 to 65535" },
        { "host:http", "0 to 65535" },
    };
    kvx_address untouched;

    memset(&untouched, 0x5a, sizeof(untouched));
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        cr_expect_eq(parse(rows[i].text), KVX_INVALID, "'%s'", rows[i].text);
        cr_expect_neq(strstr(why, rows[i].says), NULL, "'%s': %s", rows[i].text, why);
        cr_expect_eq(memcmp(&address, &untouched, sizeof(address)), 0, "'%s'", rows[i].text);
    }
}

Test(address, a_host_name_has_a_longest_length)
{
    char text[KVX_ADDRESS_HOST_MAX + 16];

    memset(text, 'a', sizeof(text));
    strcpy(text + KVX_ADDRESS_HOST_MAX - 1, ":1");
    cr_expect_eq(parse(text), KVX_OK);
    cr_expect_eq(strlen(address.host), KVX_ADDRESS_HOST_MAX - 1);
    memset(text, 'a', sizeof(text));
    strcpy(text + KVX_ADDRESS_HOST_MAX, ":1");
    cr_expect_eq(parse(text), KVX_INVALID);
}

Test(address, numbers_and_wildcards_are_told_from_names)
{
    cr_assert_eq(parse("0.0.0.0:1"), KVX_OK);
    cr_expect(kvx_address_is_wildcard(&address));
    cr_expect(kvx_address_is_numeric(&address));
    cr_assert_eq(parse("[::]:1"), KVX_OK);
    cr_expect(kvx_address_is_wildcard(&address));
    cr_assert_eq(parse("127.0.0.1:1"), KVX_OK);
    cr_expect_not(kvx_address_is_wildcard(&address));
    cr_expect(kvx_address_is_numeric(&address));
    cr_assert_eq(parse("localhost:1"), KVX_OK);
    cr_expect_not(kvx_address_is_wildcard(&address));
    cr_expect_not(kvx_address_is_numeric(&address));
    cr_assert_eq(parse("unix:/a"), KVX_OK);
    cr_expect_not(kvx_address_is_wildcard(&address));
    cr_expect_not(kvx_address_is_numeric(&address));
}

Test(address, a_socket_s_address_reads_as_it_is_written)
{
    struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(80) };
    struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(81) };
    struct sockaddr_storage local;
    socklen_t length;
    char text[KVX_ADDRESS_TEXT_MAX];

    v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    kvx_address_format((struct sockaddr *)&v4, sizeof(v4), text, sizeof(text));
    cr_expect_str_eq(text, "127.0.0.1:80");
    v6.sin6_addr = in6addr_loopback;
    kvx_address_format((struct sockaddr *)&v6, sizeof(v6), text, sizeof(text));
    cr_expect_str_eq(text, "[::1]:81");
    kvx_address_of_path("/run/x", &local, &length);
    kvx_address_format((struct sockaddr *)&local, length, text, sizeof(text));
    cr_expect_str_eq(text, "unix:/run/x");
}

/* What is taken apart and written again is taken apart alike. */
Test(address, random_addresses_survive_a_round_trip)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789.-%";
    uint64_t random = test_seed();

    for (uint64_t round = 0; round < test_rounds(10000); round++) {
        char host[64] = { 0 };
        char text[128];
        const size_t length = 1 + test_random_below(&random, sizeof(host) - 1);
        for (size_t i = 0; i < length; i++)
            host[i] = letters[test_random_below(&random, sizeof(letters) - 1)];
        const unsigned port = (unsigned)test_random_below(&random, 65536);
        const bool in_brackets = test_random_below(&random, 2) == 0;
        (void)snprintf(text, sizeof(text), in_brackets ? "[%s]:%u" : "%s:%u", host, port);
        cr_assert_eq(parse(text), KVX_OK, "'%s': %s", text, why);
        cr_expect_str_eq(address.host, host);
        cr_expect_eq(address.port, port);
    }
}

/* Whatever comes, it is refused with a sentence or taken within its bounds. */
Test(address, random_bytes_are_refused_or_taken_whole)
{
    static const char bytes[] = "[]:/unix:%.0123456789abc \t";
    uint64_t random = test_seed();

    for (uint64_t round = 0; round < test_rounds(10000); round++) {
        char text[400] = { 0 };
        const size_t length = test_random_below(&random, sizeof(text));
        for (size_t i = 0; i < length; i++)
            text[i] = bytes[test_random_below(&random, sizeof(bytes) - 1)];
        if (parse(text) != KVX_OK)
            cr_expect_gt(strlen(why), 0, "'%s'", text);
        else
            cr_expect_lt(
                    strlen(address.is_unix ? address.path : address.host), sizeof(address.host));
    }
}
