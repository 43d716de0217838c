/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <ctype.h>
#include <string.h>

#include "kvx/status.h"
#include "kvx/version.h"
#include "support/seed.h"

static const struct {
    kvx_status status;
    const char *name;
    kvx_scope scope;
} known[] = {
#define KNOWN(name, value, scope, text) { KVX_##name, #name, KVX_SCOPE_##scope },
    KVX_STATUS_LIST(KNOWN)
#undef KNOWN
};

#define KNOWN_COUNT (sizeof(known) / sizeof(known[0]))

static bool is_known(int value)
{
    for (size_t i = 0; i < KNOWN_COUNT; i++) {
        if ((int)known[i].status == value)
            return true;
    }
    return false;
}

Test(status, every_status_has_its_name_and_scope)
{
    for (size_t i = 0; i < KNOWN_COUNT; i++) {
        cr_expect_str_eq(kvx_status_name(known[i].status), known[i].name);
        cr_expect_eq(kvx_status_scope(known[i].status), known[i].scope);
    }
}

Test(status, every_text_is_a_lower_case_phrase_without_a_full_stop)
{
    for (size_t i = 0; i < KNOWN_COUNT; i++) {
        const char *text = kvx_status_text(known[i].status);
        cr_assert_gt(strlen(text), 0);
        cr_expect(islower((unsigned char)text[0]), "%s", text);
        cr_expect_neq(text[strlen(text) - 1], '.', "%s", text);
    }
}

Test(status, scopes_grow_with_the_values)
{
    for (size_t i = 1; i < KNOWN_COUNT; i++) {
        cr_expect_lt(known[i].status, known[i - 1].status);
        cr_expect_geq(known[i].scope, known[i - 1].scope);
    }
}

Test(status, an_unknown_status_reaches_as_far_as_the_node)
{
    uint64_t random = test_seed();
    for (uint64_t round = 0; round < test_rounds(10000); round++) {
        const int value = (int)(uint32_t)test_random(&random);
        if (is_known(value))
            continue;
        cr_assert_eq(kvx_status_scope((kvx_status)value), KVX_SCOPE_NODE);
        cr_assert_str_eq(kvx_status_name((kvx_status)value), "UNKNOWN");
        cr_assert_str_eq(kvx_status_text((kvx_status)value), "unknown status");
    }
}

Test(status, the_library_has_the_version_of_its_headers)
{
    cr_expect_str_eq(kvx_version(), KVX_VERSION);
}
