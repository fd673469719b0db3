# SPDX-License-Identifier: Apache-2.0
"""What is computed: enough of it for a process to do it, and for a limit to be known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..results import Case
from ..runner import Options

WIDTHS = {"float32": 4, "float64": 8}


@dataclass(frozen=True)
class Work:
    """One call.

    kind:   "gemm", whose shape is (m, n, k); or "conv2d", with that of conv2d/cases.py
    bytes:  of operands and result, each of which memory has to move once
    onednn: whether PyTorch may use it
    """

    kind: str
    dtype: str
    shape: tuple[int, ...]
    flops: float
    bytes: int
    onednn: bool = True


@dataclass(frozen=True)
class Operation:
    """The operation of a benchmark: what it is, and its cases by their place on the axis.

    systems: who has something to say about it in a quick run; None: all
    """

    about: str
    work: Mapping[str, Work]
    quick: tuple[str, ...] = ()
    systems: frozenset[str] | None = None


@dataclass(frozen=True)
class Plan:
    """What a benchmark measures.

    sized: the work of an operation for a size that somebody asked for, where there are sizes
    """

    name: str
    operations: Mapping[str, Operation]
    sized: Callable[[str, int], Work] | None = None

    def work_of(self, case: Case) -> Work:
        known = self.operations[case.op].work.get(case.at)
        if known is not None:
            return known
        assert self.sized is not None
        return self.sized(case.op, int(case.at))

    def cases(self, options: Options, threads: int) -> list[Case]:
        """In the order of operations and, in each, of the axis."""
        return [
            Case(op, self.work_of(Case(op, 0, 1, threads, at)).bytes, 1, threads, at)
            for op in options.ops or tuple(self.operations)
            for at in self._places(op, options)
        ]

    def _places(self, op: str, options: Options) -> tuple[str, ...]:
        if options.sizes is not None and self.sized is not None:
            return tuple(map(str, options.sizes))
        operation = self.operations[op]
        # What a quick run leaves out can still be asked for by its name.
        wanted = operation.quick or (tuple(operation.work) if options.ops else ())
        return wanted if options.quick else tuple(operation.work)
