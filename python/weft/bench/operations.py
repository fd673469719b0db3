# SPDX-License-Identifier: Apache-2.0
"""What an operation is: its sizes, and what a size means."""

from __future__ import annotations

from dataclasses import dataclass

_KIB, _MIB = 1 << 10, 1 << 20
SOME_SIZES = (8, 64 * _KIB, 4 * _MIB, 32 * _MIB, 256 * _MIB)
QUICK_SIZES = (64 * _KIB, 4 * _MIB)


@dataclass(frozen=True)
class Operation:
    """The shape of an operation, as in driver/op.c.

    A size is that of one block; `for_all` says which buffers have a block for each rank. A quick
    run leaves out what takes long, and operations that no mark of such a run speaks of.
    """

    name: str
    size_is: str
    sizes: tuple[int, ...] = SOME_SIZES
    quick_sizes: tuple[int, ...] = QUICK_SIZES
    src_for_all: bool = False
    dst_for_all: bool = False
    in_place: bool = False
    in_quick: bool = True

    def buffer_bytes(self, size: int, ranks: int) -> tuple[int, int]:
        """The bytes of a rank's source and destination; 0 for a destination in place."""
        source = size * (ranks if self.src_for_all else 1)
        return source, 0 if self.in_place else size * (ranks if self.dst_for_all else 1)
