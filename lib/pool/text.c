/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/text.h"

#include <stdint.h>
#include <string.h>

static bool is_tail(unsigned char byte)
{
    return (byte & 0xC0) == 0x80;
}

/* Bytes of the character at text, 0 if it is damaged, cut off or a control character. */
static size_t character_length(const unsigned char *text, size_t left)
{
    if (text[0] >= 0x20 && text[0] < 0x7F)
        return 1;
    if (text[0] < 0xC2 || text[0] > 0xF4)
        return 0;
    const size_t length = text[0] < 0xE0 ? 2 : text[0] < 0xF0 ? 3 : 4;
    if (length > left)
        return 0;
    for (size_t i = 1; i < length; i++)
        if (!is_tail(text[i]))
            return 0;
    const unsigned int start = (unsigned int)text[0] << 8 | text[1];
    const bool is_control = start >= 0xC280 && start < 0xC2A0;
    const bool is_overlong =
            (start >= 0xE080 && start < 0xE0A0) || (start >= 0xF080 && start < 0xF090);
    const bool is_surrogate = start >= 0xEDA0 && start < 0xEE80;
    return is_control || is_overlong || is_surrogate || start >= 0xF490 ? 0 : length;
}

size_t kvx_text_clean_length(const char *text, size_t length)
{
    const unsigned char *bytes = (const unsigned char *)text;
    size_t at = 0;

    while (at < length) {
        const size_t step = character_length(bytes + at, length - at);
        if (step == 0)
            break;
        at += step;
    }
    return at;
}

bool kvx_text_is_name(const char *text, size_t size)
{
    if (text == NULL)
        return false;
    const size_t length = strnlen(text, size);
    return length > 0 && length < size && kvx_text_clean_length(text, length) == length;
}
