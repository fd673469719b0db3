# SPDX-License-Identifier: Apache-2.0
"""The Python binding of AdaPM, on weft.Store: the same names, without its defects.

    import weft.compat.adapm as adapm

    adapm.setup(num_keys, num_threads)
    server = adapm.Server(10)              # the length of every value, or of each
    kv = adapm.Worker(0, server)           # one for each of num_threads threads
    kv.push(keys, values)                  # torch or NumPy, float32
    timestamp = kv.pull(keys, values, True)
    kv.wait(timestamp)
    kv.finalize()
    server.shutdown()

Processes find each other by any launcher of weft (torchrun, mpirun, srun), or by the
DMLC_* variables of AdaPM's own, on one host. No scheduler is needed.

docs/guide/adapm.md tells what is different.
"""

import threading
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

from weft import _elements
from weft._core import ClosedError, Error, InvalidError, Request, TimeoutError
from weft._store import TECHNIQUES, Store, whole
from weft.compat import _dmlc

__all__ = ["Server", "Worker", "scheduler", "setup"]


class _Sizes(NamedTuple):
    num_keys: int
    num_threads: int
    techniques: str


_sizes: _Sizes | None = None


def setup(
    num_keys: int, num_threads: int, use_techniques: str = "", num_channels: int = -1
) -> None:
    """Say how many keys there will be, and how many workers each process has.

    num_channels: has no meaning here
    """
    global _sizes
    num_keys, num_threads = whole("num_keys", num_keys), whole("num_threads", num_threads)
    if num_keys < 0 or num_threads < 1:
        raise InvalidError(
            f"num_keys is {num_keys} and num_threads {num_threads}; they must be at least 0 and 1"
        )
    techniques = use_techniques or "all"
    if techniques not in TECHNIQUES:
        known = ", ".join(map(repr, TECHNIQUES))
        raise InvalidError(f"use_techniques is {use_techniques!r}; it must be {known}")
    _sizes = _Sizes(num_keys, num_threads, techniques)


def scheduler(num_keys: int, num_threads: int) -> None:
    """Return at once: nothing is scheduled. Processes that are only this may end."""


class Server:
    """The keys, in all processes. Collective; float32.

    value_lengths: of every value, or an array with that of each
    """

    def __init__(self, value_lengths: Any) -> None:
        if _sizes is None:
            raise InvalidError("call adapm.setup(num_keys, num_threads) before a Server is made")
        comm = _dmlc.join().comm
        self._store = Store(
            _sizes.num_keys,
            _whole_numbers(value_lengths),
            comm=comm,
            techniques=_sizes.techniques,
        )
        self._num_threads = _sizes.num_threads
        self._meeting = threading.Barrier(_sizes.num_threads)
        self._taken: set[int] = set()

    def my_rank(self) -> int:
        """The number of this process."""
        return self._store.rank

    def barrier(self) -> None:
        """Wait for all processes, of which each calls it once."""
        self._store.barrier()

    def enable_sampling_support(
        self,
        scheme: str = "local",
        with_replacement: bool = True,
        distribution: str = "uniform",
        min: int = 0,
        max: int = 0,
    ) -> None:
        """Say how workers draw: naive, preloc, pool or local; uniform or log-uniform."""
        self._store.enable_sampling(
            scheme, distribution, with_replacement=with_replacement, min=min, max=max
        )

    def shutdown(self) -> None:
        """Wait for all processes, and end the server; once."""
        if self._store.closed:
            raise ClosedError("this server was shut down before: shutdown() is called once")
        self._store.finalize()

    def _worker(self, customer_id: int) -> Any:
        if not 0 <= customer_id < self._num_threads:
            raise InvalidError(
                f"worker {customer_id} is out of range: setup said {self._num_threads} threads"
            )
        if customer_id in self._taken:
            raise InvalidError(f"there is a worker {customer_id} of this server already")
        made = self._store.worker()
        self._taken.add(customer_id)
        return made

    def _meet(self, last: Callable[[], None] = lambda: None) -> None:
        """Wait for all workers of all processes; one of each process calls `last`."""
        timeout = self._store.comm.timeout
        try:
            if self._meeting.wait(timeout) == 0:
                self._store.barrier()
                last()
            self._meeting.wait(timeout)
        except threading.BrokenBarrierError:
            raise TimeoutError(
                f"not all {self._num_threads} workers of this process came to a barrier within "
                f"{timeout} seconds, or one of them failed there"
            ) from None
        except BaseException:
            self._meeting.abort()
            raise


