/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * KVeXpress: pull a paged KV cache from prefill to decode. Includes everything.
 */
#ifndef KVX_KVX_H
#define KVX_KVX_H

#include "kvx/config.h"
#include "kvx/group.h"
#include "kvx/layout.h"
#include "kvx/log.h"
#include "kvx/memory.h"
#include "kvx/metrics.h"
#include "kvx/node.h"
#include "kvx/plan.h"
#include "kvx/status.h"
#include "kvx/transport.h"
#include "kvx/version.h"

#endif
