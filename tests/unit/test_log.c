/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "support/seed.h"

typedef struct seen {
    unsigned count;
    kvx_log_level level;
    char line[2048];
} seen;

static void see(void *arg, kvx_log_level level, const char *line)
{
    seen *to = arg;
    to->count++;
    to->level = level;
    (void)snprintf(to->line, sizeof(to->line), "%s", line);
    errno = EBADF;
}

Test(log, a_line_reaches_the_receiver_with_its_level)
{
    seen got = { 0 };
    kvx_log_set(see, &got, KVX_LOG_DEBUG);
    kvx_log(KVX_LOG_WARN, "peer %d: %s", 12, "lost");
    cr_expect_eq(got.count, 1);
    cr_expect_eq(got.level, KVX_LOG_WARN);
    cr_expect_str_eq(got.line, "peer 12: lost");
}

Test(log, without_a_receiver_nothing_happens)
{
    seen got = { 0 };
    kvx_log(KVX_LOG_ERROR, "nobody");
    kvx_log_set(see, &got, KVX_LOG_DEBUG);
    kvx_log_set(NULL, &got, KVX_LOG_DEBUG);
    kvx_log(KVX_LOG_ERROR, "nobody");
    cr_expect_eq(got.count, 0);
    cr_expect_not(kvx_log_wants(KVX_LOG_ERROR));
}

Test(log, only_lines_as_grave_as_wanted_are_passed_on)
{
    for (int wanted = KVX_LOG_ERROR; wanted <= KVX_LOG_DEBUG; wanted++) {
        seen got = { 0 };
        kvx_log_set(see, &got, (kvx_log_level)wanted);
        for (int level = KVX_LOG_ERROR; level <= KVX_LOG_DEBUG; level++) {
            kvx_log((kvx_log_level)level, "line");
            cr_expect_eq(kvx_log_wants((kvx_log_level)level), level <= wanted);
        }
        cr_expect_eq(got.count, (unsigned)wanted + 1);
    }
}

Test(log, errno_is_kept)
{
    seen got = { 0 };
    kvx_log_set(see, &got, KVX_LOG_INFO);
    errno = ENOENT;
    kvx_log(KVX_LOG_ERROR, "%s", strerror(errno));
    cr_expect_eq(errno, ENOENT);
    cr_expect_eq(got.count, 1);
}

Test(log, a_line_of_any_length_is_cut_at_1023_characters)
{
    static char text[4096];
    uint64_t random = test_seed();
    for (uint64_t round = 0; round < test_rounds(1000); round++) {
        seen got = { 0 };
        const size_t length = test_random_below(&random, sizeof(text));
        memset(text, 'a', length);
        text[length] = '\0';
        kvx_log_set(see, &got, KVX_LOG_INFO);
        kvx_log(KVX_LOG_INFO, "%s", text);
        cr_assert_eq(strlen(got.line), length < 1023 ? length : 1023);
        cr_assert_eq(strncmp(got.line, text, strlen(got.line)), 0);
    }
}

/* Two receivers, each with its own argument: they must never be mixed. */
static _Atomic unsigned mixed;
static _Atomic unsigned passed;
static _Atomic int is_over;
static char argument_a;
static char argument_b;

static void receive_a(void *arg, kvx_log_level level, const char *line)
{
    (void)level;
    (void)line;
    passed++;
    if (arg != &argument_a)
        mixed++;
}

static void receive_b(void *arg, kvx_log_level level, const char *line)
{
    (void)level;
    (void)line;
    passed++;
    if (arg != &argument_b)
        mixed++;
}

static void *write_lines(void *arg)
{
    (void)arg;
    while (!is_over)
        kvx_log(KVX_LOG_INFO, "line");
    return NULL;
}

Test(log, a_receiver_gets_its_own_argument_while_others_set_theirs)
{
    pthread_t writers[2];
    kvx_log_set(receive_a, &argument_a, KVX_LOG_INFO);
    for (size_t i = 0; i < 2; i++)
        cr_assert_eq(pthread_create(&writers[i], NULL, write_lines, NULL), 0);
    for (unsigned i = 0; i < 20000 || passed == 0; i++) {
        if (i % 2 == 0)
            kvx_log_set(receive_b, &argument_b, KVX_LOG_INFO);
        else
            kvx_log_set(receive_a, &argument_a, KVX_LOG_INFO);
    }
    is_over = 1;
    for (size_t i = 0; i < 2; i++)
        pthread_join(writers[i], NULL);
    cr_expect_eq(mixed, 0);
}
