# SPDX-License-Identifier: Apache-2.0
"""The job this process is part of: joining it once, and leaving it at exit."""

import atexit
import contextlib
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from weft import _boot, _core, _process_group
from weft._core import ClosedError, InvalidError, World

_lock = threading.RLock()
_world: World | None = None
_by_default = False  # it was joined without being told which
_before_leaving: "list[Callable[[], None]]" = []  # of those who hold communicators


def init(
    boot: "_boot.Meeting | _boot.Named | str | None" = None,
    *,
    store: Any = None,
    rank: int | None = None,
    size: int | None = None,
    comm: Any = None,
    timeout: float | None = None,
    **settings: object,
) -> World:
    """Join the job, and return the World of this process.

    Collective: every rank calls it. Without arguments the job is that of the
    default process group of torch.distributed, where there is one; else the
    launcher's environment tells who is in it (torchrun, mpirun, srun, or
    WEFT_RANK and WEFT_RANKS); with none of them it is a job of one rank. Once
    joined, calling it again without arguments returns the same world; it is an
    InvalidError if a process group was made meanwhile in which this process has
    another rank. A child of a rank inherits all this, but is no rank: it is
    told so by a ClosedError.

    boot:     "alone", or an object with rank, size, set(key, value) and
              get(key, timeout)
    store:    a torch.distributed Store, with this process's `rank` and the
              `size` of the job (else taken from torch.distributed, if it is
              initialised, or from RANK and WORLD_SIZE)
    comm:     an mpi4py communicator
    timeout:  seconds an operation may wait for other ranks
    settings: any other setting, in lower case: shm_ring_bytes="256K"
    """
    global _world, _by_default
    with _lock:
        asked = [boot, store, rank, size, comm, timeout, *settings.values()]
        if _world is not None:
            if any(value is not None for value in asked):
                raise InvalidError(
                    "weft.init was called already; it accepts arguments again after weft.finalize()"
                )
        else:
            with contextlib.closing(_meeting(boot, store, rank, size, comm)) as meeting:
                _world = _core.create(meeting.boot, _settings_text(timeout, settings))
                _by_default = meeting.by_default
        if _by_default:
            _process_group.check(_world)
        return _world


def finalize() -> None:
    """Leave the job. Not collective; does nothing if it was not joined."""
    global _world
    with _lock:
        if _world is not None:
            for let_go in _before_leaving:
                let_go()
            _world.close()
            _world = None


def world() -> World:
    """The World of this process in the job that weft.init joined."""
    if _world is None:
        raise ClosedError("weft.init() was not called, or weft.finalize() was")
    return _world


def rank() -> int:
    """This process's rank, from 0."""
    return world().rank


def size() -> int:
    """The number of ranks in the job."""
    return world().size


def dump(file: Any = None) -> None:
    """Print what each rank of this host is doing, to stderr or `file`."""
    print(world().dump(), end="", file=file or sys.stderr)


class _meeting:
    """The bootstrap that the arguments of init describe, closed after use."""

    def __init__(self, boot: Any, store: Any, rank: Any, size: Any, comm: Any) -> None:
        if sum(way is not None for way in (boot, store, comm)) > 1:
            raise InvalidError("pass only one of boot, store and comm to weft.init")
        if store is None and (rank is not None or size is not None):
            raise InvalidError(
                "rank and size require a store; without one the launcher provides them"
            )
        self.boot: Any = boot
        self.by_default = boot is None and store is None and comm is None
        group = _process_group.current() if self.by_default else None
        if isinstance(boot, str):
            if boot != "alone":
                raise InvalidError(f"boot is {boot!r}; it must be 'alone' or a meeting object")
            self.boot = _boot.Alone()
        elif store is not None:
            self.boot = _boot.TorchStore(store, *_rank_and_size(rank, size))
        elif comm is not None:
            self.boot = _boot.Mpi(comm)
        elif group is not None and group.store is not None:
            self.boot = _boot.TorchStore(group.store, group.rank, group.size)
        elif self.by_default and group is None and _core.launcher()[0] == "torchrun":
            self.boot = _boot.torchrun()
        self._ours = boot is None or isinstance(boot, str)

    def close(self) -> None:
        if self._ours and hasattr(self.boot, "close"):
            self.boot.close()


def _rank_and_size(rank: int | None, size: int | None) -> tuple[int, int]:
    dist = sys.modules.get("torch.distributed")
    if (rank is None) != (size is None):
        raise InvalidError("pass both rank and size, or neither")
    if rank is not None and size is not None:
        return _checked(rank, size)
    if dist is not None and dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    try:
        return _checked(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    except (KeyError, ValueError):
        raise InvalidError(
            "a store does not know the rank of this process: pass rank and size, too"
        ) from None


def _checked(rank: int, size: int) -> tuple[int, int]:
    if not 0 <= rank < size:
        raise InvalidError(f"rank {rank} is out of range (size {size})")
    return rank, size


def _settings_text(timeout: float | None, settings: dict[str, object]) -> str | None:
    if timeout is not None:
        if not timeout > 0:
            raise InvalidError(f"timeout is {timeout!r}; it must be greater than 0")
        settings = {**settings, "timeout": f"{max(1, round(timeout * 1000))}ms"}
    words = []
    for name, value in settings.items():
        text = str(int(value)) if isinstance(value, bool) else str(value)
        if not text or any(c.isspace() for c in text):
            raise InvalidError(f"setting {name} is {text!r}; a value must not contain spaces")
        words.append(f"{name.upper()}={text}")
    return " ".join(words) or None


def _leave_at_exit() -> None:
    # A thread may still be inside an operation; the process's end stops it.
    with contextlib.suppress(InvalidError):
        finalize()


def _forget_in_child() -> None:
    global _world, _lock
    _lock = threading.RLock()
    if _world is not None:
        _world._forget()
        _world = None


atexit.register(_leave_at_exit)
os.register_at_fork(after_in_child=_forget_in_child)
