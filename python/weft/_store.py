# SPDX-License-Identifier: Apache-2.0
"""weft.Store: keys and their rows, each where it is used.

    store = weft.Store(10_000_000, 64)
    rows = store.pull(keys)                 # of the kind of the keys: torch or NumPy
    store.push(keys, gradients)             # adds; of equal keys each
    store.intent(keys, start, end)          # "I shall use these soon"

docs/guide/store.md is the guide, <weft/store.h> what is promised.
"""

import collections
import contextlib
import math
import operator
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, NamedTuple

from weft import _agree, _core, _elements, _job, _rows
from weft._core import ClosedError, Comm, Error, InvalidError, Request

TECHNIQUES = ("all", "replication_only", "relocation_only")
SCHEMES = ("naive", "preloc", "pool", "local")
DISTRIBUTIONS = {"uniform": 0, "log-uniform": 1, "log_uniform": 1, "weighted": 2}
_GIVEN = 3
_CHUNK_BYTES = 4 << 20  # of rows that are filled at one time

# The library's word for each type of values, and NumPy's code, by the name that both have.
_TYPES = {
    name: (word, code.replace("V", "u"))
    for word, name, code, _ in _core.TYPES
    if name and code and word in ("f32", "f64", "f16", "bf16", "i32", "i64")
}

# Of rows that optimizers can train.
_TRAINED = ("float32", "float16", "bfloat16")

_Path = str | os.PathLike[str]


class _Values(NamedTuple):
    """What rows of a store are.

    name:    of the type of their elements, as torch and NumPy have it
    length:  of every row; None: they differ
    trained: what is pushed are gradients, with which an optimizer takes steps
    """

    name: str
    length: int | None = None
    trained: bool = False

    def empty(self, library: str, shape: tuple[int, ...]) -> Any:
        """A new array of `library`."""
        if library == "torch":
            torch = sys.modules["torch"]
            return torch.empty(shape, dtype=getattr(torch, self.name), device="cpu")
        import numpy

        return numpy.empty(shape, _TYPES[self.name][1])

    def cast(self, x: Any) -> Any:
        """`x` with elements of this type, in one piece, in host memory."""
        torch = sys.modules.get("torch")
        if torch is not None and (isinstance(x, torch.Tensor) or self.name == "bfloat16"):
            return torch.as_tensor(x).detach().to("cpu", getattr(torch, self.name)).contiguous()
        import numpy

        return numpy.ascontiguousarray(x, _TYPES[self.name][1])


