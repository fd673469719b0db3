# SPDX-License-Identifier: Apache-2.0
"""What one rank cannot do, or does in another way, is an error on all of them."""

import array
from collections.abc import Callable
from typing import Any, TypeVar

from weft import _core
from weft._core import Comm, MismatchError

_TEXT = 1000  # bytes of an error that travel

T = TypeVar("T")


def together(comm: Comm, act: Callable[[], T]) -> T:
    """Run `act` here; raise on all ranks if it raises on any of them. Collective.

    Others than the rank that failed name it, and tell its reason.
    """
    error: Exception | None = None
    found: list[T] = []
    try:
        found = [act()]
    except Exception as caught:
        error = caught
    failed = _lowest(comm, error is not None)
    if failed == comm.size:
        return found[0]
    kind, _, why = _told(comm, failed, f"{type(error).__name__}:{error}").partition(":")
    raise error or _as_ours(kind, f"rank {failed}: {why}")


def alike(comm: Comm, name: str, value: str) -> None:
    """Raise MismatchError on all ranks unless all have the same `value`. Collective."""
    first = _told(comm, 0, value)
    odd = _lowest(comm, first != _read(_message(value)))
    if odd < comm.size:
        raise MismatchError(f"rank {odd} has a different {name} than rank 0, which has {first}")


def _lowest(comm: Comm, here: bool) -> int:
    """The lowest rank on which it is so; the number of ranks if on none."""
    number = array.array("q", [comm.rank if here else comm.size])
    comm.allreduce(number, op=_core.MIN)
    return number[0]


def _told(comm: Comm, teller: int, text: str) -> str:
    """The text of rank `teller`."""
    message = _message(text)
    comm.broadcast(message, teller)
    return _read(message)


def _message(text: str) -> bytearray:
    """As much of it as travels."""
    return bytearray(text.encode(errors="replace")[:_TEXT].ljust(_TEXT, b"\0"))


def _read(message: bytearray) -> str:
    return message.rstrip(b"\0").decode(errors="replace")


def _as_ours(kind: str, text: str) -> Exception:
    """An error of weft's own, or the system's for what is none."""
    found: Any = getattr(_core, kind, None)
    ours = isinstance(found, type) and issubclass(found, _core.Error)
    return found(text) if ours else _core.SystemError(text)
