# SPDX-License-Identifier: Apache-2.0
"""How processes that only know their rank and their number find each other.

    1. torch.distributed, where it is initialised
    2. MASTER_ADDR and MASTER_PORT, by a torch store
    3. the launcher that has given them these very numbers: mpirun, srun, WEFT_RANK
    4. WEFT_JOB, the name of a job on this host

Without any of them nothing tells two jobs apart that run at the same time: neither
their parent process nor the time they were started says who belongs to whom. So
that is refused.
"""

import datetime
import os
import time
from collections.abc import Callable
from typing import Any

from weft import _boot, _core, _job
from weft._core import InvalidError, TimeoutError

DEADLINE = 30.0  # seconds

# Jobs of WEFT_JOB that this process was in. One that ends may form again; a rank that
# is quick must not meet the others of the last time, and all ranks count alike.
_formed = 0


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


def join(rank: int, size: int) -> Any:
    """Join the job; returns the store that was used, which rank 0 may serve, or None."""
    global _formed
    store = torch_store(rank, size)
    if store is not None:
        hint = "All must have the same MASTER_ADDR and MASTER_PORT"
        _wait(rank, size, hint, lambda: _job.init(StoreMeeting(store, rank, size)))
        return store
    limit = f"{max(1, round(DEADLINE * 1000))}ms"
    name = os.environ.get("WEFT_JOB")
    hint = f"All must have the same WEFT_JOB (here {name}); or set MASTER_ADDR and MASTER_PORT"
    if _is_launched(rank, size):
        _wait(rank, size, hint, lambda: _job.init(boot_timeout=limit))
    elif name:
        boot = _boot.Named(f"wholememory:{name}#{_formed}", rank, size)
        _wait(rank, size, hint, lambda: _job.init(boot, boot_timeout=limit))
        _formed += 1
    else:
        raise InvalidError(
            f"the job of this rank, {rank} of {size}, cannot be distinguished from others that run "
            "at the same time: before the ranks are started, set WEFT_JOB to a name that no other "
            "job has (os.environ['WEFT_JOB'] = secrets.token_hex(8)); or set MASTER_ADDR and "
            "MASTER_PORT"
        )
    return None


def _is_launched(rank: int, size: int) -> bool:
    try:
        return _core.launcher()[0] != "alone" and _core.boot_rank() == (rank, size)
    except InvalidError:  # half an environment, of which nobody asked us to make use
        return False


def _wait(rank: int, size: int, hint: str, init: Callable[[], Any]) -> None:
    start = time.monotonic()
    try:
        init()
    except TimeoutError as error:
        waited = time.monotonic() - start
        raise TimeoutError(
            f"rank {rank} of {size} waited {waited:.0f} s for others: {error}. {hint}"
        ) from error


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
            f"rank {rank} of {size} cannot connect to MASTER_ADDR {host}, MASTER_PORT "
            f"{port}: {error}. Rank 0 must run there, with the same values"
        ) from error
    return dist.PrefixStore("wholememory", store)
