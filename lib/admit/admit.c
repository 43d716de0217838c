/* SPDX-License-Identifier: Apache-2.0 */
#include "admit/admit.h"

static bool fits_now(const kvx_admit *admit, uint64_t bytes)
{
    if (admit->count >= admit->count_max)
        return false;
    if (admit->bytes <= admit->bytes_max && bytes <= admit->bytes_max - admit->bytes)
        return true;
    return admit->lets_one_through && admit->count == 0;
}

kvx_status kvx_admit_take(kvx_admit *admit, uint64_t bytes)
{
    const bool fits_ever = admit->lets_one_through || bytes <= admit->bytes_max;

    KVX_ENSURE(fits_ever && admit->count_max > 0, KVX_NO_SPACE);
    if (!fits_now(admit, bytes)) {
        admit->was_refused = true;
        return KVX_AGAIN;
    }
    admit->bytes += bytes;
    admit->count++;
    return KVX_OK;
}

void kvx_admit_give(kvx_admit *admit, uint64_t bytes)
{
    admit->bytes -= bytes;
    admit->count--;
}

void kvx_admit_resize(kvx_admit *admit, uint64_t old_bytes, uint64_t new_bytes)
{
    admit->bytes = admit->bytes - old_bytes + new_bytes;
}

bool kvx_admit_reopened(kvx_admit *admit)
{
    const bool has_room = admit->bytes < admit->bytes_max || admit->count == 0;

    if (!admit->was_refused || !has_room || admit->count >= admit->count_max)
        return false;
    admit->was_refused = false;
    return true;
}
