/* SPDX-License-Identifier: Apache-2.0 */
#include "pair/options.h"

#include "pair/geometry.h"

#include <popt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvx/group.h"

#define ADDRESS_DEFAULT  "127.0.0.1:7400"
#define MODEL_DEFAULT    "deepseek-671b"
#define LAYERS_DEFAULT   2
#define REQUESTS_DEFAULT 64
#define TOKENS_DEFAULT   4096

/* popt writes here: its tables hold addresses, and these are known when they are compiled. */
static struct {
    char *address, *model, *token_bytes, *axis, *compat, *trace, *transport, *config, *metrics;
    char *log, *reserve, *verify, *prefix;
    char **settings;
    int ranks, rank, layers, page_tokens, requests, tokens, tokens_max;
    int print_config, json, concurrency, deadline_ms, connect_s, reconnect_s;
    long long pool_tokens;
} given;

/* The 1 has popt return after each. */
#define OPTION(name, type, target, help, arg)          \
    {                                                  \
        name, '\0', (type), (target), 1, (help), (arg) \
    }

static struct poptOption cache_table[] = {
    OPTION("ranks", POPT_ARG_INT, &given.ranks, "TP ranks of the group (8)", "N"),
    OPTION("rank", POPT_ARG_INT, &given.rank,
            "only this rank in this process; it uses the given port + R", "R"),
    OPTION("model", POPT_ARG_STRING, &given.model,
            "deepseek-671b (default), llama-3.1-70b or qwen3-235b", "NAME"),
    OPTION("layers", POPT_ARG_INT, &given.layers,
            "take only so many layers (2 without --model, else all)", "N"),
    OPTION("token-bytes", POPT_ARG_STRING, &given.token_bytes,
            "instead of a model: bytes per token and layer, as 1152 or k:256,v:256", "SPEC"),
    OPTION("axis", POPT_ARG_STRING, &given.axis,
            "how a page is laid out; both sides must say the same", "TEXT"),
    OPTION("compat", POPT_ARG_STRING, &given.compat,
            "model, revision and dtype of the engine; both sides must say the same", "TEXT"),
    OPTION("page-tokens", POPT_ARG_INT, &given.page_tokens, "tokens in a page (64)", "N"),
    OPTION("pool-tokens", POPT_ARG_LONGLONG, &given.pool_tokens,
            "tokens in the pool of each rank (262144)", "N"),
    POPT_TABLEEND,
};

static struct poptOption work_table[] = {
    OPTION("trace", POPT_ARG_STRING, &given.trace,
            "requests to run, one JSON object a line; room = number of the line", "FILE"),
    OPTION("requests", POPT_ARG_INT, &given.requests,
            "only the first N of the trace; without one, generate N (64)", "N"),
    OPTION("tokens", POPT_ARG_INT, &given.tokens, "without a trace: tokens in each request (4096)",
            "T"),
    OPTION("max-tokens", POPT_ARG_INT, &given.tokens_max,
            "leave out requests of the trace with more tokens", "T"),
    POPT_TABLEEND,
};

static struct poptOption library_table[] = {
    OPTION("transport", POPT_ARG_STRING, &given.transport, "what moves the bytes, as cma", "NAME"),
    OPTION("config", POPT_ARG_STRING, &given.config,
            "settings of the library; KVX_* in the environment and --set win", "FILE"),
    OPTION("set", POPT_ARG_ARGV, &given.settings, "one setting; may be repeated", "KEY=VALUE"),
    OPTION("print-config", POPT_ARG_NONE, &given.print_config,
            "print every setting with its source and end", NULL),
    POPT_TABLEEND,
};

static struct poptOption output_table[] = {
    OPTION("metrics", POPT_ARG_STRING, &given.metrics,
            "keep Prometheus text there, rewritten every second", "FILE"),
    OPTION("json", POPT_ARG_NONE, &given.json,
            "print one JSON object at the end; all else goes to stderr", NULL),
    OPTION("log", POPT_ARG_STRING, &given.log, "error, warn (default), info or debug", "LEVEL"),
    POPT_TABLEEND,
};

static struct poptOption pull_table[] = {
    OPTION("concurrency", POPT_ARG_INT, &given.concurrency, "requests under way at once (16)", "N"),
    OPTION("reserve", POPT_ARG_STRING, &given.reserve,
            "when to take pages: ready, just in time (default), or early, before prefill", "WHEN"),
    OPTION("prefix", POPT_ARG_STRING, &given.prefix,
            "on (default) or off: do not pull a prefix that is here already", "on|off"),
    OPTION("verify", POPT_ARG_STRING, &given.verify,
            "on (default) or off: check every byte of every page", "on|off"),
    OPTION("deadline-ms", POPT_ARG_INT, &given.deadline_ms,
            "limit of one pull over all its stages (the setting deadline_ms)", "MS"),
    OPTION("connect-s", POPT_ARG_INT, &given.connect_s,
            "wait so long for prefill to be there at all (10)", "S"),
    OPTION("reconnect-s", POPT_ARG_INT, &given.reconnect_s,
            "wait so long for a lost prefill to come back and go on; 0: end (0)", "S"),
    POPT_TABLEEND,
};

