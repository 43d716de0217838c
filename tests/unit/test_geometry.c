/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <string.h>

#include "kvx/layout.h"
#include "pair/address.h"
#include "pair/geometry.h"

static char why[GEOMETRY_WHY_MAX];

Test(geometry, deepseek_has_one_latent_of_1152_bytes_in_61_layers)
{
    kv_geometry geometry;
    cr_assert(geometry_find("deepseek-671b", 0, &geometry, why));
    cr_expect_eq(geometry.layers, 61);
    cr_expect_eq(geometry.role_count, 1);
    cr_expect_str_eq(geometry.roles[0].name, "mla");
    cr_expect_eq(geometry.roles[0].token_bytes, 1152);
    cr_expect_eq(geometry_token_bytes(&geometry), 70272);
    cr_assert(geometry_find("deepseek-671b", 2, &geometry, why));
    cr_expect_eq(geometry.layers, 2);
    cr_expect_eq(geometry_token_bytes(&geometry), 2304);
}

Test(geometry, llama_has_an_eighth_of_327680_bytes_a_token_on_a_rank)
{
    kv_geometry geometry;
    cr_assert(geometry_find("llama-3.1-70b", 0, &geometry, why));
    cr_expect_eq(geometry.layers, 80);
    cr_expect_eq(geometry.role_count, 2);
    cr_expect_eq(geometry_token_bytes(&geometry), 327680 / 8);
}

Test(geometry, qwen_has_a_quarter_of_192512_bytes_a_token_on_a_rank)
{
    kv_geometry geometry;
    cr_assert(geometry_find("qwen3-235b", 0, &geometry, why));
    cr_expect_eq(geometry.layers, 94);
    cr_expect_eq(geometry_token_bytes(&geometry), 192512 / 4, "each head lies on two ranks");
}

Test(geometry, every_model_that_is_named_is_there)
{
    char names[GEOMETRY_WHY_MAX];
    kv_geometry geometry;
    strcpy(names, geometry_models());
    for (char *save = NULL, *name = strtok_r(names, ", ", &save); name != NULL;
            name = strtok_r(NULL, ", ", &save))
        cr_expect(geometry_find(name, 1, &geometry, why), "%s", name);
}

Test(geometry, an_unknown_model_or_too_many_layers_are_named_with_the_remedy)
{
    kv_geometry geometry = { .layers = 99 };
    cr_expect_not(geometry_find("gpt-2", 0, &geometry, why));
    cr_expect_not_null(strstr(why, "llama-3.1-70b"), "%s", why);
    cr_expect_not(geometry_find("deepseek-671b", 62, &geometry, why));
    cr_expect_not_null(strstr(why, "61"), "%s", why);
    cr_expect_eq(geometry.layers, 99, "outputs stay untouched on failure");
}

Test(geometry, an_explicit_one_is_one_number_or_named_ones)
{
    kv_geometry geometry;
    cr_assert(geometry_parse("4096", 3, &geometry, why));
    cr_expect_str_eq(geometry.roles[0].name, "kv");
    cr_expect_eq(geometry_token_bytes(&geometry), 3 * 4096);
    cr_assert(geometry_parse("k:256,v:128,index:64", 2, &geometry, why));
    cr_expect_eq(geometry.role_count, 3);
    cr_expect_str_eq(geometry.roles[2].name, "index");
    cr_expect_eq(geometry_token_bytes(&geometry), 2 * 448);
}

Test(geometry, a_wrong_explicit_one_is_refused)
{
    static const char *const wrong[] = { "", ",", "0", "12", "k:", ":8", "k:8,k:8", "k:8,v:x",
        "k:8 ", "-8", "a:8,b:8,c:8,d:8,e:8", "99999999999999999999",
        "a-name-that-is-longer-than-thirty-one-letters:8" };
    kv_geometry geometry;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        cr_expect_not(geometry_parse(wrong[i], 1, &geometry, why), "'%s'", wrong[i]);
    cr_expect_not(geometry_parse("8", 0, &geometry, why));
    cr_expect_not(geometry_parse("k:8,v:8", KVX_REGION_MAX / 2 + 1, &geometry, why));
    cr_expect_not_null(strstr(why, "--layers"), "%s", why);
}

Test(address, a_rank_of_its_own_uses_the_port_plus_the_rank)
{
    char address[64];
    cr_assert(address_of_rank("127.0.0.1:7400", -1, address, sizeof(address)));
    cr_expect_str_eq(address, "127.0.0.1:7400");
    cr_assert(address_of_rank("[::1]:7400", 3, address, sizeof(address)));
    cr_expect_str_eq(address, "[::1]:7403");
    cr_assert(address_of_rank("host:0", 3, address, sizeof(address)));
    cr_expect_str_eq(address, "host:0", "any port stays any port");
    cr_assert(address_of_rank("unix:/tmp/x", 3, address, sizeof(address)));
    cr_expect_str_eq(address, "unix:/tmp/x.3");
}

Test(address, what_has_no_port_is_refused)
{
    static const char *const wrong[] = { "", "host", "host:", ":1", "host:x", "host:65536",
        "host:1x" };
    char address[64];
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        cr_expect_not(address_of_rank(wrong[i], -1, address, sizeof(address)), "%s", wrong[i]);
    cr_expect_not(address_of_rank("h:65530", 6, address, sizeof(address)));
    cr_expect_not(address_of_rank("host:1234", -1, address, 9), "it must fit");
}

Test(address, all_interfaces_are_told_apart)
{
    cr_expect(address_is_wildcard("0.0.0.0:1"));
    cr_expect(address_is_wildcard("[::]:1"));
    cr_expect_not(address_is_wildcard("[::1]:1"));
    cr_expect_not(address_is_wildcard("10.0.0.0:1"));
}
