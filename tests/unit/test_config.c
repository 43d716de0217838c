/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "config/entry.h"
#include "config/settings.h"
#include "config/table.h"
#include "kvx/config.h"
#include "support/seed.h"

static kvx_config *config;

static void make(void)
{
    cr_assert_eq(kvx_config_create(&config), KVX_OK);
}

static void drop(void)
{
    kvx_config_destroy(&config);
}

TestSuite(config, .init = make, .fini = drop);

static void set(const char *key, const char *value)
{
    cr_assert_eq(kvx_config_set(config, key, value), KVX_OK, "%s", kvx_config_error(config));
}

static void expect_error(const char *part)
{
    cr_expect_not_null(strstr(kvx_config_error(config), part), "'%s' is not in '%s'", part,
            kvx_config_error(config));
}

/* The text as a file that is there while the test is. */
static const char *file_of(const void *text, size_t length)
{
    static char path[64];
    const int fd = memfd_create("config", 0);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, text, length), (ssize_t)length);
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return path;
}

static kvx_status load(const char *text)
{
    return kvx_config_load_file(config, file_of(text, strlen(text)));
}

/* A setting of some transport that was built: a number or a text. */
static kvx_entry *transport_entry(kvx_field_kind kind)
{
    for (size_t i = 0; i < config->count; i++) {
        kvx_entry *entry = &config->entries[i];
        if (entry->transport != NULL && entry->field.kind == kind)
            return entry;
    }
    return NULL;
}

Test(config, starts_with_the_documented_defaults)
{
    kvx_settings settings;
    cr_assert_eq(kvx_settings_from(config, &settings), KVX_OK);
    cr_expect_str_eq(settings.transport, "auto");
    cr_expect_eq(settings.progress, KVX_PROGRESS_THREAD);
    cr_expect_eq(settings.lease_confirm, KVX_CONFIRM_OWNER);
    cr_expect_eq(settings.lease_ns, 10 * KVX_NS_PER_SECOND);
    cr_expect_eq(settings.margin_ns, 100 * KVX_NS_PER_MS);
    cr_expect_eq(settings.fence_ns, 2 * KVX_NS_PER_SECOND);
    cr_expect_eq(settings.hold_ns, 30 * KVX_NS_PER_SECOND);
    cr_expect_eq(settings.patience_ns, 60 * KVX_NS_PER_SECOND);
    cr_expect_eq(settings.deadline_ns, 30 * KVX_NS_PER_SECOND);
    cr_expect_eq(settings.publication_age_ns, 120 * KVX_NS_PER_SECOND);
    cr_expect_eq(settings.ping_ns, 250 * KVX_NS_PER_MS);
    cr_expect_eq(settings.peer_timeout_ns, 2 * KVX_NS_PER_SECOND);
    cr_expect_eq(settings.drain_ns, 100 * KVX_NS_PER_MS);
    cr_expect_eq(settings.close_ns, KVX_NS_PER_SECOND);
    cr_expect_eq(settings.hello_ns, 2 * KVX_NS_PER_SECOND);
    cr_expect_eq(settings.redial_ns, 100 * KVX_NS_PER_MS);
    cr_expect_eq(settings.tombstone_ns, 60 * KVX_NS_PER_SECOND);
    cr_expect_eq(settings.parked_bytes_max, UINT64_C(64) << 30);
    cr_expect_eq(settings.parked_rooms_max, 4096);
    cr_expect_eq(settings.waiting_max, 65536);
    cr_expect_eq(settings.tombstones_max, 16384);
    cr_expect_eq(settings.subscriptions_max, 16384);
    cr_expect_eq(settings.pulls_max, 64);
    cr_expect_eq(settings.pull_bytes_max, UINT64_C(16) << 30);
    cr_expect_eq(settings.peers_max, 1024);
    cr_expect_eq(settings.connections_max, 4096);
    cr_expect_eq(settings.handshakes_max, 64);
    cr_expect_eq(settings.output_bytes_max, UINT64_C(64) << 20);
    cr_expect_eq(settings.window_bytes, UINT64_C(256) << 20);
    cr_expect_eq(settings.window_reads, 4096);
    cr_expect_eq(settings.read_bytes_max, UINT64_C(16) << 20);
}

