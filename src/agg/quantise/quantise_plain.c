/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of quantisation for any CPU; see flags.cmake. */
#define WF_QUANTISER wf_quantiser_plain

#include "agg/quantise/loops.h"
