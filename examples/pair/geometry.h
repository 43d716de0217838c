/* SPDX-License-Identifier: Apache-2.0 */
/* What a model's KV cache looks like on one rank: layers, and for each layer one region per role
 * with so many bytes a token. */
#ifndef PAIR_GEOMETRY_H
#define PAIR_GEOMETRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GEOMETRY_ROLES_MAX 4
#define GEOMETRY_NAME_MAX  32
#define GEOMETRY_WHY_MAX   256

typedef struct geometry_role {
    char name[GEOMETRY_NAME_MAX];
    uint32_t token_bytes; /* of one layer; a multiple of 8 */
} geometry_role;

typedef struct kv_geometry {
    char model[GEOMETRY_NAME_MAX];
    char axis[GEOMETRY_NAME_MAX]; /* how a page is laid out */
    uint32_t model_layers;        /* of the whole model; 0: not a model that we know */
    uint32_t layers;              /* taken here */
    uint32_t role_count;
    geometry_role roles[GEOMETRY_ROLES_MAX];
} kv_geometry;

/* A built-in model, cut to layers (0: all). On failure why_out names the remedy. */
bool geometry_find(const char *model, uint32_t layers, kv_geometry *geometry_out,
        char why_out[GEOMETRY_WHY_MAX]);

/* From text: "1152" or "k:256,v:256", in bytes per token and layer. */
bool geometry_parse(const char *spec, uint32_t layers, kv_geometry *geometry_out,
        char why_out[GEOMETRY_WHY_MAX]);

/* Names of the built-in models, with commas. */
const char *geometry_models(void);

/* Bytes of one token over all layers and roles. */
uint64_t geometry_token_bytes(const kv_geometry *geometry);

#endif
