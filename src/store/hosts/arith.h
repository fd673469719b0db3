/* SPDX-License-Identifier: Apache-2.0 */
/* Sums and differences of rows, of the six types of values. */
#ifndef WF_STORE_HOSTS_ARITH_H
#define WF_STORE_HOSTS_ARITH_H

#include <stddef.h>
#include <weft/types.h>

/* to[i] += by[i], with the bits that a push has. */
void wf_arith_add(weft_dtype type, void *to, const void *by, size_t n);
/* from[i] -= by[i] */
void wf_arith_subtract(weft_dtype type, void *from, const void *by, size_t n);

#endif
