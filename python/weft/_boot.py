# SPDX-License-Identifier: Apache-2.0
"""How the ranks of a job meet, where that is a Python object.

A bootstrap object has `rank` and `size`, `set(key, value)` and
`get(key, timeout)`, which waits for the key and raises TimeoutError when it
does not come; it is then asked again, so that Ctrl-C is seen between. It is
used while a world is made, and no longer.
"""

import contextlib
import datetime
import fcntl
import hmac
import os
import secrets
import socket
import socketserver
import struct
import sys
import threading
import time
from typing import Any, NamedTuple, Protocol

from weft import _threads
from weft._core import MismatchError


class Meeting(Protocol):
    """What `weft.init(boot=...)` takes."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    def set(self, key: str, value: bytes) -> Any: ...
    def get(self, key: str, timeout: float) -> bytes: ...


class Alone:
    """A job of one rank."""

    rank = 0
    size = 1

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}

    def set(self, key: str, value: bytes) -> None:
        self._values[key] = value

    def get(self, key: str, timeout: float) -> bytes:
        if key not in self._values:
            raise TimeoutError(f"{key} is not set, and the job has no other rank that could set it")
        return self._values[key]


class Named(NamedTuple):
    """Ranks of this host that know a common name; the library brings them together."""

    name: str
    rank: int
    size: int


class TorchStore:
    """A torch.distributed Store.

    A store outlives worlds, so each meeting takes a fresh set of keys: every
    rank counts itself in, and the count tells which meeting it belongs to.
    """

    def __init__(self, store: Any, rank: int, size: int) -> None:
        self.rank, self.size, self._store = rank, size, store
        everywhere, here = os.environ.get("WORLD_SIZE"), os.environ.get("LOCAL_WORLD_SIZE")
        self.one_host = str(size) == everywhere == here
        meeting = (store.add("weft/joined", 1) - 1) // size
        self._prefix = f"weft/{meeting}/"
        if store.add(f"{self._prefix}came/{rank}", 1) > 1:
            raise MismatchError(
                f"rank {rank} of {size} has used this store before: two processes have the same "
                "rank, or an earlier attempt found too few ranks and this one needs a new store"
            )

    def set(self, key: str, value: bytes) -> None:
        self._store.set(self._prefix + key, value)

    def get(self, key: str, timeout: float) -> bytes:
        start = time.monotonic()
        try:
            self._store.wait([self._prefix + key], datetime.timedelta(seconds=timeout))
        except RuntimeError as error:
            # torch has one exception for a timeout and a lost connection.
            if time.monotonic() - start < 0.9 * timeout:
                raise
            raise TimeoutError(str(error)) from error
        return bytes(self._store.get(self._prefix + key))


_kept: list[Any] = []  # stores that other ranks may still be reading from


def torchrun() -> TorchStore | None:
    """The store of torchrun, if it has started ranks on several hosts; else None.

    On one host the library needs none. A directory, or another way that the
    user has named, comes first; and where torch is missing, the library says
    what else there is.
    """
    env = os.environ
    if env.get("WEFT_BOOT_DIR") or env.get("WEFT_BOOT", "auto") != "auto":
        return None
    try:
        if int(env["LOCAL_WORLD_SIZE"]) >= int(env["WORLD_SIZE"]):
            return None
        import torch.distributed as dist

        # As init_process_group does: the agent's own store if it has one, or
        # else a server in rank 0, which a later process group then shares.
        timeout = datetime.timedelta(seconds=_REACH)
        store, rank, size = next(dist.rendezvous("env://", timeout=timeout))
    except (KeyError, ValueError, ImportError):
        return None
    _kept.append(store)
    return TorchStore(store, rank, size)


def _count(comm: Any, said: bool) -> int:
    """How many ranks say it.

    Others may need this rank's board meanwhile, whose threads could not run while
    mpi4py waits: it does not let go of the interpreter in every call.
    """
    from mpi4py import MPI

    own, total = int(said).to_bytes(8, sys.byteorder), bytearray(8)
    request = comm.Iallreduce([own, MPI.INT64_T], [total, MPI.INT64_T])
    while not request.Test():
        time.sleep(0.001)
    return int.from_bytes(total, sys.byteorder)


class Mpi:
    """An mpi4py communicator: it tells all ranks where rank 0 keeps a `Board`."""

    def __init__(self, comm: Any) -> None:
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self._board = Board() if self.rank == 0 else None
        where = comm.bcast(self._board.where if self._board else None, root=0)
        try:
            self._visitor = Visitor(where)
        finally:
            arrived = _count(comm, hasattr(self, "_visitor"))
        if arrived != self.size:
            raise ConnectionError(
                f"{self.size - arrived} of {self.size} ranks could not reach rank 0 by TCP"
            )

    def set(self, key: str, value: bytes) -> None:
        self._visitor.set(key, value)

    def get(self, key: str, timeout: float) -> bytes:
        return self._visitor.get(key, timeout)

    def close(self) -> None:
        self._visitor.close()
        if self._board is not None:
            self._board.close()


_HEADER = struct.Struct("!cIId")  # what, bytes of key, bytes of value, timeout
_LIMIT = 1 << 20
_REACH = 300.0  # seconds to reach a store that has yet to be started
_CONNECT = 5.0  # seconds to reach one address of a board
_NONCE = 16
_SIOCGIFADDR = 0x8915


def _proof(secret: bytes, who: bytes, nonce: bytes) -> bytes:
    return hmac.digest(secret, who + nonce, "sha256")


def _own_addresses() -> list[str]:
    """Where other hosts may reach this one, and last what its own processes can use."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # it has no address of this kind
                answer = fcntl.ioctl(asked, _SIOCGIFADDR, struct.pack("256s", name.encode()))
                found.append(socket.inet_ntoa(answer[20:24]))
    outer = [address for address in found if not address.startswith("127.")]
    return [*outer, socket.gethostname(), "127.0.0.1"]


