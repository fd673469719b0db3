# SPDX-License-Identifier: Apache-2.0
"""What a process group stands on: a communicator, and the world it belongs to."""

import contextlib
import os
import weakref
from collections.abc import Sequence
from typing import Any

from weft import Comm, World, _boot, _core
from weft._core import InvalidError

_worlds: "weakref.WeakSet[_Stay]" = weakref.WeakSet()


class Place:
    """A communicator for a process group.

    The shim asks it for `comm`, and for a `subset` when a group is split. A
    world that was made for a group ends with the last place that uses it.
    """

    def __init__(self, comm: Comm, stay: "_Stay | None" = None) -> None:
        self.comm, self._stay = comm, stay

    def subset(self, ranks: Sequence[int]) -> "Place":
        return Place(self.comm.subset(list(ranks)), self._stay)


class _Stay:
    """A world that was made for process groups; it ends with this object."""

    def __init__(self, world: World) -> None:
        self.world = world
        _worlds.add(self)

    def __del__(self) -> None:
        # A Comm that the user took from the group may still be lent.
        with contextlib.suppress(InvalidError):
            self.world.close()


def meet(store: Any, rank: int, size: int, settings: str) -> Place:
    """Join a world of the ranks that meet in a torch Store."""
    world = _core.create(_boot.TorchStore(store, rank, size), settings)
    return Place(world.comm, _Stay(world))


def _forget_in_child() -> None:
    for stay in list(_worlds):
        stay.world._forget()


os.register_at_fork(after_in_child=_forget_in_child)
