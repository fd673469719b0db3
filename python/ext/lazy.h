/* SPDX-License-Identifier: Apache-2.0 */
/* What DLPack does not tell of a torch tensor: whether its memory holds the
 * conjugate or the negative of its values (torch does both lazily, and a real
 * tensor can be the negated imaginary part of a complex one), and whether
 * autograd would mind a write.
 *
 * Asking torch for the first two costs as much as reading the tensor itself, so
 * tensors for which the answer was no are remembered, by a weak reference and
 * the address of their data. Views are made with the bits they have, so the
 * answer holds as long as both are the same. */
#ifndef WFP_LAZY_H
#define WFP_LAZY_H

#include "core.h"

/* `type` is torch.Tensor or Parameter: find out how to ask quickly. */
void wfp_lazy_learn(PyTypeObject *type);

/* 1 if the values of a tensor of DLPack's type `code` are not what lies
 * at `data`, or if autograd would mind a write to a `writable` one; 0 if it is
 * plain, -1 with an exception set. */
int wfp_lazy_is_rare(PyObject *tensor, uint8_t code, const void *data,
                     bool writable);

#endif
