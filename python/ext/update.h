/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WFP_UPDATE_H
#define WFP_UPDATE_H

#include <weft/update.h>

#include "core.h"

/* Read (kind, decoupled, lr, weight_decay, eps, alpha, beta1, beta2, step), as
 * weft.optim describes a step. 0, or -1 with an exception set. */
int wfp_update_read_rule(PyObject *tuple, weft_update *rule);

#endif
