/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a settings file: loaded, judged and printed, and what is printed loads again. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "config/settings.h"
#include "kvx/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static kvx_status load_bytes(kvx_config *config, const void *data, size_t size)
{
    char path[64];
    const int fd = memfd_create("config", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    const kvx_status status = kvx_config_load_file(config, path);
    close(fd);
    return status;
}

static char *print(const kvx_config *config, size_t *size_out)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, size_out);
    if (out == NULL)
        abort();
    kvx_config_print(config, out);
    fclose(out);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    kvx_config *config = NULL;
    kvx_settings settings;
    size_t text_size = 0;
    if (kvx_config_create(&config) != KVX_OK)
        abort();
    const kvx_status status = load_bytes(config, data, size);
    if ((status == KVX_OK) != (kvx_config_error(config)[0] == '\0'))
        abort();
    if (kvx_settings_from(config, &settings) == KVX_OK && settings.lease_ns == 0)
        abort();
    char *text = print(config, &text_size);
    if (load_bytes(config, text, text_size) != KVX_OK)
        abort();
    free(text);
    kvx_config_destroy(&config);
    return 0;
}