class Board:
    """Keys and values, served by TCP to those who know the secret."""

    def __init__(self) -> None:
        self.secret = secrets.token_bytes(32)
        self.changed = threading.Condition()
        self.values: dict[bytes, bytes] = {}
        self._server = _Server(("", 0), _Handler)
        self._server.board = self
        _threads.start(self._server.serve_forever)
        port = self._server.server_address[1]
        self.where = (_own_addresses(), port, self.secret)

    def close(self) -> None:
        """End it when the last visitor has left."""
        _threads.start(self._server.end)


class Visitor:
    """A rank's connection to the board."""

    def __init__(self, where: tuple[list[str], int, bytes]) -> None:
        addresses, port, secret = where
        reasons = []
        for address in addresses:
            try:
                self._socket = self._reach(address, port, secret)
                return
            except OSError as error:
                reasons.append(f"{address}: {error}")
        raise ConnectionError(f"rank 0 cannot be reached by TCP ({'; '.join(reasons)})")

    @staticmethod
    def _reach(address: str, port: int, secret: bytes) -> socket.socket:
        """A connection on which both sides have proved the secret, without saying it.

        Another host may have the same addresses on networks of its own, and
        something else behind them.
        """
        connection = socket.create_connection((address, port), timeout=_CONNECT)
        try:
            nonce = secrets.token_bytes(_NONCE)
            theirs = _read(connection, _NONCE)
            connection.sendall(nonce + _proof(secret, b"visitor", theirs))
            proof = _proof(secret, b"board", nonce)
            if not hmac.compare_digest(_read(connection, len(proof)), proof):
                raise ConnectionError("somebody else answers there")
        except OSError:
            connection.close()
            raise
        return connection

    def set(self, key: str, value: bytes) -> None:
        self._ask(b"S", key, value, 60)

    def get(self, key: str, timeout: float) -> bytes:
        found, value = self._ask(b"G", key, b"", timeout)
        if not found:
            raise TimeoutError(f"{key} was not set within {timeout:.1f} s")
        return value

    def close(self) -> None:
        self._socket.close()

    def _ask(self, what: bytes, key: str, value: bytes, timeout: float) -> tuple[bool, bytes]:
        name = key.encode()
        self._socket.settimeout(timeout + 60)
        self._socket.sendall(_HEADER.pack(what, len(name), len(value), timeout) + name + value)
        found, _, size, _ = _HEADER.unpack(_read(self._socket, _HEADER.size))
        return found == b"Y", _read(self._socket, size)


def _read(connection: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = connection.recv(min(size, 1 << 16))
        if not part:
            raise ConnectionError("rank 0 closed the connection during the bootstrap")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = True
    board: Board

    def end(self) -> None:
        self.shutdown()
        self.server_close()


class _Handler(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        board = self.server.board
        with contextlib.suppress(OSError):
            nonce = secrets.token_bytes(_NONCE)
            self.request.sendall(nonce)
            theirs = _read(self.request, _NONCE)
            proof = _proof(board.secret, b"visitor", nonce)
            if hmac.compare_digest(_read(self.request, len(proof)), proof):
                self.request.sendall(_proof(board.secret, b"board", theirs))
                while True:
                    self._answer(board)

    def _answer(self, board: Board) -> None:
        what, key_size, size, timeout = _HEADER.unpack(_read(self.request, _HEADER.size))
        if key_size > _LIMIT or size > _LIMIT:
            raise ConnectionError("a message exceeds the limit of keys and values")
        key, value = _read(self.request, key_size), _read(self.request, size)
        with board.changed:
            if what == b"S":
                board.values[key] = value
                board.changed.notify_all()
            found = board.changed.wait_for(lambda: key in board.values, min(timeout, 86400))
            value = board.values[key] if what == b"G" and found else b""
        self.request.sendall(_HEADER.pack(b"Y" if found else b"N", 0, len(value), 0) + value)
