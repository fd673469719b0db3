# SPDX-License-Identifier: Apache-2.0
"""Gradients of rows: equal rows are summed before they go anywhere."""

from typing import NamedTuple

import torch

from weft import _core


class Gradients(NamedTuple):
    """Distinct row numbers in ascending order, and the sum of gradients of each, in float32."""

    ids: torch.Tensor
    sums: torch.Tensor


def sum_equal(ids: torch.Tensor, grads: torch.Tensor, rows: int) -> Gradients:
    """Sum the gradients of equal ids; negative ids are ignored."""
    if grads.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        grads = grads.to(torch.float32)
    ids, grads = ids.contiguous(), grads.contiguous()
    distinct = torch.empty_like(ids)
    sums = torch.empty(grads.shape, dtype=torch.float32, device=grads.device)
    count = torch.zeros(1, dtype=torch.int64, device=ids.device)
    _core.rows_unique(ids, grads, rows, distinct, sums, count, 0)
    found = int(count)
    return Gradients(distinct[:found], sums[:found])
