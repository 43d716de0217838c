/* SPDX-License-Identifier: Apache-2.0 */
#include "config/table.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *text;
    unsigned shift;
} suffixes[] = { { "GiB", 30 }, { "MiB", 20 }, { "KiB", 10 }, { "", 0 } };

#define SUFFIX_COUNT (sizeof(suffixes) / sizeof(suffixes[0]))

kvx_field kvx_field_from_transport(const struct kvx_transport_setting *setting)
{
    const bool is_text = setting->min == 0 && setting->max == 0;
    return (kvx_field){
        .key = setting->key,
        .default_text = setting->default_value,
        .kind = is_text ? KVX_FIELD_TEXT : KVX_FIELD_BYTES,
        .min = setting->min,
        .max = setting->max,
        .help = setting->help,
    };
}

/* Digits alone, or digits and a suffix; nothing else, and no overflow. */
static bool number_parse(const char *text, bool takes_suffix, uint64_t *number_out)
{
    uint64_t number = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++) {
        if (__builtin_mul_overflow(number, 10, &number) ||
                __builtin_add_overflow(number, (uint64_t)(*at - '0'), &number))
            return false;
    }
    if (at == text || (*at != '\0' && !takes_suffix))
        return false;
    for (size_t i = 0; i < SUFFIX_COUNT; i++) {
        if (strcmp(at, suffixes[i].text) != 0)
            continue;
        if (number > UINT64_MAX >> suffixes[i].shift)
            return false;
        *number_out = number << suffixes[i].shift;
        return true;
    }
    return false;
}

/* A number the way one would write it in a file. */
static void number_print(const kvx_field *field, uint64_t number, char *text, size_t size)
{
    size_t i = 0;
    const bool takes_suffix =
            field->kind == KVX_FIELD_BYTES && number != 0 && strstr(field->key, "bytes") != NULL;
    if (!takes_suffix)
        i = SUFFIX_COUNT - 1;
    while (i < SUFFIX_COUNT - 1 && number % (UINT64_C(1) << suffixes[i].shift) != 0)
        i++;
    (void)snprintf(text, size, "%llu%s", (unsigned long long)(number >> suffixes[i].shift),
            suffixes[i].text);
}

/* The i-th name a choice or the transport may have, NULL past the last. */
static const char *choice_at(const kvx_field *field, size_t index)
{
    if (field->kind == KVX_FIELD_CHOICE)
        return field->choices[index];
    if (index == 0)
        return "auto";
    const kvx_transport_ops *ops = kvx_transport_at(index - 1);
    return ops == NULL ? NULL : ops->name;
}

static bool choice_find(const kvx_field *field, const char *text, uint64_t *index_out)
{
    const char *choice;
    for (size_t i = 0; (choice = choice_at(field, i)) != NULL; i++) {
        if (strcmp(choice, text) == 0) {
            *index_out = i;
            return true;
        }
    }
    return false;
}

static void choices_print(const kvx_field *field, char *text, size_t size)
{
    size_t length = 0;
    text[0] = '\0';
    for (size_t i = 0; choice_at(field, i) != NULL && length < size; i++)
        length += (size_t)snprintf(
                text + length, size - length, "%s%s", i == 0 ? "" : ", ", choice_at(field, i));
}

void kvx_field_allowed(const kvx_field *field, char *text, size_t size)
{
    char min[32];
    char max[32];
    switch (field->kind) {
    case KVX_FIELD_CHOICE:
    case KVX_FIELD_TRANSPORT: choices_print(field, text, size); return;
    case KVX_FIELD_TEXT: (void)snprintf(text, size, "any text"); return;
    case KVX_FIELD_COUNT:
    case KVX_FIELD_BYTES:
    case KVX_FIELD_MS: break;
    }
    number_print(field, field->min, min, sizeof(min));
    number_print(field, field->max, max, sizeof(max));
    (void)snprintf(text, size, "%s ... %s", min, max);
}

/* Whether a file can hold the text as it is; inih takes a semicolon for a comment. */
static bool text_is_plain(const char *text)
{
    for (const char *at = text; *at != '\0'; at++) {
        if ((unsigned char)*at < ' ' || *at == 0x7f || *at == ';')
            return false;
    }
    return true;
}

static kvx_status number_check(const kvx_field *field, const char *text, char *why, size_t size)
{
    uint64_t number = 0;
    char allowed[96];
    kvx_field_allowed(field, allowed, sizeof(allowed));
    if (!number_parse(text, field->kind == KVX_FIELD_BYTES, &number)) {
        (void)snprintf(why, size, "is not a number%s, allowed are %s",
                field->kind == KVX_FIELD_BYTES ? " with or without KiB, MiB or GiB" : "", allowed);
        return KVX_INVALID;
    }
    if (number < field->min || number > field->max) {
        (void)snprintf(why, size, "is out of range, allowed are %s", allowed);
        return KVX_INVALID;
    }
    return KVX_OK;
}

static kvx_status choice_check(const kvx_field *field, const char *text, char *why, size_t size)
{
    uint64_t index = 0;
    char allowed[160];
    if (choice_find(field, text, &index))
        return KVX_OK;
    kvx_field_allowed(field, allowed, sizeof(allowed));
    (void)snprintf(why, size, "is not known, allowed are %s", allowed);
    return KVX_INVALID;
}

kvx_status kvx_field_check(const kvx_field *field, const char *text, char *why, size_t size)
{
    if (strlen(text) >= KVX_SETTING_VALUE_BYTES) {
        (void)snprintf(why, size, "is longer than %d characters", KVX_SETTING_VALUE_BYTES - 1);
        return KVX_INVALID;
    }
    if (!text_is_plain(text)) {
        (void)snprintf(why, size, "has a semicolon or a control character");
        return KVX_INVALID;
    }
    switch (field->kind) {
    case KVX_FIELD_COUNT:
    case KVX_FIELD_BYTES:
    case KVX_FIELD_MS: return number_check(field, text, why, size);
    case KVX_FIELD_CHOICE:
    case KVX_FIELD_TRANSPORT: return choice_check(field, text, why, size);
    case KVX_FIELD_TEXT: break;
    }
    return KVX_OK;
}

uint64_t kvx_field_number(const kvx_field *field, const char *text)
{
    uint64_t number = 0;
    if (field->kind == KVX_FIELD_CHOICE || field->kind == KVX_FIELD_TRANSPORT)
        (void)choice_find(field, text, &number);
    else
        (void)number_parse(text, field->kind == KVX_FIELD_BYTES, &number);
    return number;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* `cma.call_bytes` and KVX_CMA_CALL_BYTES differ in nothing. */
static bool is_same(char a, char b)
{
    return a == b || (a == '.' && b == '_') || (a == '_' && b == '.');
}

/* One row of the table of distances between all beginnings; what is longer than any name is
 * cut. */
size_t kvx_name_distance(const char *a, const char *b)
{
    size_t row[KVX_SETTING_NAME_BYTES + 1];
    const size_t a_length = strnlen(a, KVX_SETTING_NAME_BYTES);
    const size_t b_length = strnlen(b, KVX_SETTING_NAME_BYTES);
    for (size_t j = 0; j <= b_length; j++)
        row[j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            const size_t replaced = diagonal + !is_same(a[i - 1], b[j - 1]);
            diagonal = row[j];
            row[j] = least(replaced, least(row[j], row[j - 1]) + 1);
        }
    }
    return row[b_length];
}
