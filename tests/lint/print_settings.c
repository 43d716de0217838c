/* SPDX-License-Identifier: Apache-2.0 */
/* Every setting with its default, as the library prints it. */
#include <kvx/config.h>
#include <stdio.h>

int main(void)
{
    kvx_config *config = NULL;

    if (kvx_config_create(&config) != KVX_OK)
        return 1;
    kvx_config_print(config, stdout);
    kvx_config_destroy(&config);
    return 0;
}
