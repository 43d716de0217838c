/* SPDX-License-Identifier: Apache-2.0 */
/* Is linked against an installed library, in each way there is: names the transports it finds. */
#include <kvx/kvx.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    kvx_config *config = NULL;

    if (strcmp(kvx_version(), KVX_VERSION) != 0) {
        printf("headers %s, library %s\n", KVX_VERSION, kvx_version());
        return 1;
    }
    if (kvx_config_create(&config) != KVX_OK)
        return 1;
    kvx_config_destroy(&config);
    for (size_t i = 0; kvx_transport_at(i) != NULL; i++)
        printf("%s ", kvx_transport_at(i)->name);
    printf("\n");
    return 0;
}