Test(config, every_default_is_allowed_and_every_name_is_its_own)
{
    char why[256];
    for (size_t i = 0; i < config->count; i++) {
        const kvx_entry *entry = &config->entries[i];
        cr_expect_eq(kvx_field_check(&entry->field, entry->value, why, sizeof(why)), KVX_OK,
                "%s = %s %s", entry->name, entry->value, why);
        cr_expect_eq(kvx_config_find(config, entry->name), entry);
        cr_expect_lt(strlen(entry->name), 48, "%s is cut in a file", entry->name);
        cr_expect_lt(strlen(entry->field.help), 150, "%s", entry->name);
    }
}

Test(config, a_value_that_was_set_is_told_without_white_space_around)
{
    set("lease_ms", " \t8000 ");
    cr_expect_str_eq(kvx_config_get(config, "lease_ms"), "8000");
}

Test(config, there_is_no_value_of_an_unknown_key)
{
    cr_expect_null(kvx_config_get(config, "leas_ms"));
    cr_expect_null(kvx_config_transport_setting(config, "no such", "lease_ms"));
}

Test(config, an_unknown_key_is_not_found_and_the_nearest_is_named)
{
    cr_expect_eq(kvx_config_set(config, "leas_ms", "8000"), KVX_NOT_FOUND);
    expect_error("leas_ms");
    expect_error("nearest is lease_ms");
    cr_expect_eq(kvx_config_set(config, "", "8000"), KVX_NOT_FOUND);
    cr_expect_eq(kvx_config_set(config, "window_read", "8000"), KVX_NOT_FOUND);
    expect_error("nearest is window_reads");
    cr_expect_eq(kvx_config_set(config, "publ", "8000"), KVX_NOT_FOUND);
    expect_error("nearest is publication_age_ms");
}

Test(config, a_number_out_of_range_is_invalid_and_key_value_and_limits_are_named)
{
    static const char *const values[] = { "9", "3600001", "18446744073709551615" };
    for (size_t i = 0; i < 3; i++) {
        cr_expect_eq(kvx_config_set(config, "lease_ms", values[i]), KVX_INVALID);
        expect_error("lease_ms");
        expect_error(values[i]);
        expect_error("10 ... 3600000");
    }
    cr_expect_str_eq(kvx_config_get(config, "lease_ms"), "10000");
}

Test(config, what_is_no_number_is_invalid)
{
    static const char *const values[] = { "", "-1", "+1", "0x10", "10s", "1 000", "ten",
        "18446744073709551616", "100KiB", "1e3", "1.5" };
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
        cr_expect_eq(kvx_config_set(config, "lease_ms", values[i]), KVX_INVALID, "%s", values[i]);
    expect_error("not a number");
}

Test(config, sizes_take_suffixes)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } sizes[] = { { "4096", 4096 }, { "64KiB", 65536 }, { "3MiB", 3 << 20 },
        { "2GiB", UINT64_C(2) << 30 } };
    kvx_settings settings;
    for (size_t i = 0; i < 4; i++) {
        set("window_bytes", sizes[i].text);
        cr_assert_eq(kvx_settings_from(config, &settings), KVX_OK);
        cr_expect_eq(settings.window_bytes, sizes[i].bytes);
    }
    static const char *const wrong[] = { "KiB", "1kib", "1K", "1KiBs", "1 KiB ",
        "18014398509481984KiB", "17179869184GiB", "4095", "1048577GiB" };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        cr_expect_eq(kvx_config_set(config, "window_bytes", wrong[i]), KVX_INVALID, "%s", wrong[i]);
    expect_error("4KiB ... 1048576GiB");
}

Test(config, a_choice_is_one_of_its_names)
{
    kvx_settings settings;
    set("progress", "caller");
    set("lease_confirm", "clock");
    cr_assert_eq(kvx_settings_from(config, &settings), KVX_OK);
    cr_expect_eq(settings.progress, KVX_PROGRESS_CALLER);
    cr_expect_eq(settings.lease_confirm, KVX_CONFIRM_CLOCK);
    cr_expect_eq(kvx_config_set(config, "progress", "Caller"), KVX_INVALID);
    expect_error("thread, caller");
}

