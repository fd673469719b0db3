# SPDX-License-Identifier: Apache-2.0
"""The operators weft::*, as torch's dispatcher has them."""

import jobs
import pytest
import torch
import weft
from torch.utils._python_dispatch import TorchDispatchMode
from weft import mpi

# On one rank. Any length from the least on can be right where a shape is at the end.
WRONG = {
    "allreduce": ([0], [0] * 3),
    "bcast": ([], [0] * 2),
    "gather": ([0] * 2, [0] * 4),
    "alltoall": ([0] * 3, [0] * 5),
    "scatter": ([0] * 2,),
    "halo": ([0] * 4, [0] * 6),
    "barrier": ([0],),
    "send": ([0] * 3, [0] * 5),
    "sendrecv": ([0] * 4,),
}


def lists_of_other_lengths(comm):
    for name, lists in WRONG.items():
        for wrong in lists:
            with pytest.raises(ValueError, match="does not fit the arguments"):
                getattr(torch.ops.weft, name)(torch.ones(2), comm._id, 0, wrong)


def test_a_list_that_is_not_an_operations_arguments_is_refused():
    jobs.run(1, lists_of_other_lengths)


class Zeros(TorchDispatchMode):
    """Gives zeros in the place of what operators of weft give."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        given = func(*args, **(kwargs or {}))
        if func.namespace == "weft":
            return tuple(torch.zeros_like(each) for each in given)
        return given


def replaced(comm):
    with Zeros(), pytest.raises(weft.UnsupportedError, match="not that of an operation"):
        comm.Split(0).Allreduce(torch.ones(2))


def test_a_mode_that_gives_another_result_is_an_error():
    jobs.run(2, replaced)


def told_again(comm):
    """What is told is the same operation's wherever the result is given again."""
    x = torch.ones(3)
    y, info = torch.ops.weft.allreduce(x, comm._id, 0, [mpi.SUM, 0])
    assert torch.equal(y, x * comm.size)
    assert info[0] == comm._number
    comm.Barrier()
    assert info[0] == comm._number - 1


def test_an_operation_tells_its_number():
    jobs.run(2, told_again)
