# SPDX-License-Identifier: Apache-2.0
"""The operations that are measured: their sizes, and what a size means."""

from __future__ import annotations

from dataclasses import dataclass

_KIB, _MIB = 1 << 10, 1 << 20
SIZES = (4, 64, _KIB, 8 * _KIB, 64 * _KIB, 512 * _KIB, 4 * _MIB, 32 * _MIB, 256 * _MIB)
_SOME_SIZES = (8, 64 * _KIB, 4 * _MIB, 32 * _MIB, 256 * _MIB)
_QUICK_SIZES = (64 * _KIB, 4 * _MIB)


@dataclass(frozen=True)
class Operation:
    """The shape of an operation, as in driver/op.c.

    A size is that of one block; `for_all` says which buffers have a block for each rank. A quick
    run leaves out what takes long, and operations that no mark speaks of.
    """

    name: str
    size_is: str
    sizes: tuple[int, ...] = _SOME_SIZES
    quick_sizes: tuple[int, ...] = _QUICK_SIZES
    src_for_all: bool = False
    dst_for_all: bool = False
    in_place: bool = False
    in_quick: bool = True

    def buffer_bytes(self, size: int, ranks: int) -> tuple[int, int]:
        """The bytes of a rank's source and destination; 0 for a destination in place."""
        source = size * (ranks if self.src_for_all else 1)
        return source, 0 if self.in_place else size * (ranks if self.dst_for_all else 1)


_ALL = (
    Operation("allreduce", "the vector", SIZES, SIZES[:-2], in_place=True),
    Operation("barrier", "nothing", (0,), (0,), in_place=True),
    Operation("broadcast", "the vector", quick_sizes=(8, *_QUICK_SIZES), in_place=True),
    Operation("reduce", "the vector", in_quick=False),
    Operation(
        "reduce_scatter",
        "the result of one rank",
        (*_SOME_SIZES[:2], 512 * _KIB, *_SOME_SIZES[2:]),
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

# By torch's names and sizes: a size is that of the larger tensor.
TORCH_SIZES = (4, _KIB, 8 * _KIB, 64 * _KIB, _MIB, 16 * _MIB, 64 * _MIB, 256 * _MIB)
_TORCH_QUICK = TORCH_SIZES[:6]
_TENSOR = "the larger tensor"
_LARGE = TORCH_SIZES[-3:]

_ALL_TORCH = (
    Operation("all_reduce", _TENSOR, TORCH_SIZES, _TORCH_QUICK, in_place=True),
    # The same numbers of elements.
    Operation(
        "all_reduce_bf16",
        _TENSOR,
        tuple(size // 2 for size in TORCH_SIZES),
        tuple(size // 2 for size in _TORCH_QUICK[:-1]),
        in_place=True,
    ),
    Operation("all_gather_into_tensor", _TENSOR, _LARGE, _LARGE[:1]),
    Operation("reduce_scatter_tensor", _TENSOR, _LARGE, _LARGE[:1]),
    Operation("all_to_all_single", _TENSOR, _LARGE, _LARGE[:1]),
    Operation("broadcast_tensor", _TENSOR, _LARGE, _LARGE[:1], in_place=True),
    Operation("ddp_step", "nothing", (0,), (0,), in_place=True),
    Operation("fsdp2_step", "nothing", (0,), (0,), in_place=True),
    Operation("llm_token", "nothing", (0,), (0,), in_place=True),
    Operation("llm_token_dtensor", "nothing", (0,), (0,), in_place=True),
)
TORCH_OPERATIONS = {operation.name: operation for operation in _ALL_TORCH}


def operation_named(name: str) -> Operation:
    """An operation of either program."""
    return OPERATIONS.get(name) or TORCH_OPERATIONS[name]