Test(config, a_transport_is_one_that_was_built)
{
    kvx_settings settings;
    cr_expect_eq(kvx_config_set(config, "transport", "pigeon"), KVX_INVALID);
    expect_error("pigeon");
    expect_error("auto");
    const kvx_transport_ops *ops;
    for (size_t i = 0; (ops = kvx_transport_at(i)) != NULL; i++) {
        set("transport", ops->name);
        cr_assert_eq(kvx_settings_from(config, &settings), KVX_OK);
        cr_expect_str_eq(settings.transport, ops->name);
    }
}

Test(config, a_transports_number_has_its_limits)
{
    const kvx_entry *entry = transport_entry(KVX_FIELD_BYTES);
    char value[32];
    if (entry == NULL)
        cr_skip_test("no transport with a number was built");
    (void)snprintf(value, sizeof(value), "%llu", (unsigned long long)entry->field.min);
    set(entry->name, value);
    cr_expect_str_eq(
            kvx_config_transport_setting(config, entry->transport->name, entry->field.key), value);
    cr_expect_eq(kvx_config_set(config, entry->name, "18446744073709551615"), KVX_INVALID);
    expect_error(entry->name);
    cr_expect_eq(kvx_config_set(config, entry->field.key, value), KVX_NOT_FOUND);
}

Test(config, a_value_that_a_file_could_not_hold_is_invalid)
{
    char text[400];
    memset(text, '1', sizeof(text));
    text[KVX_SETTING_VALUE_BYTES] = '\0';
    cr_expect_eq(kvx_config_set(config, "lease_ms", text), KVX_INVALID);
    expect_error("longer than 127");
    text[sizeof(text) - 1] = '\0';
    cr_expect_eq(kvx_config_set(config, "lease_ms", "1\n2"), KVX_INVALID);
    cr_expect_null(strchr(kvx_config_error(config), '\n'));
    cr_expect_eq(kvx_config_set(config, "lease_ms", "1;2"), KVX_INVALID);
    expect_error("semicolon");
}

Test(config, the_error_is_empty_before_anything_failed)
{
    cr_expect_str_eq(kvx_config_error(config), "");
}

Test(config, a_copy_lives_on_its_own)
{
    kvx_config *copy = NULL;
    set("lease_ms", "8000");
    cr_assert_eq(kvx_config_copy(config, &copy), KVX_OK);
    set("lease_ms", "9000");
    cr_expect_str_eq(kvx_config_get(copy, "lease_ms"), "8000");
    kvx_config_destroy(&config);
    cr_expect_str_eq(kvx_config_get(copy, "lease_ms"), "8000");
    kvx_config_destroy(&copy);
    cr_expect_null(copy);
    kvx_config_destroy(&copy);
    kvx_config_destroy(NULL);
}

/* Sets that do not fit together. */

static void expect_misfit(const char *first, const char *second, const char *third)
{
    kvx_settings settings;
    cr_expect_eq(kvx_settings_from(config, &settings), KVX_INVALID);
    expect_error(first);
    expect_error(second);
    expect_error(third);
}

Test(config, a_fence_shorter_than_drain_close_and_skew_is_refused)
{
    kvx_settings settings;
    set("fence_ms", "1129");
    expect_misfit("fence_ms 1129", "close_ms 1000", "raise fence_ms to 1130");
    set("fence_ms", "1130");
    cr_expect_eq(kvx_settings_from(config, &settings), KVX_OK);
}

Test(config, a_lease_shorter_than_four_pings_is_refused)
{
    kvx_settings settings;
    set("lease_ms", "999");
    expect_misfit("lease_ms 999", "ping_ms 250", "raise lease_ms to 1000");
    set("lease_ms", "1000");
    cr_expect_eq(kvx_settings_from(config, &settings), KVX_OK);
}

Test(config, a_margin_over_half_the_lease_is_refused)
{
    set("margin_ms", "5001");
    expect_misfit("margin_ms 5001", "lease_ms 10000", "raise lease_ms to 10002");
}

Test(config, a_peer_timeout_shorter_than_two_pings_is_refused)
{
    kvx_settings settings;
    set("peer_timeout_ms", "499");
    expect_misfit("peer_timeout_ms 499", "ping_ms 250", "raise peer_timeout_ms to 500");
    set("peer_timeout_ms", "500");
    cr_expect_eq(kvx_settings_from(config, &settings), KVX_OK);
}

