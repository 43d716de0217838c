/* SPDX-License-Identifier: Apache-2.0 */
/* What may be a name: it goes into logs, labels and messages. */
#ifndef KVX_POOL_TEXT_H
#define KVX_POOL_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes at the front of text, at most length, that are UTF-8 without control characters. */
size_t kvx_text_clean_length(const char *text, size_t length);

/* Whether text is not NULL, not empty, clean, and fits into size bytes with its zero. */
bool kvx_text_is_name(const char *text, size_t size);

#endif
