/* SPDX-License-Identifier: Apache-2.0 */
#include "pair/setup.h"

#include "pair/address.h"
#include "pair/host.h"
#include "pair/metrics_file.h"

#include "kvx/config.h"
#include "kvx/version.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define GIB (1024.0 * 1024.0 * 1024.0)

static const char *program_name(const pair_setup *setup)
{
    return setup->options.role == OPTIONS_PREFILL ? "kvx-prefill" : "kvx-decode";
}

__attribute__((format(printf, 2, 3))) static bool fail(
        const pair_setup *setup, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)fprintf(stderr, "%s: ", program_name(setup));
    (void)vfprintf(stderr, format, args);
    (void)fputc('\n', stderr);
    va_end(args);
    return false;
}

static void log_line(void *arg, kvx_log_level level, const char *line)
{
    static const char *const names[] = { "error", "warn", "info", "debug" };
    (void)fprintf(stderr, "%s: %s: %s\n", program_name(arg), names[level], line);
}

/* One "key=value" of the command line. */
static bool set_pair(pair_setup *setup, const char *pair)
{
    char key[128];
    const char *equal = strchr(pair, '=');
    if (equal == NULL || (size_t)(equal - pair) >= sizeof(key))
        return fail(setup, "--set %s: say key=value", pair);
    (void)snprintf(key, sizeof(key), "%.*s", (int)(equal - pair), pair);
    if (kvx_config_set(setup->config, key, equal + 1) != KVX_OK)
        return fail(setup, "--set %s: %s", pair, kvx_config_error(setup->config));
    return true;
}

/* Ended rooms may be asked for again, by a decode that starts anew: a request that comes twice is
 * computed twice, so prefill does not remember them. Any other source of settings wins. */
static bool set_own_defaults(pair_setup *setup)
{
    if (setup->options.role != OPTIONS_PREFILL)
        return true;
    if (kvx_config_set(setup->config, "tombstone_ms", "0") != KVX_OK)
        return fail(setup, "%s", kvx_config_error(setup->config));
    return true;
}

/* Later sources win: file, environment, command line. */
static bool load_settings(pair_setup *setup)
{
    const pair_options *const options = &setup->options;
    if (kvx_config_create(&setup->config) != KVX_OK)
        return fail(setup, "out of memory");
    if (!set_own_defaults(setup))
        return false;
    if (options->config != NULL && kvx_config_load_file(setup->config, options->config) != KVX_OK)
        return fail(setup, "%s", kvx_config_error(setup->config));
    if (kvx_config_load_env(setup->config) != KVX_OK)
        return fail(setup, "%s", kvx_config_error(setup->config));
    if (options->transport != NULL &&
            kvx_config_set(setup->config, "transport", options->transport) != KVX_OK)
        return fail(
                setup, "--transport %s: %s", options->transport, kvx_config_error(setup->config));
    for (char **pair = options->settings; pair != NULL && *pair != NULL; pair++)
        if (!set_pair(setup, *pair))
            return false;
    return true;
}

static bool load_requests(pair_setup *setup)
{
    const pair_options *const options = &setup->options;
    const trace_limits limits = {
        .requests_max = (size_t)options->requests,
        .tokens_max = (uint32_t)options->tokens_max,
    };
    char why[TRACE_WHY_MAX];
    const bool is_loaded = options->trace == NULL
                                   ? trace_generate((size_t)options->requests,
                                             (uint32_t)options->tokens, &setup->trace, why)
                                   : trace_load(options->trace, &limits, &setup->trace, why);
    return is_loaded || fail(setup, "%s", why);
}

static bool load_geometry(pair_setup *setup, kv_geometry *geometry)
{
    const pair_options *const options = &setup->options;
    char why[GEOMETRY_WHY_MAX];
    const bool is_known =
            options->token_bytes == NULL
                    ? geometry_find(options->model, (uint32_t)options->layers, geometry, why)
                    : geometry_parse(options->token_bytes, (uint32_t)options->layers, geometry, why);
    if (!is_known)
        return fail(setup, "%s", why);
    if (options->axis == NULL)
        return true;
    if (strlen(options->axis) >= sizeof(geometry->axis))
        return fail(setup, "--axis %s: longer than %zu letters", options->axis,
                sizeof(geometry->axis) - 1);
    (void)snprintf(geometry->axis, sizeof(geometry->axis), "%s", options->axis);
    return true;
}

static bool open_store(pair_setup *setup)
{
    const pair_options *const options = &setup->options;
    kv_geometry geometry;
    if (!load_geometry(setup, &geometry))
        return false;

    const store_params params = {
        .geometry = &geometry,
        .first_rank = options->rank < 0 ? 0 : (uint32_t)options->rank,
        .rank_count = options->rank < 0 ? (uint32_t)options->ranks : 1,
        .page_tokens = (uint32_t)options->page_tokens,
        .page_count = (uint32_t)(options->pool_tokens / options->page_tokens),
    };
    char why[STORE_WHY_MAX];
    if (!store_open(&params, &setup->store, why))
        return fail(setup, "%s", why);
    setup->cache = cache_create(params.page_count, params.page_tokens, store_poison, &setup->store);
    return setup->cache != NULL || fail(setup, "out of memory");
}

