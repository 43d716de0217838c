/* SPDX-License-Identifier: Apache-2.0 */
/* Settings sets, and what happens in a run of a seed. */
#ifndef KVX_MODEL_SCENARIO_H
#define KVX_MODEL_SCENARIO_H

#include "world.h"

/* The i-th set; NULL past the last. */
const model_set *scenario_set(size_t index);
const model_set *scenario_find(const char *name);

/* Run a seed to its end. False: a rule was broken, see world.violation. */
bool scenario_run(world *w, const model_set *set, uint64_t seed, const faults *planted, bool traced);

/* A world for a directed scenario: an owner and `readers` readers that are connected; nothing
 * goes wrong by itself. */
void scenario_quiet(world *w, const model_set *set, uint32_t readers);

#endif