class Worker:
    """A clock, and an order of operations: what a thread uses of a store.

    Made by Store.worker(); the store itself is one, too. Threads that use one and
    the same worker wait for each other.
    """

    def __init__(self, whole: _core.StoreHandle, values: _Values) -> None:
        self._whole = whole
        self._values = values
        self._handle = whole.worker()
        self._pending: collections.deque[Request] = collections.deque()
        self._failure: Error | None = None
        self._lock = threading.Lock()  # of the two

    # Access.

    def pull(self, keys: Any, out: Any = None, async_: bool = False) -> Any:
        """The rows of `keys`, in `out` or a new array of shape keys.shape + (length,).

        A new one is of the kind of the keys, torch or NumPy, and flat where rows differ
        in length. With `async_` a Request, whose wait() returns the rows: until then
        neither keys nor `out` may be changed.
        """
        if out is None:
            keys, out = self._room(keys)
        if async_:
            return self._started(self._handle.ipull(keys, out))
        self._handle.pull(keys, out)
        return out

    def push(self, keys: Any, values: Any, async_: bool = False) -> Request | None:
        """Add `values` to the rows, or take a step of the store's optimizer with them.

        A key that is there twice is added to twice. Values may have any shape, if they
        are as many as the rows have elements. Both are copied: they may be changed at
        once, also with `async_`, which gives a Request.
        """
        if async_:
            return self._started(self._handle.ipush(keys, values))
        self._handle.push(keys, values)
        return None

    def set(self, keys: Any, values: Any, async_: bool = False) -> Request | None:
        """Overwrite the rows, as push; of equal keys the last wins."""
        if async_:
            return self._started(self._handle.iset(keys, values))
        self._handle.set(keys, values)
        return None

    def pull_if_local(self, keys: Any, out: Any = None) -> Any:
        """As pull if all keys are on this host, else None; never waits for another host."""
        if out is None:
            keys, out = self._room(keys)
        return out if self._handle.pull_local(keys, out) else None

    def _room(self, keys: Any) -> tuple[Any, Any]:
        """The keys as an array, and a new one for their rows."""
        library = _elements.library_of(keys)
        if library is None:
            keys = as_keys(keys)
            library = _elements.library_of(keys) or "numpy"
        if self._values.length is None:
            shape: tuple[int, ...] = (self._whole.elements(keys),)
        else:
            shape = (*keys.shape, self._values.length)
        if library == "torch":  # less to find out than for torch.empty
            return keys, keys.new_empty(
                shape, dtype=getattr(sys.modules[library], self._values.name)
            )
        return keys, self._values.empty(library, shape)

    # Requests.

    def _started(self, request: Request) -> Request:
        """Keep what is under way for wait_all, and forget what is over."""
        if not request.done:
            with self._lock:
                while self._pending and self._pending[0].done:
                    self._end(self._pending.popleft())
                self._pending.append(request)
        return request

    def _end(self, request: Request) -> None:
        if request.told:  # to whoever waited for it
            return
        try:
            request.wait()
        except Error as error:
            self._failure = self._failure or error

    def wait(self, request: Request | None) -> Any:
        """Wait for what an asynchronous operation returned; returns what it gives."""
        return None if request is None else _request("wait", request).wait()

    def test(self, request: Request | None) -> bool:
        """Is it over? Raises the error that it ended with."""
        return request is None or _request("test", request).test()

    def wait_all(self) -> None:
        """Wait for all asynchronous operations of this worker; raises the first error of one."""
        with self._lock:
            pending, self._pending = self._pending, collections.deque()
        for request in pending:
            self._end(request)
        with self._lock:
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    # Intent and clock.

    def localize(self, keys: Any, async_: bool = False) -> Request | None:
        """Bring the keys to this host, and keep them there until the worker ends."""
        if async_:
            return self._started(self._handle.ilocalize(keys))
        self._handle.localize(keys)
        return None

    def intent(self, keys: Any, start: int, end: int = 0) -> None:
        """Say that this worker will use the keys while its clock is in [start, end).

        `end` 0 is start + 1; sys.maxsize is for ever.
        """
        self._handle.intent(keys, start, end)

    @property
    def current_clock(self) -> int:
        """The worker's clock, which begins at 0."""
        return self._handle.clock()

    def advance_clock(self) -> int:
        """Add one to the clock; returns the new value."""
        return self._handle.advance()

    def wait_sync(self) -> None:
        """Wait until what was pushed to copies on this host has reached their owners."""
        self._handle.wait_sync()

    # Sampling.

    def prepare_sample(self, n: int, start: int, end: int = 0) -> int:
        """Announce that `n` samples will be used while the clock is in [start, end); their id."""
        return self._handle.sample_prepare(n, start, end)

    def pull_sample(
        self, id: int, n: int, out: Any = None, async_: bool = False, like: str | None = None
    ) -> Any:
        """(keys, rows) of the next `n` samples, or a Request that gives them.

        In portions, until all that were prepared are used. `like` is "torch" or "numpy",
        by default that of `out`, which is needed where rows differ in length.
        """
        if like not in (None, "torch", "numpy"):
            raise InvalidError(f"like is {like!r:.60}; it must be 'torch' or 'numpy'")
        library = like or _elements.library_of(out) or _default_library()
        keys = _Values("int64").empty(library, (_count("n", n),))
        if out is None:
            if self._values.length is None:
                raise InvalidError("rows of this store differ in length: pull_sample needs out")
            out = self._values.empty(library, (len(keys), self._values.length))
        if async_:
            return self._started(self._handle.isample_pull(id, keys, out))
        self._handle.sample_pull(id, keys, out)
        return keys, out

    def finish_sample(self, id: int) -> None:
        """Let go of what is left of a sample."""
        self._handle.sample_finish(id)

    def close(self) -> None:
        """End this worker: its intents expire."""
        self._handle.close()

    def __reduce__(self) -> Any:
        raise TypeError("a store and its workers belong to their process: they cannot be pickled")