Test(config, a_read_is_never_larger_than_the_window)
{
    kvx_settings settings;
    set("window_bytes", "1MiB");
    cr_assert_eq(kvx_settings_from(config, &settings), KVX_OK);
    cr_expect_eq(settings.read_bytes_max, 1 << 20);
}

/* Files. */

Test(config, a_file_sets_values)
{
    cr_assert_eq(load("# comment\n; comment\r\n\nlease_ms = 8000\r\n  ping_ms=100 ; why\n"
                      "fence_ms : 3000\nlease_ms = 9000"),
            KVX_OK, "%s", kvx_config_error(config));
    cr_expect_str_eq(kvx_config_get(config, "lease_ms"), "9000");
    cr_expect_str_eq(kvx_config_get(config, "ping_ms"), "100");
    cr_expect_str_eq(kvx_config_get(config, "fence_ms"), "3000");
}

Test(config, an_empty_file_changes_nothing)
{
    cr_expect_eq(load(""), KVX_OK);
    cr_expect_str_eq(kvx_config_get(config, "lease_ms"), "10000");
}

Test(config, a_section_is_a_transport)
{
    const kvx_entry *entry = transport_entry(KVX_FIELD_BYTES);
    char text[256];
    if (entry == NULL)
        cr_skip_test("no transport with a number was built");
    (void)snprintf(text, sizeof(text), "lease_ms = 9000\n[%s]\n%s = %llu\n", entry->transport->name,
            entry->field.key, (unsigned long long)entry->field.max);
    cr_expect_eq(load(text), KVX_OK, "%s", kvx_config_error(config));
    cr_expect_eq(kvx_field_number(&entry->field, entry->value), entry->field.max);
}

Test(config, a_file_that_is_not_there_is_not_found)
{
    cr_expect_eq(kvx_config_load_file(config, "/nowhere/kvx.conf"), KVX_NOT_FOUND);
    expect_error("/nowhere/kvx.conf");
}

Test(config, a_folder_is_no_file)
{
    cr_expect_eq(kvx_config_load_file(config, "/"), KVX_IO);
    expect_error("/: ");
}

Test(config, an_unknown_key_in_a_file_is_told_with_its_line)
{
    cr_expect_eq(load("lease_ms = 8000\n\nleese_ms = 7\nping_ms = x\n"), KVX_NOT_FOUND);
    expect_error(":3: ");
    expect_error("nearest is lease_ms");
    cr_expect_eq(load("[pigeon]\nlease_ms = 8000\n"), KVX_NOT_FOUND);
    expect_error(":2: ");
    expect_error("pigeon.lease_ms");
}

Test(config, a_wrong_value_in_a_file_is_told_with_its_line)
{
    cr_expect_eq(load("lease_ms = 8000\nping_ms = 0\n"), KVX_INVALID);
    expect_error(":2: ping_ms = 0 is out of range");
}

Test(config, a_line_that_is_neither_section_nor_value_is_told)
{
    cr_expect_eq(load("ping_ms = 100\n[cma\nping_ms = 200\n"), KVX_INVALID);
    expect_error(":2: neither");
    cr_expect_eq(load("ping_ms\n"), KVX_INVALID);
    expect_error(":1: neither");
}

Test(config, a_long_line_is_an_error_and_not_cut)
{
    char text[512];
    memset(text, ' ', sizeof(text));
    memcpy(text, "ping_ms =", 9);
    memcpy(text + 199, "100\n", 5);
    cr_expect_eq(load(text), KVX_INVALID);
    expect_error(":1: the line is longer than");
    cr_expect_str_eq(kvx_config_get(config, "ping_ms"), "250");
    memcpy(text + 196, "100\n", 5);
    cr_expect_eq(load(text), KVX_OK, "%s", kvx_config_error(config));
    cr_expect_str_eq(kvx_config_get(config, "ping_ms"), "100");
}

Test(config, a_long_name_is_unknown)
{
    cr_expect_eq(load("ping_msxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx = 100\n"),
            KVX_NOT_FOUND);
    cr_expect_eq(load("[xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx]\na=1\n"),
            KVX_NOT_FOUND);
}

