# SPDX-License-Identifier: Apache-2.0
"""weft's own operations as they are called: name, bytes, rank, size, begin and end.

Operations of a Comm are told by the C module; those in Python are wrapped. Nothing is paid for
before start(). Calls through torch.distributed are not among them: torch.profiler shows these.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import weft
from weft import _core

Record = Callable[[str, int, int, int, int, int], object]

# Which argument or result of a function is the data that it moves.
_ROWS = {"gather": "result", "scatter": "rows", "scatter_add": "rows"}
_STORE = {"pull": "result", "push": "values", "set": "values"}


def start(record: Record) -> None:
    """Call record(name, bytes, rank, size, begin, end) for each operation from now on.

    The times are nanoseconds since the epoch.
    """
    _core.observe(record)
    for name, data in _ROWS.items():
        setattr(weft, name, _wrapped(getattr(weft, name), name, data, 2, record))
    from weft._store import Worker

    for name, data in _STORE.items():
        setattr(Worker, name, _wrapped(getattr(Worker, name), f"store.{name}", data, 2, record))


def nbytes(data: Any) -> int:
    """The bytes of a tensor or array; 0 for anything else."""
    size = getattr(data, "nbytes", 0)
    return size if isinstance(size, int) else 0


def _wrapped(
    function: Callable[..., Any], name: str, data: str, at: int, record: Record
) -> Callable[..., Any]:
    """The function, recorded. `data` is the name of the argument at `at`, or "result"."""

    @functools.wraps(function)
    def recorded(*args: Any, **named: Any) -> Any:
        begin = time.time_ns()
        result = function(*args, **named)
        end = time.time_ns()
        moved = result if data == "result" else named.get(data, args[at] if len(args) > at else 0)
        rank, size = _place()
        record(name, nbytes(moved), rank, size, begin, end)
        return result

    return recorded


def _place() -> tuple[int, int]:
    """(rank, size) of the job, without starting one."""
    try:
        return _core.boot_rank()
    except weft.Error:
        return 0, 1
