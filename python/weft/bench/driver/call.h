/* SPDX-License-Identifier: Apache-2.0 */
/* One call of an operation through backend.h. */
#ifndef BENCH_CALL_H
#define BENCH_CALL_H

#include "op.h"

#include <stddef.h>

int call_once(enum op op, const float *src, float *dst, size_t n, int root);

#endif