class Worker:
    """What one thread uses of a server. All that setup said are needed for barriers."""

    def __init__(self, local_id: int, server: Server) -> None:
        if not isinstance(server, Server):
            raise InvalidError(f"server is {server!r:.60}; it must be a Server")
        self._server = server
        self._worker = server._worker(whole("local_id", local_id))
        self._under_way: dict[int, Request] = {}
        self._failed: dict[int, Error] = {}
        self._stamps = 0
        self._finalized = False

    # Access. The flag is also called by its first name: pull(keys, vals, **{"async": True}).

    def pull(self, keys: Any, vals: Any, async_: bool = False, **flag: bool) -> int:
        """Copy the values of the keys to `vals`; -1, or a timestamp to wait for."""
        return self._do("pull", async_, flag, keys, vals)

    def push(self, keys: Any, vals: Any, async_: bool = False, **flag: bool) -> int:
        """Add `vals` to the values of the keys; -1, or a timestamp to wait for."""
        return self._do("push", async_, flag, keys, vals)

    def set(self, keys: Any, vals: Any, async_: bool = False, **flag: bool) -> int:
        """Overwrite the values of the keys; -1, or a timestamp to wait for."""
        return self._do("set", async_, flag, keys, vals)

    def localize(self, keys: Any, async_: bool = False, **flag: bool) -> int:
        """Bring the keys to this host; -1, or a timestamp to wait for."""
        return self._do("localize", async_, flag, keys)

    def pull_sample(self, id: int, keys: Any, vals: Any, async_: bool = False, **flag: bool) -> int:
        """Fill `keys` and `vals` with the next samples; -1, or a timestamp to wait for."""
        return self._do("sample_pull", async_, flag, id, keys, vals)

    def _do(self, name: str, async_: bool, flag: dict[str, bool], *arguments: Any) -> int:
        if flag:
            async_ = flag.pop("async", async_)
            if flag:
                raise TypeError(f"{name}() got an unexpected argument {next(iter(flag))!r}")
        if self._finalized:
            raise ClosedError("this worker was finalized")
        handle = self._worker._handle
        if not async_:
            getattr(handle, name)(*arguments)
            return -1
        request = getattr(handle, "i" + name)(*arguments)
        if request.done:
            request.wait()
            return -1
        self._forget_what_is_over()
        stamp, self._stamps = self._stamps, self._stamps + 1
        self._under_way[stamp] = request
        return stamp

    def _forget_what_is_over(self) -> None:
        """Programs need not wait for each push; what failed is told when they wait."""
        while self._under_way:
            stamp, request = next(iter(self._under_way.items()))
            if not request.done:
                return
            self._end(stamp)

    def _end(self, stamp: int) -> None:
        try:
            self._under_way.pop(stamp).wait()
        except Error as error:
            self._failed[stamp] = error

    def wait(self, timestamp: int) -> None:
        """Wait for an operation; of one that was waited for before, or of -1, it returns."""
        timestamp = whole("timestamp", timestamp)
        if not -1 <= timestamp < self._stamps:
            raise InvalidError(f"timestamp {timestamp} is none of this worker's")
        if timestamp in self._under_way:
            self._end(timestamp)
        if timestamp in self._failed:
            raise self._failed.pop(timestamp)

    def waitall(self) -> None:
        """Wait for all operations of this worker."""
        for timestamp in [*self._failed, *self._under_way]:
            self.wait(timestamp)

    # Intent and clock.

    def intent(self, keys: Any, start: int, end: int = 0) -> int:
        """Say that the keys will be used while the clock is in [start, end); -1."""
        self._open().intent(keys, start, end)
        return -1

    def advance_clock(self) -> int:
        """Add one to the clock; returns the new value."""
        return self._open().advance_clock()

    def current_clock(self) -> int:
        """The clock."""
        return self._open().current_clock

    def prepare_sample(self, K: int, start: int, end: int = 0) -> int:
        """Announce that `K` samples will be used while the clock is in [start, end); their id."""
        return self._open().prepare_sample(K, start, end)

    def finish_sample(self, id: int) -> None:
        """Let go of what is left of a sample."""
        self._open().finish_sample(id)

    # All workers together.

    def wait_sync(self) -> None:
        """Wait until what was pushed on this host before has reached the owners."""
        self._open().wait_sync()

    def wait_replica_sync(self) -> None:
        """The old name of wait_sync."""
        warnings.warn("wait_replica_sync is now wait_sync", DeprecationWarning, stacklevel=2)
        self.wait_sync()

    def barrier(self) -> None:
        """Wait for all workers of all processes."""
        self._open()
        self._server._meet()

    def begin_setup(self) -> None:
        """All workers are about to write what training begins with."""
        self.wait_sync()
        self.barrier()

    def end_setup(self) -> None:
        """All workers see what was written; statistics begin."""
        self.waitall()
        self.wait_sync()
        self.barrier()
        self.wait_sync()
        self._server._meet(self._server._store.reset_stats)

    def finalize(self) -> None:
        """Wait for all that this worker has done, and for all workers; it ends."""
        worker = self._open()
        try:
            self.waitall()
            self.wait_sync()
            self.barrier()
        finally:
            self._finalized = True
            worker.close()

    # What there is.

    def get_key_size(self, key_id: int = 0) -> int:
        """The length of a key's value."""
        return self._server._store.length(key_id)

    @property
    def num_keys(self) -> int:
        """How many keys there are."""
        return self._server._store.num_keys

    def _open(self) -> Any:
        if self._finalized:
            raise ClosedError("this worker was finalized")
        return self._worker


def _whole_numbers(lengths: Any) -> Any:
    """AdaPM takes lengths in tensors of floating numbers, too."""
    library = _elements.library_of(lengths)
    if library is None:
        return lengths
    found = lengths.long() if library == "torch" else lengths.astype("i8")
    if not bool((found == lengths).all()):
        raise InvalidError(f"value_lengths must be whole numbers, not {lengths!r:.60}")
    return found
