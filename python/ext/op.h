/* SPDX-License-Identifier: Apache-2.0 */
/* Reduction operations in Python: weft.SUM and its like, or their names. */
#ifndef WFP_OP_H
#define WFP_OP_H

#include "core.h"

/* The operation that `object` names: an Op, a str such as "sum", or nothing
 * (NULL or None), which is the sum. 0, or -1 with an exception set. */
int wfp_op_from(PyObject *object, weft_op *out);

#endif
