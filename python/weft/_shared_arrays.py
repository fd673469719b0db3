# SPDX-License-Identifier: Apache-2.0
"""NumPy arrays in memory that the other ranks of the host map: weft.shared_arrays."""

import contextlib
import importlib
import operator
from typing import Any

from weft import _core
from weft._core import Comm, InvalidError, UnsupportedError, World

MINIMUM = 64 << 10  # as for tensors: weft.torch.shared


def _functions() -> Any:
    """NumPy's table of C functions, as other extension modules get it."""
    import numpy

    if tuple(map(int, numpy.__version__.split(".")[:2])) < (1, 22):
        raise UnsupportedError(
            f"NumPy {numpy.__version__} cannot be told where arrays lie; 1.22 and later can"
        )
    for name in ("numpy._core._multiarray_umath", "numpy.core._multiarray_umath"):
        with contextlib.suppress(ModuleNotFoundError):
            return importlib.import_module(name)._ARRAY_API
    raise UnsupportedError(f"NumPy {numpy.__version__} does not show its functions")


def minimum_bytes(minimum: Any, most: int) -> int:
    """The bytes from which on something is shared: at least 1, and at most `most`."""
    try:
        number = operator.index(minimum)
    except TypeError:
        raise TypeError(f"minimum is {minimum!r}; it must be a number of bytes") from None
    if number < 0:
        raise InvalidError(f"minimum is {number}; it must not be negative")
    return min(max(number, 1), most)


class shared_arrays(contextlib.ContextDecorator):
    """Have NumPy arrays lie in memory that the other ranks map.

        with weft.shared_arrays():
            x = numpy.empty(1 << 20)      # collectives read and write it where it lies

    It is NumPy's setting of where data lies, which belongs to the context (contextvars) that
    enters it: other threads and tasks have their own. Arrays stay what they are when it is left.

    minimum: bytes; smaller arrays lie in ordinary memory, as do all where there is no room
    comm:    with whom they are shared: a Comm or World; by default the first world of this process
    """

    def __init__(self, minimum: int = MINIMUM, comm: Comm | World | None = None) -> None:
        world = comm.world if isinstance(comm, Comm) else comm
        if world is not None and not isinstance(world, World):
            raise TypeError(f"comm is {type(comm).__name__}; it must be a Comm or a World")
        if world is not None and world.closed:
            raise InvalidError("this world is closed")
        least = minimum_bytes(minimum, (1 << 64) - 1)
        self._functions = _functions()
        self._handler = _core.array_handler(least, 0 if world is None else world._number)
        self._before: list[Any] = []

    def _recreate_cm(self) -> "shared_arrays":
        """Each call of a decorated function enters one of its own."""
        copy = object.__new__(type(self))
        copy._functions, copy._handler, copy._before = self._functions, self._handler, []
        return copy

    def __enter__(self) -> "shared_arrays":
        self._before.append(_core.set_array_handler(self._functions, self._handler))
        return self

    def __exit__(self, *_: object) -> None:
        _core.set_array_handler(self._functions, self._before.pop())
