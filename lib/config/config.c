/* SPDX-License-Identifier: Apache-2.0 */
#include "kvx/config.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "config/entry.h"
#include "config/settings.h"

static size_t entry_count(void)
{
    size_t count = kvx_settings_table_count;
    const kvx_transport_ops *ops;
    for (size_t i = 0; (ops = kvx_transport_at(i)) != NULL; i++) {
        const struct kvx_transport_setting *setting = ops->settings;
        for (; setting != NULL && setting->key != NULL; setting++)
            count++;
    }
    return count;
}

static void entry_add(kvx_config *config, const kvx_transport_ops *ops, kvx_field field)
{
    kvx_entry *entry = &config->entries[config->count++];
    *entry = (kvx_entry){ .transport = ops, .field = field };
    (void)snprintf(entry->name, sizeof(entry->name), "%s%s%s", ops == NULL ? "" : ops->name,
            ops == NULL ? "" : ".", field.key);
    (void)snprintf(entry->value, sizeof(entry->value), "%s", field.default_text);
    (void)snprintf(entry->source, sizeof(entry->source), "default");
}

kvx_status kvx_config_create(kvx_config **config_out)
{
    kvx_config *config = calloc(1, sizeof(*config));
    KVX_ENSURE(config != NULL, KVX_NO_MEMORY);
    config->entries = calloc(entry_count(), sizeof(*config->entries));
    if (config->entries == NULL) {
        kvx_config_destroy(&config);
        return KVX_NO_MEMORY;
    }
    for (size_t i = 0; i < kvx_settings_table_count; i++)
        entry_add(config, NULL, kvx_settings_table[i]);
    const kvx_transport_ops *ops;
    for (size_t i = 0; (ops = kvx_transport_at(i)) != NULL; i++) {
        const struct kvx_transport_setting *setting = ops->settings;
        for (; setting != NULL && setting->key != NULL; setting++)
            entry_add(config, ops, kvx_field_from_transport(setting));
    }
    *config_out = config;
    return KVX_OK;
}

void kvx_config_destroy(kvx_config **config)
{
    if (config == NULL || *config == NULL)
        return;
    free((*config)->entries);
    free(*config);
    *config = NULL;
}

kvx_status kvx_config_copy(const kvx_config *config, kvx_config **copy_out)
{
    kvx_config *copy = malloc(sizeof(*copy));
    KVX_ENSURE(copy != NULL, KVX_NO_MEMORY);
    *copy = *config;
    copy->entries = malloc(config->count * sizeof(*copy->entries));
    if (copy->entries == NULL) {
        kvx_config_destroy(&copy);
        return KVX_NO_MEMORY;
    }
    memcpy(copy->entries, config->entries, config->count * sizeof(*copy->entries));
    *copy_out = copy;
    return KVX_OK;
}

/* The sentence may quote a file or the environment, and goes to a terminal. */
static void controls_hide(char *text)
{
    for (; *text != '\0'; text++) {
        if (iscntrl((unsigned char)*text))
            *text = '?';
    }
}

kvx_status kvx_config_fail(
        kvx_config *config, kvx_status status, const char *place, const char *format, ...)
{
    char sentence[400];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(sentence, sizeof(sentence), format, args);
    va_end(args);
    (void)snprintf(config->error, sizeof(config->error), "%.200s%s%s", place == NULL ? "" : place,
            place == NULL ? "" : ": ", sentence);
    controls_hide(config->error);
    kvx_log(KVX_LOG_ERROR, "config: %s", config->error);
    return status;
}

kvx_entry *kvx_config_find(const kvx_config *config, const char *name)
{
    for (size_t i = 0; i < config->count; i++) {
        if (strcmp(config->entries[i].name, name) == 0)
            return &config->entries[i];
    }
    return NULL;
}

/* Who stopped in the middle of a name meant that one. */
static size_t entry_distance(const kvx_entry *entry, const char *name)
{
    char beginning[KVX_SETTING_NAME_BYTES];
    const size_t length = strnlen(name, sizeof(beginning) - 1);
    (void)snprintf(beginning, sizeof(beginning), "%.*s", (int)length, entry->name);
    if (length >= 4 && kvx_name_distance(beginning, name) == 0)
        return 1;
    return kvx_name_distance(entry->name, name);
}

kvx_entry *kvx_config_nearest(const kvx_config *config, const char *name)
{
    kvx_entry *nearest = &config->entries[0];
    size_t nearest_distance = SIZE_MAX;
    for (size_t i = 0; i < config->count; i++) {
        const size_t distance = entry_distance(&config->entries[i], name);
        if (distance < nearest_distance) {
            nearest_distance = distance;
            nearest = &config->entries[i];
        }
    }
    return nearest;
}

/* The value without the white space around it, which a file would not keep either. */
static void value_trim(const char *value, char *text, size_t size)
{
    while (isspace((unsigned char)*value))
        value++;
    size_t length = strlen(value);
    while (length > 0 && isspace((unsigned char)value[length - 1]))
        length--;
    if (length >= size)
        length = size - 1;
    memcpy(text, value, length);
    text[length] = '\0';
}

/* The end of a long source tells more than its beginning. */
static void source_keep(kvx_entry *entry, const char *source)
{
    const size_t length = strlen(source);
    const size_t room = sizeof(entry->source) - sizeof("...");
    const bool is_long = length > room;
    (void)snprintf(entry->source, sizeof(entry->source), "%s%s", is_long ? "..." : "",
            is_long ? source + length - room : source);
    controls_hide(entry->source);
}

kvx_status kvx_config_assign(kvx_config *config, kvx_entry *entry, const char *value,
        const char *source, const char *place)
{
    /* One more byte than a value may have, so that a longer one is still seen to be. */
    char text[KVX_SETTING_VALUE_BYTES + 1];
    char why[224];
    value_trim(value, text, sizeof(text));
    const kvx_status status = kvx_field_check(&entry->field, text, why, sizeof(why));
    if (status != KVX_OK)
        return kvx_config_fail(config, status, place, "%s = %.80s %s", entry->name, text, why);
    memcpy(entry->value, text, strlen(text) + 1);
    source_keep(entry, source);
    return KVX_OK;
}

kvx_status kvx_config_set(kvx_config *config, const char *key, const char *value)
{
    kvx_entry *entry = kvx_config_find(config, key);
    if (entry == NULL)
        return kvx_config_fail(config, KVX_NOT_FOUND, NULL, "no setting %.80s, the nearest is %s",
                key, kvx_config_nearest(config, key)->name);
    return kvx_config_assign(config, entry, value, "program", NULL);
}

const char *kvx_config_get(const kvx_config *config, const char *key)
{
    const kvx_entry *entry = kvx_config_find(config, key);
    return entry == NULL ? NULL : entry->value;
}

const char *kvx_config_transport_setting(
        const kvx_config *config, const char *transport, const char *key)
{
    for (size_t i = 0; i < config->count; i++) {
        const kvx_entry *entry = &config->entries[i];
        if (entry->transport != NULL && strcmp(entry->transport->name, transport) == 0 &&
                strcmp(entry->field.key, key) == 0)
            return entry->value;
    }
    return NULL;
}

const char *kvx_config_error(const kvx_config *config)
{
    return config->error;
}
