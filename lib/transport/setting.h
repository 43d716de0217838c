/* SPDX-License-Identifier: Apache-2.0 */
/* A transport's own settings, which reach it as text. */
#ifndef KVX_TRANSPORT_SETTING_H
#define KVX_TRANSPORT_SETTING_H

#include <stdint.h>

#include "base/check.h"
#include "kvx/transport.h"

/* The number behind a setting: digits, then perhaps KiB, MiB or GiB.
 * KVX_INVALID: not a number within the limits of the transport's table (logged). */
KVX_CHECKED kvx_status kvx_setting_number(const kvx_transport_ops *ops,
        const kvx_domain_params *params, const char *key, uint64_t *value_out);

#endif
