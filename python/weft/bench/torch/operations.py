# SPDX-License-Identifier: Apache-2.0
"""The operations of `weft bench torch`, by torch's names; a size is that of the larger tensor."""

from ..operations import Operation

_KIB, _MIB = 1 << 10, 1 << 20
SIZES = (4, _KIB, 8 * _KIB, 64 * _KIB, _MIB, 16 * _MIB, 64 * _MIB, 256 * _MIB)
_QUICK = SIZES[:6]
_TENSOR = "the larger tensor"
# Movement and what adds while it moves, from a size on at which tensors are worth sharing (T5).
_MOVED = (_MIB, *SIZES[-3:])

_ALL = (
    Operation("all_reduce", _TENSOR, SIZES, _QUICK, in_place=True),
    # The same numbers of elements.
    Operation(
        "all_reduce_bf16",
        _TENSOR,
        tuple(size // 2 for size in SIZES),
        tuple(size // 2 for size in _QUICK[:-1]),
        in_place=True,
    ),
    Operation("all_gather_into_tensor", _TENSOR, _MOVED, _MOVED[:2]),
    Operation("reduce_scatter_tensor", _TENSOR, _MOVED, _MOVED[:2]),
    Operation("all_to_all_single", _TENSOR, _MOVED, _MOVED[:2]),
    Operation("broadcast_tensor", _TENSOR, _MOVED, _MOVED[:2], in_place=True),
    Operation("ddp_step", "nothing", (0,), (0,), in_place=True),
    Operation("fsdp2_step", "nothing", (0,), (0,), in_place=True),
    Operation("llm_token", "nothing", (0,), (0,), in_place=True),
    Operation("llm_token_dtensor", "nothing", (0,), (0,), in_place=True),
)
OPERATIONS = {operation.name: operation for operation in _ALL}

# By the names of the drivers in C and of gloo_rank.py.
NAMES_IN_C = {
    "all_reduce": "allreduce",
    "all_reduce_bf16": "allreduce",
    "all_gather_into_tensor": "allgather",
    "reduce_scatter_tensor": "reduce_scatter",
    "all_to_all_single": "alltoall",
    "broadcast_tensor": "broadcast",
}
MOVING = tuple(NAMES_IN_C)[2:]


def block_bytes(op: str, bytes_: int, ranks: int) -> int:
    """What a driver in C is asked for; whole elements, where a tensor cannot be divided evenly."""
    if op not in ("all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single"):
        return bytes_
    return max(bytes_ // ranks // 4, 1) * 4