static void describe(const pair_setup *setup)
{
    const kv_store *const store = &setup->store;
    const kv_geometry *const geometry = &store->geometry;

    (void)fprintf(setup->out, "%s %s: %s, %u", program_name(setup), kvx_version(), geometry->model,
            geometry->layers);
    if (geometry->model_layers != 0)
        (void)fprintf(setup->out, " of %u", geometry->model_layers);
    (void)fprintf(setup->out, " layers, bytes per token and layer:");
    for (uint32_t i = 0; i < geometry->role_count; i++)
        (void)fprintf(setup->out, " %s %u", geometry->roles[i].name, geometry->roles[i].token_bytes);
    (void)fprintf(setup->out,
            "\npool: %u pages of %u tokens, %.2f GiB a rank, %.2f GiB for %u ranks\n",
            store->page_count, store->page_tokens, (double)store->rank_bytes / GIB,
            (double)store->rank_bytes * store->rank_count / GIB, store->rank_count);
    const double tokens = (double)setup->trace.tokens;
    (void)fprintf(setup->out, "requests: %zu of %s, %.2f M tokens, %.2f GiB over all ranks\n",
            setup->trace.count,
            setup->options.trace == NULL ? "our own making" : setup->options.trace, tokens / 1e6,
            tokens * (double)geometry_token_bytes(geometry) * store->rank_count / GIB);
}

bool setup_open(pair_setup *setup, const pair_options *options)
{
    *setup = (pair_setup){ .options = *options, .out = options->json ? stderr : stdout };
    (void)setvbuf(setup->out, NULL, _IOLBF, 0);
    if (!load_settings(setup)) /* says what is wrong by itself, so the log may stay silent */
        return false;
    kvx_log_set(log_line, setup, options->log_level);
    if (options->print_config) {
        kvx_config_print(setup->config, stdout);
        return true;
    }
    if (!address_of_rank(options->address, options->rank, setup->address, sizeof(setup->address)))
        return fail(setup,
                "address %s: say host:port, [addr]:port or unix:/path, with a port that "
                "leaves room for the rank",
                options->address);
    if (!load_requests(setup) || !open_store(setup))
        return false;
    describe(setup);
    return true;
}

bool setup_open_group(pair_setup *setup)
{
    const pair_options *const options = &setup->options;
    const kv_store *const store = &setup->store;
    const bool is_prefill = options->role == OPTIONS_PREFILL;
    char model[GEOMETRY_NAME_MAX + 8];
    (void)snprintf(model, sizeof(model), "%s bf16", store->geometry.model);

    const kvx_group_params *params = KVX_GROUP_PARAMS(.config = setup->config,
            .layouts = store->layouts, .compat = options->compat == NULL ? model : options->compat,
            .first_rank = store->first_rank, .rank_count = store->rank_count,
            .ranks = (uint32_t)options->ranks, .listen = is_prefill ? setup->address : NULL);
    const kvx_status st = kvx_group_open(params, &setup->group);
    if (st == KVX_OK) {
        setup_write_metrics(setup, true); /* while it is early enough to choose another file */
        return !setup->is_metrics_lost;
    }
    if (is_prefill && st == KVX_IO)
        return fail(setup,
                "cannot listen on %s (%s): choose a free port and an address of this "
                "host with --listen",
                setup->address, kvx_status_text(st));
    return fail(setup, "cannot open the group: %s", kvx_status_text(st));
}

void setup_close(pair_setup *setup, uint32_t timeout_ms)
{
    const kvx_status st = setup->group == NULL ? KVX_OK : kvx_group_close(&setup->group, timeout_ms);
    kvx_config_destroy(&setup->config);
    trace_free(&setup->trace);
    cache_destroy(&setup->cache);
    /* Where the other side may still read, the memory stays until the process ends. */
    if (st == KVX_OK)
        store_close(&setup->store);
}

void setup_write_metrics(pair_setup *setup, bool is_now)
{
    const uint64_t now_ns = host_now_ns();
    if (setup->options.metrics == NULL ||
            (!is_now && now_ns - setup->metrics_ns < HOST_NS_PER_SECOND))
        return;
    setup->metrics_ns = now_ns;
    if (metrics_file_write(setup->group, setup->store.rank_count, setup->options.metrics))
        return;
    if (!setup->is_metrics_lost)
        (void)fail(setup, "cannot write the metrics to %s: %s: name another file with --metrics",
                setup->options.metrics, strerror(errno));
    setup->is_metrics_lost = true;
}

bool setup_is_written(pair_setup *setup)
{
    if (fflush(stdout) != 0 || ferror(stdout) != 0)
        return fail(setup, "what was printed is lost: cannot write to the standard output: %s",
                strerror(errno));
    return !setup->is_metrics_lost;
}
