/* SPDX-License-Identifier: Apache-2.0 */
#include "base/random.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"

kvx_status kvx_random(uint64_t *value_out)
{
    for (;;) {
        uint64_t value = 0;
        const ssize_t got = getrandom(&value, sizeof(value), 0);
        if (got < 0 && errno != EINTR) {
            kvx_log(KVX_LOG_ERROR, "no random number from the kernel: %s", strerror(errno));
            return KVX_IO;
        }
        if (got == (ssize_t)sizeof(value) && value != 0) {
            *value_out = value;
            return KVX_OK;
        }
    }
}
