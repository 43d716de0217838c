/* SPDX-License-Identifier: Apache-2.0 */
#include "pair/metrics_file.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Print the lines of one family and step past them. Headings are the first rank's alone. */
static char *family_print(char *text, bool with_heading, FILE *out)
{
    bool has_samples = false;
    while (*text != '\0') {
        const bool is_heading = *text == '#';
        if (is_heading && has_samples)
            break;
        const char *end = strchr(text, '\n');
        const size_t length = end == NULL ? strlen(text) : (size_t)(end - text) + 1;
        if (!is_heading || with_heading)
            (void)fwrite(text, 1, length, out);
        has_samples = has_samples || !is_heading;
        text += length;
    }
    return text;
}

void metrics_merge(char **texts, uint32_t count, FILE *out)
{
    while (count > 0 && *texts[0] != '\0')
        for (uint32_t i = 0; i < count; i++)
            texts[i] = family_print(texts[i], i == 0, out);
}

static char *node_text(kvx_node *node)
{
    const size_t room = 1024; /* numbers may grow between the two calls */
    const size_t size = kvx_node_metrics_text(node, NULL, 0) + room;
    char *text = calloc(1, size);
    if (text != NULL)
        (void)kvx_node_metrics_text(node, text, size);
    return text;
}

static bool file_write(char **texts, uint32_t count, const char *path)
{
    FILE *file = fopen(path, "we");
    if (file == NULL)
        return false;
    metrics_merge(texts, count, file);
    const bool is_written = ferror(file) == 0;
    return fclose(file) == 0 && is_written;
}

/* What is no regular file, a pipe or a terminal, is written to and not replaced. */
static bool is_replaceable(const char *path)
{
    struct stat facts;
    return stat(path, &facts) != 0 || S_ISREG(facts.st_mode);
}

static bool texts_write(char **texts, uint32_t count, const char *path)
{
    if (!is_replaceable(path))
        return file_write(texts, count, path);
    char *temporary = NULL;
    if (asprintf(&temporary, "%s.new", path) < 0)
        return false;
    const bool is_written = file_write(texts, count, temporary) && rename(temporary, path) == 0;
    free(temporary);
    return is_written;
}

bool metrics_file_write(kvx_group *group, uint32_t rank_count, const char *path)
{
    char *texts[KVX_GROUP_RANKS_MAX] = { 0 };
    char *cursors[KVX_GROUP_RANKS_MAX];
    bool is_written = true;

    for (uint32_t i = 0; i < rank_count && is_written; i++) {
        texts[i] = node_text(kvx_group_node(group, i));
        cursors[i] = texts[i];
        is_written = texts[i] != NULL;
    }
    is_written = is_written && texts_write(cursors, rank_count, path);
    for (uint32_t i = 0; i < rank_count; i++)
        free(texts[i]);
    return is_written;
}
