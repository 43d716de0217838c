/* SPDX-License-Identifier: Apache-2.0 */
/* Settings from a file and from the environment. inih cuts what is longer than its line buffer
 * and goes on after an error, so lines are read and checked here before it sees them. */
#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "config/entry.h"
#include "kvx/config.h"

#define ENV_PREFIX "KVX_"
/* Left to tests. */
#define ENV_PREFIX_TEST "KVX_TEST_"

/* A file while it is read. */
typedef struct file_load {
    kvx_config *config;
    FILE *file;
    const char *path;
    int line;          /* that was read last, from 1 */
    kvx_status status; /* of the first line that failed */
} file_load;

/* `path:line`, the tail of it when the path is long. */
typedef struct place {
    char text[192];
} place;

static place place_at(const file_load *load, int line)
{
    place at;
    const size_t length = strlen(load->path);
    const size_t room = sizeof(at.text) - 16;
    (void)snprintf(at.text, sizeof(at.text), "%s:%d",
            length > room ? load->path + length - room : load->path, line);
    return at;
}

static kvx_status line_fail(file_load *load, const char *what)
{
    const place at = place_at(load, load->line);
    return kvx_config_fail(load->config, KVX_INVALID, at.text, "%s", what);
}

/* One line without the white space before it, which inih would take for a line that goes on.
 * Returns false at the end of the file and on a line that is refused. */
static bool line_read(file_load *load, char *text, size_t size)
{
    size_t length = 0;
    int c;
    load->line++;
    while ((c = getc(load->file)) != EOF && c != '\n') {
        if (length == 0 && isspace(c))
            continue;
        if (c == '\0') {
            load->status = line_fail(load, "the line has a zero byte");
            return false;
        }
        if (length + 2 > size) {
            const place at = place_at(load, load->line);
            load->status = kvx_config_fail(load->config, KVX_INVALID, at.text,
                    "the line is longer than %zu characters", size - 1);
            return false;
        }
        text[length++] = (char)c;
    }
    text[length] = '\0';
    return c != EOF || length > 0;
}

static char *load_line(char *text, int size, void *stream)
{
    file_load *load = stream;
    if (load->status != KVX_OK || !line_read(load, text, (size_t)size))
        return NULL;
    return text;
}

/* The longest name that fits was asked for: what inih has cut differs from every setting. */
static void name_join(const char *section, const char *key, char *name, size_t size)
{
    (void)snprintf(name, size, "%s%s%s", section, section[0] == '\0' ? "" : ".", key);
}

/* Returns what inih wants: 0 is failure. */
static int load_value(void *user, const char *section, const char *key, const char *value)
{
    file_load *load = user;
    char name[2 * KVX_SETTING_NAME_BYTES];
    if (load->status != KVX_OK)
        return 0;
    name_join(section, key, name, sizeof(name));
    const place at = place_at(load, load->line);
    kvx_entry *entry = kvx_config_find(load->config, name);
    if (entry == NULL)
        load->status = kvx_config_fail(load->config, KVX_NOT_FOUND, at.text,
                "no setting %.80s, the nearest is %s", name,
                kvx_config_nearest(load->config, name)->name);
    else
        load->status = kvx_config_assign(
                load->config, entry, value == NULL ? "" : value, at.text, at.text);
    return load->status == KVX_OK;
}

static kvx_status load_result(file_load *load, int first_line)
{
    if (load->status != KVX_OK)
        return load->status;
    if (first_line == -2)
        return kvx_config_fail(
                load->config, KVX_NO_MEMORY, NULL, "%.160s: out of memory", load->path);
    if (ferror(load->file))
        return kvx_config_fail(
                load->config, KVX_IO, NULL, "%.160s: %s", load->path, strerror(errno));
    if (first_line == 0)
        return KVX_OK;
    load->line = first_line;
    return line_fail(load, "neither [section] nor key = value");
}

kvx_status kvx_config_load_file(kvx_config *config, const char *path)
{
    file_load load = { .config = config, .path = path };
    load.file = fopen(path, "re");
    if (load.file == NULL) {
        const kvx_status status = errno == ENOMEM ? KVX_NO_MEMORY : KVX_NOT_FOUND;
        return kvx_config_fail(config, status, NULL, "%.160s: %s", path, strerror(errno));
    }
    const int first_line = ini_parse_stream(load_line, &load, load_value, &load);
    const kvx_status status = load_result(&load, first_line);
    (void)fclose(load.file);
    return status;
}

/* `transport.key` is KVX_TRANSPORT_KEY. */
static void env_name(const kvx_entry *entry, char *name, size_t size)
{
    (void)snprintf(name, size, ENV_PREFIX "%s", entry->name);
    for (; *name != '\0'; name++)
        *name = (char)(isalnum((unsigned char)*name) ? toupper((unsigned char)*name) : '_');
}

static kvx_entry *env_find(const kvx_config *config, const char *variable)
{
    char name[sizeof(ENV_PREFIX) + KVX_SETTING_NAME_BYTES];
    for (size_t i = 0; i < config->count; i++) {
        env_name(&config->entries[i], name, sizeof(name));
        if (strcmp(name, variable) == 0)
            return &config->entries[i];
    }
    return NULL;
}

static kvx_status env_unknown(kvx_config *config, const char *variable)
{
    char name[sizeof(ENV_PREFIX) + KVX_SETTING_NAME_BYTES];
    const char *part = variable + strlen(ENV_PREFIX);
    size_t length = 0;
    for (; part[length] != '\0' && length < KVX_SETTING_NAME_BYTES - 1; length++)
        name[length] = (char)tolower((unsigned char)part[length]);
    name[length] = '\0';
    const kvx_entry *nearest = kvx_config_nearest(config, name);
    env_name(nearest, name, sizeof(name));
    return kvx_config_fail(
            config, KVX_NOT_FOUND, NULL, "no setting %.80s, the nearest is %s", variable, name);
}

static kvx_status env_load(kvx_config *config, const char *assignment)
{
    char variable[KVX_SETTING_NAME_BYTES * 2];
    const char *equals = strchr(assignment, '=');
    if (equals == NULL)
        return KVX_OK;
    (void)snprintf(variable, sizeof(variable), "%.*s",
            (int)(equals - assignment < 127 ? equals - assignment : 127), assignment);
    kvx_entry *entry = env_find(config, variable);
    if (entry == NULL)
        return env_unknown(config, variable);
    return kvx_config_assign(config, entry, equals + 1, "environment", variable);
}

kvx_status kvx_config_load_env(kvx_config *config)
{
    for (char **at = environ; at != NULL && *at != NULL; at++) {
        if (strncmp(*at, ENV_PREFIX, strlen(ENV_PREFIX)) != 0 ||
                strncmp(*at, ENV_PREFIX_TEST, strlen(ENV_PREFIX_TEST)) == 0)
            continue;
        KVX_TRY(env_load(config, *at));
    }
    return KVX_OK;
}
