/* SPDX-License-Identifier: Apache-2.0 */
/* torch tensors, through the DLPack exchange table of their type.
 *
 * The table is used for exactly torch.Tensor and torch.nn.Parameter: other
 * subclasses inherit the attribute, but their memory may be a fake, one shard
 * of many, or not there yet. */
#ifndef WFP_TENSOR_H
#define WFP_TENSOR_H

#include "array.h"

/* The table of a type that was learnt before, else NULL. Never raises. */
const wfp_dl_api *wfp_tensor_api(const PyTypeObject *type);

/* Is it one of the two types? Then its table is kept for wfp_tensor_api. Never
 * raises, and never imports torch. */
const wfp_dl_api *wfp_tensor_learn(PyTypeObject *type);

/* The weft_dtype of elements with one lane, or WFP_NO_DTYPE. */
int wfp_tensor_dtype(const wfp_dl_tensor *t);

wfp_opened wfp_tensor_open(wfp_array *array, PyObject *tensor,
                           const wfp_dl_api *api, unsigned access);

#endif