Test(config, a_zero_byte_in_a_file_is_an_error)
{
    const char text[] = "ping_ms = 100\nlease_ms = 80\00000\n";
    cr_expect_eq(kvx_config_load_file(config, file_of(text, sizeof(text) - 1)), KVX_INVALID);
    expect_error(":2: ");
    cr_expect_str_eq(kvx_config_get(config, "lease_ms"), "10000");
}

/* The environment. */

Test(config, the_environment_sets_values)
{
    clearenv();
    setenv("KVX_LEASE_MS", "8000", 1);
    setenv("PATH", "/bin", 1);
    setenv("KVXX", "1", 1);
    setenv("KVX_TEST_ANYTHING", "1", 1);
    cr_assert_eq(kvx_config_load_env(config), KVX_OK, "%s", kvx_config_error(config));
    cr_expect_str_eq(kvx_config_get(config, "lease_ms"), "8000");
}

Test(config, no_environment_is_fine)
{
    clearenv();
    cr_expect_eq(kvx_config_load_env(config), KVX_OK);
}

Test(config, the_environment_knows_transports)
{
    const kvx_entry *entry = transport_entry(KVX_FIELD_BYTES);
    char name[96] = "KVX_";
    char value[32];
    if (entry == NULL)
        cr_skip_test("no transport with a number was built");
    clearenv();
    for (size_t i = 0; entry->name[i] != '\0'; i++) {
        const char c = entry->name[i];
        name[4 + i] = (char)(c == '.' ? '_' : c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
    }
    (void)snprintf(value, sizeof(value), "%llu", (unsigned long long)entry->field.max);
    setenv(name, value, 1);
    cr_assert_eq(kvx_config_load_env(config), KVX_OK, "%s", kvx_config_error(config));
    cr_expect_str_eq(entry->value, value);
}

Test(config, an_unknown_variable_is_not_found_and_the_nearest_is_named)
{
    clearenv();
    setenv("KVX_LEESE_MS", "8000", 1);
    cr_expect_eq(kvx_config_load_env(config), KVX_NOT_FOUND);
    expect_error("KVX_LEESE_MS");
    expect_error("nearest is KVX_LEASE_MS");
}

Test(config, a_wrong_value_in_the_environment_is_invalid)
{
    clearenv();
    setenv("KVX_LEASE_MS", "", 1);
    cr_expect_eq(kvx_config_load_env(config), KVX_INVALID);
    expect_error("KVX_LEASE_MS: lease_ms =");
}

/* Printing. */

static char *printed(void)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    cr_assert_not_null(out);
    kvx_config_print(config, out);
    fclose(out);
    return text;
}

Test(config, printing_tells_where_each_value_is_from)
{
    clearenv();
    setenv("KVX_PING_MS", "111", 1);
    cr_assert_eq(load("\nfence_ms = 3333\n"), KVX_OK);
    cr_assert_eq(kvx_config_load_env(config), KVX_OK);
    set("lease_ms", "8888");
    char *text = printed();
    cr_expect_not_null(strstr(text, "set by: program\nlease_ms = 8888\n"));
    cr_expect_not_null(strstr(text, "set by: environment\nping_ms = 111\n"));
    cr_expect_not_null(strstr(text, ":2\nfence_ms = 3333\n"));
    cr_expect_not_null(strstr(text, "set by: default\nhold_ms = 30000\n"));
    free(text);
}

/* Any value that the field allows. */
static void random_value(const kvx_field *field, uint64_t *random, char *value, size_t size)
{
    const uint64_t span = field->max - field->min;
    uint64_t number = field->min + (span == UINT64_MAX ? test_random(random)
                                                       : test_random_below(random, span + 1));
    size_t length = test_random_below(random, KVX_SETTING_VALUE_BYTES);
    switch (field->kind) {
    case KVX_FIELD_COUNT:
    case KVX_FIELD_BYTES:
    case KVX_FIELD_MS: (void)snprintf(value, size, "%llu", (unsigned long long)number); break;
    case KVX_FIELD_CHOICE:
        (void)snprintf(value, size, "%s", field->choices[test_random_below(random, 2)]);
        break;
    case KVX_FIELD_TRANSPORT: (void)snprintf(value, size, "auto"); break;
    case KVX_FIELD_TEXT:
        for (size_t i = 0; i < length; i++) {
            value[i] = (char)(' ' + test_random_below(random, 95));
            if (value[i] == ';')
                value[i] = '=';
        }
        value[length] = '\0';
        break;
    }
}

