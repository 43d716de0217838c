/* SPDX-License-Identifier: Apache-2.0 */
#include "pair/geometry.h"

#include "kvx/layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKEN_BYTES_MAX (1 << 24)

/* Bytes of one token, layer and rank, in bf16.
 * DeepSeek keeps one latent of 512 + 64 elements a token and layer on every rank.
 * Llama-3.1-70B has 8 KV heads of 128: one a rank. Qwen3-235B has 4, so each lies on two ranks. */
static const kv_geometry models[] = {
    { "deepseek-671b", "token,latent", 61, 61, 1, { { "mla", (512 + 64) * 2 } } },
    { "llama-3.1-70b", "token,head,dim", 80, 80, 2, { { "k", 128 * 2 }, { "v", 128 * 2 } } },
    { "qwen3-235b", "token,head,dim", 94, 94, 2, { { "k", 128 * 2 }, { "v", 128 * 2 } } },
};

#define MODEL_COUNT (sizeof(models) / sizeof(models[0]))

const char *geometry_models(void)
{
    return "deepseek-671b, llama-3.1-70b, qwen3-235b";
}

bool geometry_find(const char *model, uint32_t layers, kv_geometry *geometry_out,
        char why_out[GEOMETRY_WHY_MAX])
{
    for (size_t i = 0; i < MODEL_COUNT; i++) {
        if (strcmp(models[i].model, model) != 0)
            continue;
        if (layers > models[i].model_layers) {
            (void)snprintf(why_out, GEOMETRY_WHY_MAX, "--layers %u: %s has %u", layers, model,
                    models[i].model_layers);
            return false;
        }
        *geometry_out = models[i];
        if (layers != 0)
            geometry_out->layers = layers;
        return true;
    }
    (void)snprintf(why_out, GEOMETRY_WHY_MAX,
            "--model %s is not built in; there are %s, or say --token-bytes and --layers", model,
            geometry_models());
    return false;
}

/* "name:bytes" or "bytes". */
static bool parse_role(const char *text, geometry_role *role)
{
    const char *colon = strchr(text, ':');
    const size_t length = colon == NULL ? 0 : (size_t)(colon - text);
    if (length >= sizeof(role->name) || (colon != NULL && length == 0))
        return false;
    if (colon == NULL)
        (void)snprintf(role->name, sizeof(role->name), "kv");
    else
        (void)snprintf(role->name, sizeof(role->name), "%.*s", (int)length, text);

    const char *number = colon == NULL ? text : colon + 1;
    char *end = NULL;
    const unsigned long bytes = strtoul(number, &end, 10);
    if (*number < '0' || *number > '9' || *end != '\0' || bytes % 8 != 0)
        return false;
    role->token_bytes = (uint32_t)bytes;
    return bytes > 0 && bytes <= TOKEN_BYTES_MAX;
}

static bool is_known_role(const kv_geometry *geometry, const char *name)
{
    for (uint32_t i = 0; i < geometry->role_count; i++)
        if (strcmp(geometry->roles[i].name, name) == 0)
            return true;
    return false;
}

static bool parse_roles(char *list, kv_geometry *geometry)
{
    for (char *save = NULL, *item = strtok_r(list, ",", &save); item != NULL;
            item = strtok_r(NULL, ",", &save)) {
        geometry_role role = { 0 };
        if (geometry->role_count == GEOMETRY_ROLES_MAX || !parse_role(item, &role) ||
                is_known_role(geometry, role.name))
            return false;
        geometry->roles[geometry->role_count++] = role;
    }
    return geometry->role_count > 0;
}

bool geometry_parse(const char *spec, uint32_t layers, kv_geometry *geometry_out,
        char why_out[GEOMETRY_WHY_MAX])
{
    kv_geometry parsed = { .model = "custom", .axis = "token,bytes", .layers = layers };
    char list[GEOMETRY_WHY_MAX];

    if (snprintf(list, sizeof(list), "%s", spec) >= (int)sizeof(list) ||
            !parse_roles(list, &parsed)) {
        (void)snprintf(why_out, GEOMETRY_WHY_MAX,
                "--token-bytes %.64s: say bytes per token and layer, or name:bytes up to %d times "
                "with commas; bytes are a multiple of 8 up to 16 MiB, names differ",
                spec, GEOMETRY_ROLES_MAX);
        return false;
    }
    if (layers == 0 || (uint64_t)layers * parsed.role_count > KVX_REGION_MAX) {
        (void)snprintf(why_out, GEOMETRY_WHY_MAX, "--token-bytes needs --layers between 1 and %u",
                KVX_REGION_MAX / parsed.role_count);
        return false;
    }
    *geometry_out = parsed;
    return true;
}

uint64_t geometry_token_bytes(const kv_geometry *geometry)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < geometry->role_count; i++)
        bytes += geometry->roles[i].token_bytes;
    return bytes * geometry->layers;
}
