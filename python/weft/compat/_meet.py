# SPDX-License-Identifier: Apache-2.0
"""How processes that only know their rank and their number find each other.

    1. torch.distributed, where it is initialised
    2. MASTER_ADDR and MASTER_PORT, by a torch store
    3. a file in a folder that only this user can read, named after WEFT_JOB, or
       after the parent process: rank 0 writes where it listens, and a secret

A file that an earlier job has left names a listener that is gone, or one that
does not know the secret; then the others go on looking until rank 0 writes its own.
"""

import contextlib
import datetime
import json
import os
import pathlib
import socket
import stat
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from weft import _boot
from weft._core import DeniedError, TimeoutError

DEADLINE = 30.0  # seconds
_PAUSE = 0.02
_PROBE = 2.0


class Patience:
    """How long a rank waits for the others, all in all."""

    def __init__(self) -> None:
        self.seconds = DEADLINE
        self.end = time.monotonic() + self.seconds

    def left(self, most: float) -> float:
        """Seconds to wait for the next thing."""
        return max(0.1, min(most, self.end - time.monotonic()))


class StoreMeeting(_boot.TorchStore):
    """A torch store, with our deadline."""

    def __init__(self, store: Any, rank: int, size: int) -> None:
        self._patience = Patience()
        super().__init__(store, rank, size)

    def get(self, key: str, timeout: float) -> bytes:
        return super().get(key, self._patience.left(timeout))

    def formed(self) -> None:
        """The store counts by itself."""

    def close(self) -> None:
        """The store is its owner's."""

    def late(self, what: str) -> Exception:
        """What to raise when the others do not come."""
        return TimeoutError(
            f"rank {self.rank} of {self.size} waited {self._patience.seconds:.0f} s for others: "
            f"{what}. All must have the same MASTER_ADDR and MASTER_PORT"
        )


class FolderMeeting:
    """A meeting place for `weft.init(boot=...)`, kept by rank 0.

    A job may end and form again. A rank that is quick must not meet the board of
    the last time, so each time has a file of its own; all ranks count alike.
    """

    _formed = 0  # times that this process has met the others

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._patience = Patience()
        self._file = folder() / f"{_key()}-{FolderMeeting._formed}.json"
        self._board = _boot.Board() if rank == 0 else None
        if self._board is not None:
            self._announce(self._board)
            self._visitor = _boot.Visitor(self._board.where)
        else:
            self._visitor = self._find()

    def set(self, key: str, value: bytes) -> None:
        self._visitor.set(key, value)

    def get(self, key: str, timeout: float) -> bytes:
        return self._visitor.get(key, self._patience.left(timeout))

    def formed(self) -> None:
        """The job is there."""
        FolderMeeting._formed += 1

    def close(self) -> None:
        """Rank 0 serves until the others have left."""
        self._visitor.close()
        if self._board is not None:
            with contextlib.suppress(FileNotFoundError):
                self._file.unlink()
            self._board.close()

    def _announce(self, board: _boot.Board) -> None:
        host, port, secret = board.where
        text = json.dumps({"host": host, "port": port, "secret": secret.hex(), "size": self.size})
        handle, name = tempfile.mkstemp(dir=self._file.parent)
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.replace(name, self._file)

    def _find(self) -> _boot.Visitor:
        while time.monotonic() < self._patience.end:
            for visitor in self._try():
                return visitor
            time.sleep(_PAUSE)
        raise self.late("rank 0 has not come")

    def _try(self) -> Iterator[_boot.Visitor]:
        with contextlib.suppress(OSError, ValueError, KeyError):
            about = json.loads(self._file.read_text())
            where = (about["host"], about["port"], bytes.fromhex(about["secret"]))
            if _answers(where):
                yield _boot.Visitor(where)

    def late(self, what: str) -> Exception:
        """What to raise when the others do not come."""
        return TimeoutError(
            f"rank {self.rank} of {self.size} waited {self._patience.seconds:.0f} s for others: "
            f"{what}. Ranks meet in {self._file}: those of one job need one parent process, or the "
            "same WEFT_JOB in their environment; or set MASTER_ADDR and MASTER_PORT for all"
        )


def _answers(where: tuple[str, int, bytes]) -> bool:
    """Is there a board that knows the secret? Who listens there now may be anybody."""
    host, port, secret = where
    key = b"here"
    question = secret + _boot._HEADER.pack(b"S", len(key), 0, 1.0) + key
    near = "localhost" if host == socket.gethostname() else host
    with socket.create_connection((near, port), timeout=_PROBE) as line:
        line.sendall(question)
        return line.recv(1) == b"Y"


def folder() -> pathlib.Path:
    """The folder of this user; nobody else may look into it."""
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    place = pathlib.Path(base if os.path.isdir(base) else tempfile.gettempdir())
    path = place / f"weft-{os.geteuid()}"
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    about = path.lstat()
    if (
        not stat.S_ISDIR(about.st_mode)
        or about.st_uid != os.geteuid()
        or stat.S_IMODE(about.st_mode) & 0o077
    ):
        raise DeniedError(
            f"{path} is not a folder of this user alone (mode 0700): remove it, or set "
            "XDG_RUNTIME_DIR, or MASTER_ADDR and MASTER_PORT"
        )
    return path


def _key() -> str:
    job = os.environ.get("WEFT_JOB")
    if job is None:
        return f"parent-{os.getppid()}"
    return "job-" + "".join(c if c.isalnum() or c in "-_" else f"%{ord(c):x}" for c in job)[:200]


def torch_store(rank: int, size: int) -> Any:
    """The store of MASTER_ADDR and MASTER_PORT, or of torch.distributed; None: neither is there."""
    import torch.distributed as dist

    if not dist.is_available():
        return None
    if dist.is_initialized() and (dist.get_rank(), dist.get_world_size()) == (rank, size):
        return dist.distributed_c10d._get_default_store()
    host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    if not host or not port:
        return None
    patience = datetime.timedelta(seconds=DEADLINE)
    # Under torchrun the agent has the store already.
    serves = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    options: dict[str, Any] = {"timeout": patience, "wait_for_workers": False}
    try:
        store = dist.TCPStore(host, int(port), size, serves, multi_tenant=True, **options)
    except RuntimeError as error:
        raise TimeoutError(
            f"rank {rank} of {size} cannot meet the others at MASTER_ADDR {host}, MASTER_PORT "
            f"{port}: {error}. Rank 0 must run there, with the same values"
        ) from error
    return dist.PrefixStore("wholememory", store)