#define INCLUDE(table, title)                                         \
    {                                                                 \
        NULL, '\0', POPT_ARG_INCLUDE_TABLE, (table), 0, (title), NULL \
    }

static struct poptOption prefill_options[] = {
    OPTION("listen", POPT_ARG_STRING, &given.address,
            "where decode finds us (" ADDRESS_DEFAULT "); port 0: any; [addr]:port, unix:/path",
            "HOST:PORT"),
    INCLUDE(cache_table, "Cache (both sides must agree):"),
    INCLUDE(work_table, "Requests (both sides must agree):"),
    INCLUDE(library_table, "Library:"),
    INCLUDE(output_table, "Output:"),
    POPT_AUTOHELP POPT_TABLEEND,
};

static struct poptOption decode_options[] = {
    OPTION("connect", POPT_ARG_STRING, &given.address,
            "where prefill listens (" ADDRESS_DEFAULT ")", "HOST:PORT"),
    INCLUDE(pull_table, "Pulling:"),
    INCLUDE(cache_table, "Cache (both sides must agree):"),
    INCLUDE(work_table, "Requests (both sides must agree):"),
    INCLUDE(library_table, "Library:"),
    INCLUDE(output_table, "Output:"),
    POPT_AUTOHELP POPT_TABLEEND,
};

/* Where popt puts copies of its own. */
static char **const texts[] = {
    &given.address,
    &given.model,
    &given.token_bytes,
    &given.axis,
    &given.compat,
    &given.trace,
    &given.transport,
    &given.config,
    &given.metrics,
    &given.log,
    &given.reserve,
    &given.verify,
    &given.prefix,
};

#define TEXT_COUNT (sizeof(texts) / sizeof(texts[0]))

/* The next option; where one comes twice, popt forgets the first copy. */
static int next_option(poptContext context)
{
    char *before[TEXT_COUNT];
    for (size_t i = 0; i < TEXT_COUNT; i++)
        before[i] = *texts[i];
    const int rc = poptGetNextOpt(context);
    for (size_t i = 0; i < TEXT_COUNT; i++)
        if (*texts[i] != before[i])
            free(before[i]);
    return rc;
}

static const char *program_name(options_role role)
{
    return role == OPTIONS_PREFILL ? "kvx-prefill" : "kvx-decode";
}

__attribute__((format(printf, 2, 3))) static bool wrong(options_role role, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)fprintf(stderr, "%s: ", program_name(role));
    (void)vfprintf(stderr, format, args);
    (void)fputs(" (see --help)\n", stderr);
    va_end(args);
    return false;
}

/* One number with its limits. */
typedef struct number_limit {
    const char *name;
    long long value;
    long long min;
    long long max;
} number_limit;

static bool numbers_fit(options_role role)
{
    const number_limit limits[] = {
        { "ranks", given.ranks, 1, KVX_GROUP_RANKS_MAX },
        { "rank", given.rank, -1, given.ranks - 1 },
        { "layers", given.layers, 0, KVX_REGION_MAX },
        { "page-tokens", given.page_tokens, 1, 65536 },
        { "pool-tokens", given.pool_tokens, given.page_tokens, 1LL << 31 },
        { "requests", given.requests, 0, 100000000 },
        { "tokens", given.tokens, 0, 1 << 30 },
        { "max-tokens", given.tokens_max, 0, 1 << 30 },
        { "concurrency", given.concurrency, 1, 4096 },
        { "deadline-ms", given.deadline_ms, 0, 86400000 },
        { "connect-s", given.connect_s, 0, 86400 },
        { "reconnect-s", given.reconnect_s, 0, 86400 },
    };
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
        if (limits[i].value < limits[i].min || limits[i].value > limits[i].max)
            return wrong(role, "--%s %lld: allowed are %lld to %lld", limits[i].name,
                    limits[i].value, limits[i].min, limits[i].max);
    return true;
}

/* The place of a word in a list that ends with NULL. */
static bool choose(options_role role, const char *name, const char *word, const char *const *words,
        int *choice_out)
{
    for (int i = 0; words[i] != NULL; i++)
        if (word == NULL || strcmp(words[i], word) == 0) {
            if (word != NULL)
                *choice_out = i;
            return true;
        }
    return wrong(role, "--%s %s: say %s%s%s%s%s", name, word, words[0], words[1] ? ", " : "",
            words[1], words[2] ? ", " : "", words[2] ? words[2] : "");
}