Test(config, what_is_printed_loads_again_and_gives_the_same_values)
{
    uint64_t random = test_seed();
    for (uint64_t round = 0; round < test_rounds(50); round++) {
        kvx_config *before = NULL;
        for (size_t i = 0; i < config->count; i++) {
            char value[KVX_SETTING_VALUE_BYTES];
            random_value(&config->entries[i].field, &random, value, sizeof(value));
            set(config->entries[i].name, value);
        }
        char *text = printed();
        cr_assert_eq(kvx_config_copy(config, &before), KVX_OK);
        kvx_config_destroy(&config);
        make();
        const int fd = memfd_create("config", 0);
        char path[64];
        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
        cr_assert_eq(kvx_config_load_file(config, path), KVX_OK, "%s", kvx_config_error(config));
        for (size_t i = 0; i < config->count; i++)
            cr_assert_str_eq(config->entries[i].value, before->entries[i].value);
        close(fd);
        free(text);
        kvx_config_destroy(&before);
    }
}

/* Bytes that are likely to mean something, and pieces of what is right. */
static size_t random_text(uint64_t *random, char *text, size_t size)
{
    static const char *const pieces[] = { "lease_ms", "ping_ms", " = ", "=", "[", "]", "\n", "\n",
        "100", "5000", "cma", "loopback", "#", ";", " ", "\t", "\r\n", "KiB", "auto", ".",
        "transport", "window_bytes", "\xff", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" };
    size_t length = 0;
    const uint64_t count = test_random_below(random, 60);
    for (uint64_t i = 0; i < count; i++) {
        const char *piece = pieces[test_random_below(random, sizeof(pieces) / sizeof(pieces[0]))];
        if (length + strlen(piece) >= size)
            break;
        memcpy(text + length, piece, strlen(piece));
        length += strlen(piece);
    }
    if (length > 0 && test_random_below(random, 4) == 0)
        text[test_random_below(random, length)] = (char)test_random(random);
    return length;
}

Test(config, any_file_is_taken_or_refused_with_a_reason)
{
    uint64_t random = test_seed();
    char text[2048];
    char path[64];
    for (uint64_t round = 0; round < test_rounds(3000); round++) {
        const size_t length = random_text(&random, text, sizeof(text));
        const int fd = memfd_create("config", 0);
        cr_assert_eq(write(fd, text, length), (ssize_t)length);
        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        config->error[0] = '\0';
        const kvx_status status = kvx_config_load_file(config, path);
        cr_assert(status == KVX_OK || status == KVX_INVALID || status == KVX_NOT_FOUND);
        cr_assert_eq(kvx_config_error(config)[0] == '\0', status == KVX_OK);
        close(fd);
    }
}

Test(config_names, the_distance_is_the_number_of_characters_to_change)
{
    cr_expect_eq(kvx_name_distance("", ""), 0);
    cr_expect_eq(kvx_name_distance("abc", ""), 3);
    cr_expect_eq(kvx_name_distance("lease_ms", "lease_ms"), 0);
    cr_expect_eq(kvx_name_distance("leas_ms", "lease_ms"), 1);
    cr_expect_eq(kvx_name_distance("kitten", "sitting"), 3);
    cr_expect_eq(kvx_name_distance("cma_call", "cma.call"), 0);
}

Test(config_names, the_distance_is_a_metric)
{
    uint64_t random = test_seed();
    for (uint64_t round = 0; round < test_rounds(2000); round++) {
        char name[3][80] = { { 0 } };
        for (size_t i = 0; i < 3; i++) {
            const size_t length = test_random_below(&random, 60);
            for (size_t j = 0; j < length; j++)
                name[i][j] = (char)('a' + test_random_below(&random, 3));
        }
        const size_t ab = kvx_name_distance(name[0], name[1]);
        const size_t bc = kvx_name_distance(name[1], name[2]);
        const size_t ac = kvx_name_distance(name[0], name[2]);
        cr_assert_eq(ab, kvx_name_distance(name[1], name[0]));
        cr_assert_eq(ab == 0, strcmp(name[0], name[1]) == 0);
        cr_assert_leq(ac, ab + bc);
    }
}