class Store(Worker):
    """Keys below `num_keys` and their rows, which all ranks share; zeros at first.

    Collective: all ranks give the same arguments. It is a worker itself: the one of
    threads that have made no other.

    value_length: elements of every row, or an array with the length of each
    dtype:        float32, float64, float16, bfloat16, int32 or int64, of torch, NumPy or a name
    comm:         its ranks; all of the job by default, which is joined if need be
    techniques:   what is done with a key that is wanted elsewhere: "all" (move it, or copy it
                  if others want it too), "replication_only" or "relocation_only"
    init:         a number, an array of all rows, or a function that is given keys and returns
                  their rows; it is asked for each key on one rank only
    optimizer:    pushes are gradients, and this is what is done with them: one of weft.optim
                  without tables (weft.optim.Adagrad(lr=0.1)), the name of its kind ("adagrad"),
                  or a dict of its kind and its arguments ({"kind": "adagrad", "lr": 0.1})
    hashed:       keys are any int64 numbers, at most `num_keys` different ones
    cache:        rows that a host has room for beside those that begin there; 0: as many again
    max_keys:     what resize may reach
    rounds:       synchronizations in a second; 0: 1000; negative: as many as can be
    eager:        act on intents at once, however far off their start is
    seed:         of sampling
    timeout:      seconds that an operation may wait for other ranks; None: as comm
    """

    def __init__(
        self,
        num_keys: int,
        value_length: Any,
        *,
        dtype: Any = "float32",
        comm: Comm | None = None,
        techniques: str = "all",
        init: Any = None,
        optimizer: Any = None,
        hashed: bool = False,
        cache: int = 0,
        max_keys: int = 0,
        rounds: float = 0.0,
        eager: bool = False,
        seed: int = 0,
        timeout: float | None = None,
    ) -> None:
        length, lengths = _lengths(value_length)
        values = _Values(_type_name(dtype), length, optimizer is not None)
        if lengths is not None and hashed:
            raise InvalidError(
                "value_length must be one number: rows of hashed keys have one length"
            )
        if values.trained and values.name not in _TRAINED:
            raise InvalidError(
                f"dtype is {values.name}; with an optimizer it must be one of {', '.join(_TRAINED)}"
            )
        if init is not None and hashed:
            raise InvalidError("keys of a hashed store are not known before: init must be None")
        self.comm = _job.init().comm if comm is None else comm
        whole = _core.store_create(
            self.comm,
            keys=num_keys,
            length=length or 0,
            lengths=lengths,
            type=_TYPES[values.name][0],
            techniques=_index("techniques", techniques, TECHNIQUES),
            rule=_rule(optimizer),
            hashed=hashed,
            cache=cache,
            max_keys=max_keys,
            rounds=_number("rounds", rounds),
            eager=eager,
            seed=seed,
            timeout=timeout,
        )
        self._workers: weakref.WeakSet[Worker] = weakref.WeakSet()
        super().__init__(whole, values)
        _open.add(self)
        if init is not None:
            self._begin(init)

    def worker(self) -> Worker:
        """Another worker of this rank: a clock of its own, for a thread of its own."""
        made = Worker(self._whole, self._values)
        self._workers.add(made)
        return made

    # What it is.

    @property
    def num_keys(self) -> int:
        """How many keys there are."""
        return self._whole.describe()["keys"]

    @property
    def value_length(self) -> int | None:
        """Elements of every row; None: they differ, see length()."""
        return self._values.length

    def length(self, key: int) -> int:
        """Elements of the row of a key."""
        return self._whole.length(key)

    @property
    def dtype(self) -> str:
        """The type of values, by the name that torch and NumPy have for it."""
        return self._values.name

    @property
    def rank(self) -> int:
        """The number of this process among its ranks."""
        return self.comm.rank

    @property
    def hosts(self) -> int:
        """How many hosts hold keys."""
        return self._whole.describe()["hosts"]

    @property
    def host(self) -> int:
        """The number of this one."""
        return self._whole.describe()["host"]

    # All ranks together.

    def barrier(self) -> None:
        """Return when all ranks have called it, each once. Collective."""
        self._whole.barrier()

    def begin_setup(self) -> None:
        """All ranks are about to write what training begins with. Collective."""
        self.wait_sync()
        self.barrier()

    def end_setup(self) -> None:
        """Everybody sees what was written; statistics begin. Collective."""
        self.wait_all()
        for _ in range(2):
            self.wait_sync()
            self.barrier()
        self.reset_stats()

    @contextlib.contextmanager
    def setup(self) -> Iterator["Store"]:
        """begin_setup() and end_setup() around a block. Collective."""
        self.begin_setup()
        yield self
        self.end_setup()

    def enable_sampling(
        self,
        scheme: str = "local",
        distribution: str | Callable[[], int] = "uniform",
        *,
        with_replacement: bool = True,
        min: int = 0,
        max: int = 0,
        weights: Any = None,
        pool: int = 0,
        reuse: int = 0,
    ) -> None:
        """Say how workers of this rank draw samples, once and before they do.

        scheme:       "naive": draw when prepared, pull from wherever; "preloc": with an intent;
                      "pool": from `pool` keys, each used `reuse` times; "local": when pulled,
                      the next key that is on this host
        distribution: "uniform" or "log-uniform" over keys from `min` to below `max` (0: all),
                      "weighted" as `weights` say, or a function that returns a key
        """
        given = distribution if callable(distribution) else None
        number = _GIVEN
        if not callable(distribution):
            if not (isinstance(distribution, str) and distribution in DISTRIBUTIONS):
                known = "'uniform', 'log-uniform', 'weighted'"
                raise InvalidError(
                    f"distribution is {distribution!r}; it must be {known}, or a function"
                )
            number = DISTRIBUTIONS[distribution]
        if (weights is None) == (distribution == "weighted"):
            raise InvalidError("weights and the distribution 'weighted' go together")
        self._whole.sampling(
            scheme=_index("scheme", scheme, SCHEMES),
            distribution=number,
            min=min,
            max=self.num_keys if max == 0 and weights is not None else max,
            distinct=not with_replacement,
            weights=None if weights is None else _numbers("weights", weights, "float64"),
            draw=given,
            pool=pool,
            reuse=reuse,
        )

    def stats(self) -> dict[str, float]:
        """What this rank has counted, by the names of weft_store_stats.

        `local_share` is the part of all keys pulled and pushed that were on this host.
        """
        found: dict[str, float] = self._whole.count()
        all_keys = found["pulls"] + found["pushes"]
        local = found["local_pulls"] + found["local_pushes"]
        return {**found, "local_share": local / all_keys if all_keys else 1.0}

    def reset_stats(self) -> None:
        """Count from zero again."""
        self._whole.reset_count()

    def trace(self, keys: Any, path: _Path) -> None:
        """Write what happens to `keys` on this host to a file, a line each; none: no more."""
        self._whole.trace(keys, path)

    def save(self, path: _Path) -> None:
        """Write all rows, with the optimizer's state, to a file, which appears when it is whole.

        Collective; nobody may write rows meanwhile.
        """
        self._whole.save(path)

    def load(self, path: _Path) -> None:
        """Fill it from a file of save(), of any number of ranks. Collective, as save."""
        self._whole.load(path)

    def resize(self, num_keys: int) -> None:
        """Change the number of keys, up to max_keys; new rows are zeros. Collective, as save."""
        self._whole.resize(num_keys)

    # Its end.

    @property
    def closed(self) -> bool:
        """Was it finalized or closed?"""
        return self._whole.closed

    @property
    def _ended(self) -> str:
        return "finalized" if self._whole.finalized else "closed"

    def finalize(self) -> None:
        """Wait for all ranks, with all that they have pushed, and end the store. Collective.

        Once: a second call raises ClosedError. close() may be called behind it.
        """
        if self.closed:
            raise ClosedError(
                f"this store was {self._ended} before: finalize() is called once, and not after "
                "close()"
            )
        try:
            self.wait_all()
            self.wait_sync()
            self.barrier()
            self._whole.finalize()
        finally:
            self.close()

    def close(self) -> None:
        """Leave the store, with what was pushed to copies on this host or without it.

        With several hosts it waits until all ranks leave, since they may need rows of this
        host. Does nothing the second time.
        """
        self._whole.close()
        self._end_workers()

    def _abandon(self) -> None:
        """Leave without waiting: what others need of this host stays until the job ends."""
        self._whole.abandon()
        self._end_workers()

    def _end_workers(self) -> None:
        for worker in (*self._workers, self):
            with contextlib.suppress(InvalidError):  # a thread that is inside it ends it
                worker._handle.close()
        _open.discard(self)

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.closed:
            return
        if kind is None:
            self.finalize()
        else:
            self._abandon()

    def __repr__(self) -> str:
        if self.closed:
            return f"<weft.Store {self._ended}>"
        length = "of several lengths" if self.value_length is None else f"of {self.value_length}"
        return (
            f"<weft.Store {self.num_keys} rows {length} {self.dtype}, rank {self.comm.rank} of "
            f"{self.comm.size}, {self.hosts} hosts>"
        )

    # Its first rows.

    def _begin(self, init: Any) -> None:
        """Fill all rows, each by one rank."""
        try:
            _agree.together(self.comm, lambda: self._fill(init))
        except BaseException:
            self.close()
            raise

    def _fill(self, init: Any) -> None:
        first, after = (self.num_keys * r // self.comm.size for r in (self.rank, self.rank + 1))
        rows = self._first_rows(init)
        step = min(1 << 16, max(1, _CHUNK_BYTES // (8 * (self.value_length or 64) + 8)))
        for start in range(first, after, step):
            keys = _range(start, min(after, start + step))
            self._handle.set(keys, rows(keys))

    def _first_rows(self, init: Any) -> Callable[[Any], Any]:
        """The function that gives the first rows of consecutive keys."""
        if callable(init):
            return lambda keys: self._given_rows(init, keys)
        if _elements.library_of(init) is None:
            one = self._values.empty(_default_library(), (1,))
            try:
                one[0] = init
            except (TypeError, ValueError):
                raise InvalidError(
                    f"init must be a number, an array of all rows or a function, not {init!r:.60}"
                ) from None
            return lambda keys: one.repeat(self._elements(int(keys[0]), int(keys[-1]) + 1))
        flat = init.reshape(-1)
        total = self._elements(0, self.num_keys)
        if len(flat) != total:
            raise InvalidError(f"init has {len(flat)} elements, but all rows together {total}")

        def cut(keys: Any) -> Any:
            begin, end = (self._elements(0, int(key)) for key in (keys[0], keys[-1] + 1))
            return self._values.cast(flat[begin:end])

        return cut

    def _given_rows(self, init: Callable[[Any], Any], keys: Any) -> Any:
        """What the function `init` returns for consecutive keys."""
        first, last = int(keys[0]), int(keys[-1])
        rows = _numbers("what init returned", init(keys), self._values.name)
        wanted = self._elements(first, last + 1)
        if math.prod(rows.shape) != wanted:
            raise InvalidError(
                f"init returned {math.prod(rows.shape)} elements for keys {first} to {last}, but "
                f"their rows have {wanted}"
            )
        return rows

    def _elements(self, start: int, stop: int) -> int:
        """Of the rows of keys from `start` to below `stop`."""
        if self.value_length is not None:
            return (stop - start) * self.value_length
        return self._whole.elements(_range(start, stop))


def as_keys(keys: Any, name: str = "keys") -> Any:
    """Keys that the C module cannot read, as contiguous int32 or int64, or why not."""
    try:
        return _rows._ids(keys, name)
    except TypeError as error:
        raise InvalidError(str(error)) from None


def _request(function: str, request: Any) -> Request:
    if not isinstance(request, Request):
        raise InvalidError(
            f"request is {request!r:.60}; {function}() takes what an operation with async_=True "
            "returned"
        )
    return request


def _range(start: int, stop: int) -> Any:
    if _default_library() == "torch":
        return sys.modules["torch"].arange(start, stop)
    import numpy

    return numpy.arange(start, stop, dtype=numpy.int64)


def _default_library() -> str:
    return "torch" if "torch" in sys.modules else "numpy"


def _lengths(value_length: Any) -> tuple[int | None, Any]:
    """(length of every row, None), or (None, int64 lengths of all)."""
    try:
        return operator.index(value_length), None
    except TypeError:
        if isinstance(value_length, str) or not hasattr(value_length, "__len__"):
            raise InvalidError(
                f"value_length is {value_length!r:.60}; it must be a whole number, or an array "
                "with one for each key"
            ) from None
        lengths = as_keys(value_length, "lengths in value_length").reshape(-1)
    if len(lengths) == 1:
        return int(lengths[0]), None
    wide = lengths.long() if _elements.library_of(lengths) == "torch" else lengths.astype("i8")
    return None, wide


def whole(name: str, given: Any) -> int:
    """An argument as an int."""
    try:
        return operator.index(given)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, not {given!r:.60}") from None


def _count(name: str, given: Any) -> int:
    number = whole(name, given)
    if number < 0:
        raise InvalidError(f"{name} is {number}; it must not be negative")
    return number


def _number(name: str, given: Any) -> float:
    try:
        number = float(given)
    except (TypeError, ValueError):
        raise InvalidError(f"{name} is {given!r:.60}; it must be a number") from None
    if math.isnan(number):
        raise InvalidError(f"{name} is nan; it must be a number")
    return number


def _numbers(name: str, given: Any, type_name: str) -> Any:
    """An argument as an array in host memory, or why not."""
    try:
        if given is None:
            raise TypeError
        return _Values(type_name).cast(given)
    except (RuntimeError, TypeError, ValueError):
        raise InvalidError(f"{name} must be numbers, not {given!r:.60}") from None


def _type_name(dtype: Any) -> str:
    name = "float32" if dtype is None else str(dtype).removeprefix("torch.")
    if name not in _TYPES:
        with contextlib.suppress(ImportError, TypeError):
            import numpy

            name = numpy.dtype(dtype).name
    if name not in _TYPES:
        raise InvalidError(f"dtype is {dtype!r}; values can be {', '.join(_TYPES)}")
    return name


def _index(name: str, word: str, words: tuple[str, ...]) -> int:
    if word not in words:
        raise InvalidError(f"{name} is {word!r}; it must be {', '.join(map(repr, words))}")
    return words.index(word)


def _rule(optimizer: Any) -> Any:
    """What weft.optim says of it."""
    if optimizer is None:
        return None
    from weft import optim

    return optim.described(optimizer).rule_of_rows()


_open: "weakref.WeakSet[Store]" = weakref.WeakSet()


def _leave() -> None:
    """The job ends: so do its stores. A program that fails does not wait for other hosts."""
    failed = getattr(sys, "last_value", None) is not None
    for store in list(_open):
        if store.comm.world is _job._world:
            store._abandon() if failed else store.close()


_job._before_leaving.append(_leave)
