# SPDX-License-Identifier: Apache-2.0
"""Which process has the place in the job that the launcher gave to this one.

A forked child has the launcher's variables, too, and would wait for ranks that
are there already. So parent and child share a word of memory with the number of
the process that has joined, and the other one is told at once. A process with
other variables, such as each rank that a program forks by itself, has a place of
its own.
"""

import contextlib
import mmap
import os
import struct

from weft._core import ClosedError

# What src/boot/launcher.c takes a rank and its job from.
_VARIABLES = (
    *("WEFT_RANK", "WEFT_RANKS", "WEFT_JOB", "WEFT_BOOT_DIR"),
    *("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    *("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"),
    *("OMPI_COMM_WORLD_RANK", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    *("PMI_RANK", "PMI_JOBID", "SLURM_PROCID", "SLURM_JOB_ID", "SLURM_STEP_ID"),
)
_PID = struct.Struct("q")


class _Seat:
    """A place in a job, and who has it."""

    def __init__(self, place: tuple[str | None, ...]) -> None:
        self.place = place
        self._memory = mmap.mmap(-1, _PID.size)  # shared with children

    @property
    def holder(self) -> int:
        """The process that has it; 0: nobody."""
        return _PID.unpack_from(self._memory)[0]

    @holder.setter
    def holder(self, pid: int) -> None:
        _PID.pack_into(self._memory, 0, pid)


_seat: _Seat | None = None


def check() -> None:
    """Raise ClosedError if a parent or a child of this process has its place."""
    holder = _ours().holder
    if holder not in (0, os.getpid()) and _lives(holder):
        raise ClosedError(
            f"process {holder} has this process's place in the job: one of them was forked from "
            "the other, and a forked child is no rank. Make shared tensors before the fork, where "
            "the child can use them; or call weft.init('alone') in the child, or give it the "
            "variables of another job"
        )


def take() -> None:
    """This process has joined."""
    _ours().holder = os.getpid()


def leave() -> None:
    """This process is a rank no more."""
    if _seat is not None and _seat.holder == os.getpid():
        _seat.holder = 0


def _ours() -> _Seat:
    """The seat for the variables as they are now."""
    global _seat
    place = tuple(map(os.environ.get, _VARIABLES))
    if _seat is None or _seat.place != place:
        _seat = _Seat(place)
    return _seat


def _lives(pid: int) -> bool:
    with contextlib.suppress(PermissionError):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
    return True


os.register_at_fork(before=_ours)  # so that the child has the same
