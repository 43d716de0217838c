/* SPDX-License-Identifier: Apache-2.0 */
#include "kvx/version.h"

const char *kvx_version(void)
{
    return KVX_VERSION;
}
