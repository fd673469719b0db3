# SPDX-License-Identifier: Apache-2.0
"""CUDA tensors: the same values and gradients, and the same order over devices.

All ranks use the first GPU, and are started anew rather than forked.
"""

import gpu
import jobs
import pytest
import torch
from cases import cases, inputs, real_cases
from test_order import fuzz
from weft import mpi

pytestmark = gpu.needed()


def gradients(comm):
    for case in [*cases(), *real_cases()]:
        if "Exscan" in case.name:
            continue  # infinities on rank 0
        xs = [x.requires_grad_() for x in inputs(case, comm.size, torch.float64)]
        ys = case.all_ranks(xs)
        value = sum(((r + 1) * y * y).sum() for r, y in enumerate(ys))
        grads = torch.autograd.grad(value, xs, allow_unused=True)
        x = xs[comm.rank].detach().cuda().requires_grad_()
        y = case.ours(comm, x)
        assert y.is_cuda, case.name
        torch.testing.assert_close(y.cpu(), ys[comm.rank], msg=case.name)
        mpi.backward(((comm.rank + 1) * y * y).sum())
        expected = grads[comm.rank]
        expected = torch.zeros(x.shape, dtype=x.dtype) if expected is None else expected
        torch.testing.assert_close(x.grad.cpu(), expected, msg=case.name)


@pytest.mark.parametrize("size", (1, 3))
def test_gradients_of_every_operation(size):
    jobs.run(size, gradients, context=jobs.SPAWN)


def test_order_over_two_devices():
    jobs.run(2, fuzz, 900, 50, "cpu", "cuda", context=jobs.SPAWN)
    jobs.run(2, fuzz, 950, 20, "cuda", context=jobs.SPAWN)