static bool words_fit(options_role role, pair_options *parsed)
{
    static const char *const levels[] = { "error", "warn", "info", "debug", NULL };
    static const char *const policies[] = { "ready", "early", NULL };
    static const char *const switches[] = { "off", "on", NULL };
    int level = KVX_LOG_WARN;
    int policy = 0;
    int verify = 1;
    int prefix = 1;

    if (!choose(role, "log", given.log, levels, &level) ||
            !choose(role, "reserve", given.reserve, policies, &policy) ||
            !choose(role, "verify", given.verify, switches, &verify) ||
            !choose(role, "prefix", given.prefix, switches, &prefix))
        return false;
    parsed->log_level = (kvx_log_level)level;
    parsed->reserve_early = policy == 1;
    parsed->verify = verify == 1;
    parsed->use_prefix = prefix == 1;
    return true;
}

/* What cannot be said together, and what follows from what was not said. */
static bool choices_fit(options_role role)
{
    if (given.token_bytes != NULL && given.model != NULL)
        return wrong(role, "--token-bytes and --model exclude each other");
    if (given.trace != NULL && given.tokens != 0)
        return wrong(role, "--tokens is for generated requests; with --trace use --max-tokens");
    if (given.trace == NULL && given.tokens_max != 0)
        return wrong(role, "--max-tokens needs --trace");

    if (given.model == NULL && given.token_bytes == NULL && given.layers == 0)
        given.layers = LAYERS_DEFAULT;
    if (given.trace == NULL && given.requests == 0)
        given.requests = REQUESTS_DEFAULT;
    if (given.tokens == 0)
        given.tokens = TOKENS_DEFAULT;
    return true;
}

static void options_fill(options_role role, pair_options *options)
{
    options->role = role;
    options->address = given.address == NULL ? ADDRESS_DEFAULT : given.address;
    options->ranks = given.ranks;
    options->rank = given.rank;
    options->model = given.model == NULL ? MODEL_DEFAULT : given.model;
    options->layers = given.layers;
    options->token_bytes = given.token_bytes;
    options->axis = given.axis;
    options->compat = given.compat;
    options->page_tokens = given.page_tokens;
    options->pool_tokens = given.pool_tokens;
    options->trace = given.trace;
    options->requests = given.requests;
    options->tokens = given.tokens;
    options->tokens_max = given.tokens_max;
    options->transport = given.transport;
    options->config = given.config;
    options->settings = given.settings;
    options->print_config = given.print_config != 0;
    options->metrics = given.metrics;
    options->json = given.json != 0;
    options->concurrency = given.concurrency;
    options->deadline_ms = given.deadline_ms;
    options->connect_s = given.connect_s;
    options->reconnect_s = given.reconnect_s;
}

static void set_defaults(void)
{
    given.ranks = 8;
    given.rank = -1;
    given.page_tokens = 64;
    given.pool_tokens = 262144;
    given.concurrency = 16;
    given.connect_s = 10;
}

/* Say what popt found; of a bad number it names the value alone, so find its option. */
static bool wrong_word(options_role role, const char **words, const char *bad, int rc)
{
    for (int i = 2; words[1] != NULL && words[i] != NULL; i++)
        if (strcmp(words[i], bad) == 0 && words[i - 1][0] == '-')
            return wrong(role, "%s %s: %s", words[i - 1], bad, poptStrerror(rc));
    return wrong(role, "%s: %s", bad, poptStrerror(rc));
}

/* Read the words into given; popt wants them const. */
static bool read_words(options_role role, int argc, char **argv)
{
    const char **words = calloc((size_t)argc + 1, sizeof(*words));
    if (words == NULL)
        return wrong(role, "out of memory");
    for (int i = 0; i < argc; i++)
        words[i] = argv[i];
    poptContext context = poptGetContext(program_name(role), argc, words,
            role == OPTIONS_PREFILL ? prefill_options : decode_options, 0);

    int rc;
    do
        rc = next_option(context);
    while (rc > 0);
    const char *extra = rc < -1 ? NULL : poptPeekArg(context);
    bool is_right = true;
    if (rc < -1)
        is_right = wrong_word(role, words, poptBadOption(context, POPT_BADOPTION_NOALIAS), rc);
    else if (extra != NULL)
        is_right = wrong(role, "%s is no option", extra);
    poptFreeContext(context);
    free(words);
    return is_right;
}

bool options_parse(options_role role, int argc, char **argv, pair_options *options_out)
{
    pair_options parsed = { 0 };
    set_defaults();
    if (!read_words(role, argc, argv) || !numbers_fit(role) || !words_fit(role, &parsed) ||
            !choices_fit(role))
        return false;
    options_fill(role, &parsed);
    *options_out = parsed;
    return true;
}
