# SPDX-License-Identifier: Apache-2.0
"""Tensors in memory that the other ranks of the host map, so that collectives read them in place.

torch's allocator for the CPU takes them from the arena of a world; `shared` has it do so for the
tensors that a thread makes in a part of the program, `share_all` for those of all threads.
"""

import contextlib
import threading
from typing import Any, ClassVar

import torch
import torch.distributed as dist

from weft import Comm, World, _core
from weft._core import InvalidError
from weft._shared_arrays import minimum_bytes
from weft.torch._group import comm_of
from weft.torch._shim import shim

# Below it a tensor fills too little of its pages, and a collective copies it in less time than
# taking it from the arena costs: see docs/guide/torch.md.
MINIMUM = 64 << 10


def _number(group: Any) -> int:
    """The world whose arena is meant, as allocators know it; 0: the first that is open."""
    if group is None:
        return 0
    if isinstance(group, World):
        world = group
    elif isinstance(group, Comm):
        world = group.world
    elif isinstance(group, dist.ProcessGroup):
        world = comm_of(group).world
    else:
        raise TypeError(f"group is {type(group).__name__}; it must be a group, a Comm or a World")
    if world.closed:
        raise InvalidError("this world is closed")
    return world._number


def _bytes(minimum: Any) -> int:
    return minimum_bytes(minimum, shim._SHARE_NONE - 1)


class shared(contextlib.ContextDecorator):
    """Have tensors that this thread makes lie in memory that the other ranks map.

        with weft.torch.shared():
            x = torch.empty(1 << 20)      # collectives read and write it where it lies

    As torch.no_grad it concerns the thread that enters it, and functions can be decorated with
    it. Tensors stay what they are when it is left.

    minimum: bytes; smaller tensors lie in ordinary memory, as do all where there is no room
    group:   with whom they are shared: a process group, weft.Comm or weft.World; by default the
             first one of this process, which is that of init_process_group
    """

    def __init__(self, minimum: int = MINIMUM, group: Any = None) -> None:
        self._wish = (_bytes(minimum), _number(group))
        self._before: list[tuple[int, int]] = []

    def _recreate_cm(self) -> "shared":
        """Each call of a decorated function enters one of its own."""
        copy = object.__new__(type(self))
        copy._wish, copy._before = self._wish, []
        return copy

    def __enter__(self) -> "shared":
        self._before.append(shim._share_on_thread(*self._wish))
        return self

    def __exit__(self, *_: object) -> None:
        shim._share_on_thread(*self._before.pop())


class Sharing:
    """What share_all returns: `stop()`, or the end of a `with`, undoes it."""

    _going_on: ClassVar[list["Sharing"]] = []  # of this process; the last one counts
    _lock = threading.Lock()

    def __init__(self, wish: tuple[int, int]) -> None:
        self._wish = wish
        with self._lock:
            self._going_on.append(self)
            self._apply()

    def stop(self) -> None:
        """Make tensors as without this share_all. Does nothing the second time."""
        with self._lock:
            if self in self._going_on:
                self._going_on.remove(self)
                self._apply()

    def _apply(self) -> None:
        last = self._going_on[-1]._wish if self._going_on else (shim._SHARE_NONE, 0)
        shim._share_all(*last)

    def __enter__(self) -> "Sharing":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def share_all(minimum: int = MINIMUM, group: Any = None) -> Sharing:
    """Have all tensors of this process, of all its threads, lie in memory that the ranks map.

    It can be called before init_process_group: tensors are in ordinary memory until there is a
    group. Arguments are those of `shared`; `stop()` of what it returns undoes it. Of several that
    go on the last one counts.
    """
    return Sharing((_bytes(minimum), _number(group)))


def is_shared(tensor: torch.Tensor) -> bool:
    """Does the tensor's memory lie in an arena?"""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"tensor is {type(tensor).__name__}; it must be a torch.Tensor")
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        return False
    at = tensor.untyped_storage().data_ptr()
    return at != 0 and _core.arena_holds(at)
