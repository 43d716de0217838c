/* SPDX-License-Identifier: Apache-2.0 */
/* model run --seeds N [--first S] [--set NAME|all] [--fault NAME]: many seeds; the first broken
 * rule ends it with status 1. model trace --seed N --set NAME: one seed, step by step. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scenario.h"

typedef struct options {
    bool is_trace;
    uint64_t seeds;
    uint64_t first;
    const model_set *set; /* NULL: all, in turn */
    const char *fault;
    faults faults;
} options;

static const struct {
    const char *name;
    size_t offset;
} fault_names[] = {
    { "cached-now-owner", offsetof(faults, cached_now_owner) },
    { "cached-now-reader", offsetof(faults, cached_now_reader) },
    { "late-reply", offsetof(faults, late_reply) },
    { "reregister-early", offsetof(faults, reregister_early) },
};

static bool parse_fault(options *o, const char *name)
{
    for (size_t i = 0; i < sizeof(fault_names) / sizeof(*fault_names); i++) {
        if (strcmp(fault_names[i].name, name) != 0)
            continue;
        *(bool *)((char *)&o->faults + fault_names[i].offset) = true;
        o->fault = fault_names[i].name;
        return true;
    }
    return false;
}

static bool parse_option(options *o, const char *key, const char *value)
{
    if (strcmp(key, "--seeds") == 0)
        o->seeds = strtoull(value, NULL, 10);
    else if (strcmp(key, "--first") == 0 || strcmp(key, "--seed") == 0)
        o->first = strtoull(value, NULL, 10);
    else if (strcmp(key, "--fault") == 0)
        return parse_fault(o, value);
    else if (strcmp(key, "--set") == 0 && strcmp(value, "all") != 0)
        return (o->set = scenario_find(value)) != NULL;
    else
        return strcmp(key, "--set") == 0;
    return true;
}

static bool parse(options *o, int argc, char **argv)
{
    if (argc < 2 || (strcmp(argv[1], "run") != 0 && strcmp(argv[1], "trace") != 0))
        return false;
    o->is_trace = strcmp(argv[1], "trace") == 0;
    for (int i = 2; i < argc; i += 2) {
        if (i + 1 == argc || !parse_option(o, argv[i], argv[i + 1]))
            return false;
    }
    return !o->is_trace || o->set != NULL;
}

static const model_set *set_of(const options *o, uint64_t seed)
{
    size_t count = 0;

    if (o->set != NULL)
        return o->set;
    while (scenario_set(count) != NULL)
        count++;
    return scenario_set(seed % count);
}

static int trace_seed(const options *o)
{
    static world w;
    bool is_good = scenario_run(&w, o->set, o->first, &o->faults, true);

    printf("seed %llu set %s: %s\n", (unsigned long long)o->first, o->set->name,
            is_good ? "no rule is broken" : w.violation);
    world_fini(&w);
    return is_good ? 0 : 1;
}

static int run_seeds(const options *o)
{
    static world w;
    uint64_t pulled = 0, failed = 0, held = 0, stopped = 0, hung = 0, happened = 0;

    for (uint64_t seed = o->first; seed < o->first + o->seeds; seed++) {
        const model_set *set = set_of(o, seed);
        if (!scenario_run(&w, set, seed, &o->faults, false)) {
            printf("seed %llu set %s run %llu: %s\n", (unsigned long long)seed, set->name,
                    (unsigned long long)(seed - o->first + 1), w.violation);
            world_fini(&w);
            return 1;
        }
        pulled += w.pulled;
        failed += w.failed;
        held += w.held;
        stopped += w.excused_stop;
        hung += w.excused_hang;
        happened += w.happened;
    }
    printf("%llu seeds, no rule broken: %llu pulled, %llu failed, %llu held; excused by "
           "stops "
           "%llu, by hanging closes %llu; %llu happenings\n",
            (unsigned long long)o->seeds, (unsigned long long)pulled, (unsigned long long)failed,
            (unsigned long long)held, (unsigned long long)stopped, (unsigned long long)hung,
            (unsigned long long)happened);
    world_fini(&w);
    return 0;
}

int main(int argc, char **argv)
{
    options o = { .seeds = 10000, .first = 1 };

    if (!parse(&o, argc, argv)) {
        fprintf(stderr,
                "usage: %s run [--seeds N] [--first SEED] [--set NAME|all] [--fault "
                "NAME]\n"
                "       %s trace --seed N --set NAME [--fault NAME]\n",
                argv[0], argv[0]);
        return 2;
    }
    return o.is_trace ? trace_seed(&o) : run_seeds(&o);
}
