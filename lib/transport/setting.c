/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/setting.h"

#include <stdbool.h>
#include <string.h>

#include "base/log.h"

static const struct kvx_transport_setting *row_find(const kvx_transport_ops *ops, const char *key)
{
    const struct kvx_transport_setting *row = ops->settings;
    while (row != NULL && row->key != NULL && strcmp(row->key, key) != 0)
        row++;
    return row != NULL && row->key != NULL ? row : NULL;
}

static bool unit_parse(const char *text, uint64_t *factor_out)
{
    static const struct {
        const char *name;
        uint64_t factor;
    } units[] = {
        { "", 1 },
        { "KiB", UINT64_C(1) << 10 },
        { "MiB", UINT64_C(1) << 20 },
        { "GiB", UINT64_C(1) << 30 },
    };
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (strcmp(text, units[i].name) == 0) {
            *factor_out = units[i].factor;
            return true;
        }
    }
    return false;
}

static bool number_parse(const char *text, uint64_t *value_out)
{
    uint64_t value = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++) {
        if (__builtin_mul_overflow(value, 10, &value) ||
                __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
            return false;
    }
    at += strspn(at, " ");
    uint64_t factor;
    return text[0] >= '0' && text[0] <= '9' && unit_parse(at, &factor) &&
           !__builtin_mul_overflow(value, factor, value_out);
}

kvx_status kvx_setting_number(const kvx_transport_ops *ops, const kvx_domain_params *params,
        const char *key, uint64_t *value_out)
{
    const struct kvx_transport_setting *row = row_find(ops, key);
    KVX_ENSURE(row != NULL, KVX_INVALID);

    const char *text = params->setting != NULL ? params->setting(params->arg, key) : NULL;
    if (text == NULL)
        text = row->default_value;
    uint64_t value = 0;
    if (!number_parse(text, &value) || value < row->min || value > row->max) {
        kvx_log(KVX_LOG_ERROR, "%s.%s: %s is not a number from %llu to %llu", ops->name, key, text,
                (unsigned long long)row->min, (unsigned long long)row->max);
        return KVX_INVALID;
    }
    *value_out = value;
    return KVX_OK;
}
