# SPDX-License-Identifier: Apache-2.0
"""The operations of `weft bench collectives`."""

from ..operations import QUICK_SIZES, SOME_SIZES, Operation

_KIB, _MIB = 1 << 10, 1 << 20
SIZES = (4, 64, _KIB, 8 * _KIB, 64 * _KIB, 512 * _KIB, 4 * _MIB, 32 * _MIB, 256 * _MIB)

_ALL = (
    Operation("allreduce", "the vector", SIZES, SIZES[:-2], in_place=True),
    Operation("barrier", "nothing", (0,), (0,), in_place=True),
    Operation("broadcast", "the vector", quick_sizes=(8, *QUICK_SIZES), in_place=True),
    Operation("reduce", "the vector", in_quick=False),
    Operation(
        "reduce_scatter",
        "the result of one rank",
        (*SOME_SIZES[:2], 512 * _KIB, *SOME_SIZES[2:]),
        (64 * _KIB, 512 * _KIB, 4 * _MIB),
        src_for_all=True,
    ),
    Operation("allgather", "what one rank brings", dst_for_all=True),
    Operation("alltoall", "what one rank sends to one", src_for_all=True, dst_for_all=True),
    Operation("gather", "what one rank brings", dst_for_all=True, in_quick=False),
    Operation("scatter", "what one rank gets", src_for_all=True, in_quick=False),
    Operation("scan", "the vector", in_place=True, in_quick=False),
    Operation(
        "cycle",
        "the vector that is written, reduced in place and read, less written and read",
        (64 * _KIB, 512 * _KIB, 4 * _MIB, 256 * _MIB),
        (64 * _KIB, 512 * _KIB, 4 * _MIB),
        in_place=True,
    ),
)
OPERATIONS = {operation.name: operation for operation in _ALL}
