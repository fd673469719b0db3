# SPDX-License-Identifier: Apache-2.0
"""Shared tensors for processes that are no ranks: the memory is passed, not a copy.

A process that shares has a thread that listens on a Unix socket without a path
in the file system. Whoever is of the same user and shows the token of a tensor
gets the descriptor of its memory there. multiprocessing's queues and arguments
carry tokens by themselves; weft.share makes one for any other way.
"""

import contextlib
import importlib
import os
import secrets
import socket
import struct
import sys
import threading
import time
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

from weft import _core, _elements, _threads
from weft._core import DeniedError, InvalidError, PeerError, UnsupportedError

_TOKEN = 32  # bytes
_SECONDS = 20.0  # for the other side of a conversation
_PAUSE = 0.1  # seconds before the next try to let somebody in


class IpcHandle(NamedTuple):
    """What another process needs to map a tensor: its memory, and its layout there."""

    address: bytes
    token: bytes
    offset: int
    bytes: int
    start: int
    dtype: Any
    library: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    writable: bool


class Shared:
    """A ticket to a tensor's memory, which weft.attach takes in any process of this user.

    It can be pickled. The memory is kept for those who come until close(), the end
    of a `with`, or of this object in the process that made it.
    """

    def __init__(self, ipc: IpcHandle, keeper: "_Keeper | None" = None) -> None:
        self._ipc = ipc
        self._keeper = keeper

    def close(self) -> None:
        """Nobody else may come; does nothing in other processes."""
        if self._keeper is not None:
            self._keeper.forget(self._ipc.token)

    def __enter__(self) -> "Shared":
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return Shared, (self._ipc,)

    def __repr__(self) -> str:
        return f"<weft.Shared {self._ipc.sizes} {self._ipc.dtype}>"


def share(t: Any) -> Shared:
    """A ticket with which other processes of this user attach to the memory of `t`."""
    keeper = _keeper()
    return Shared(_ipc_handle(t, keeper, once=False), keeper)


def attach(shared: Shared) -> Any:
    """The tensor that another process shared, on the same memory."""
    if not isinstance(shared, Shared):
        raise TypeError(f"attach takes what weft.share returned, not {type(shared).__name__}")
    return _attach(shared._ipc)


def install() -> None:
    """Have multiprocessing pass shared tensors by their memory, from now on."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    reducers = ForkingPickler._extra_reducers  # type: ignore[attr-defined]
    if torch is not None and reducers.get(torch.Tensor) is not _reduce_tensor:
        importlib.import_module("torch.multiprocessing")  # registers torch's own first
        _torch_reducers.update(
            {kind: reducers[kind] for kind in (torch.Tensor, torch.nn.Parameter)}
        )
        for kind in _torch_reducers:
            ForkingPickler.register(kind, _reduce_tensor)
    if numpy is not None and reducers.get(numpy.ndarray) is not _reduce_array:
        ForkingPickler.register(numpy.ndarray, _reduce_array)


_torch_reducers: dict[type, Any] = {}


def _reduce_tensor(t: Any) -> Any:
    if t.device.type == "cpu" and (t.is_leaf or not t.requires_grad):
        ipc = _ipc_handle_or_none(t)
        if ipc is not None:
            parameter = type(t) is not sys.modules["torch"].Tensor
            return _rebuild_tensor, (ipc, parameter, t.requires_grad)
    return _torch_reducers[type(t)](t)


def _rebuild_tensor(ipc: IpcHandle, parameter: bool, requires_grad: bool) -> Any:
    import torch

    t = _attach(ipc)
    if parameter:
        return torch.nn.Parameter(t, requires_grad)
    return t.requires_grad_(requires_grad) if requires_grad else t


def _reduce_array(x: Any) -> Any:
    ipc = _ipc_handle_or_none(x)
    return x.__reduce_ex__(4) if ipc is None else (_attach, (ipc,))


def _ipc_handle_or_none(t: Any) -> IpcHandle | None:
    """Where `t` is, for one process to come; None if it does not lie in shared memory."""
    from weft import _region

    handle = _region.find(t)
    if handle is None or (not handle.attached and handle.describe()["shape"][0] == 0):
        return None
    try:
        return _ipc_handle(t, _keeper(), once=True)
    except UnsupportedError:
        return None


def _ipc_handle(t: Any, keeper: "_Keeper", once: bool) -> IpcHandle:
    from weft import _region

    handle = _region.find(t)
    if handle is None:
        raise InvalidError("the tensor does not lie in a region and cannot be shared")
    library = _elements.library_of(t) or "numpy"
    if library == "torch":
        address = t.data_ptr()
        strides = tuple(step * t.element_size() for step in t.stride())
    else:
        address, strides = t.ctypes.data, tuple(t.strides)
    start, writable = handle.offset_of(address)
    fd, offset, size = handle.export()
    token = keeper.keep(fd, once)
    return IpcHandle(
        keeper.address,
        token,
        offset,
        size,
        start,
        t.dtype,
        library,
        tuple(t.shape),
        strides,
        writable,
    )


def _attach(ipc: IpcHandle) -> Any:
    from weft import _region

    element = _elements.element(ipc.dtype, ipc.library)
    fd = _fetch(ipc)
    try:
        handle = _core.region_attach(fd, ipc.offset, ipc.bytes, ipc.writable)
    finally:
        os.close(fd)
    facts = _region.Facts(element, ipc.sizes[1:], None, ipc.start, (ipc.sizes, ipc.strides))
    handle.facts = facts
    install()
    return _region.Region(handle, facts).tensor


def _fetch(ipc: IpcHandle) -> int:
    """The descriptor, from the process that shares it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(_SECONDS)
        try:
            link.connect(ipc.address)
            _check_user(link)
            link.sendall(ipc.token)
            answer, fds, _, _ = socket.recv_fds(link, 1, 1)
        except OSError as error:
            if isinstance(error, DeniedError):
                raise
            raise PeerError(
                f"the process that shared the tensor cannot be reached ({error}): it has ended, "
                "or is in another container"
            ) from error
    if answer != b"+" or len(fds) != 1:
        for fd in fds:
            os.close(fd)
        raise InvalidError(
            "the tensor is not shared any more: its ticket was closed, or was for one process "
            "and has been used"
        )
    return fds[0]


def _check_user(link: socket.socket) -> None:
    form = "3i"
    found = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize(form))
    _, user, _ = struct.unpack(form, found)
    if user != os.geteuid():
        raise DeniedError(
            f"the other process belongs to user {user}; memory is shared within one user only"
        )


class _Keeper:
    """The descriptors that this process has shared, and the thread that hands them out."""

    def __init__(self) -> None:
        # A tensor may be collected, and forgotten, while this thread has the lock.
        self._lock = threading.RLock()
        self._kept: dict[bytes, tuple[int, bool]] = {}
        self._pid = os.getpid()
        self.address = b"\0weft-share-" + secrets.token_hex(16).encode()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.address)
        self._listener.listen(64)
        _threads.start(self._serve, name="weft-share")

    def keep(self, fd: int, once: bool) -> bytes:
        token = secrets.token_bytes(_TOKEN)
        with self._lock:
            self._kept[token] = (fd, once)
        return token

    def forget(self, token: bytes) -> None:
        if os.getpid() != self._pid:
            return
        with self._lock:
            kept = self._kept.pop(token, None)
        if kept is not None:
            os.close(kept[0])

    def abandon(self) -> None:
        """In a forked child: all of this is the parent's."""
        self._listener.close()
        for fd, _ in self._kept.values():
            os.close(fd)
        self._kept = {}

    def _serve(self) -> None:
        while True:
            try:
                link, _ = self._listener.accept()
                # Each by itself: one that says nothing does not hold up the others.
                _threads.start(self._answer, link)
            except (OSError, RuntimeError):  # out of descriptors, or threads
                time.sleep(_PAUSE)

    def _answer(self, link: socket.socket) -> None:
        with link, contextlib.suppress(OSError):
            link.settimeout(_SECONDS)
            _check_user(link)
            self._hand_out(link, link.recv(_TOKEN, socket.MSG_WAITALL))

    def _hand_out(self, link: socket.socket, token: bytes) -> None:
        with self._lock:
            # Tokens are found by a hash that nobody outside can guess, so that the
            # time it takes tells nothing.
            fd, once = self._kept.get(token, (-1, False))
            if once:
                del self._kept[token]
            elif fd >= 0:
                fd = os.dup(fd)  # forget() may close ours meanwhile
        if fd < 0:
            link.sendall(b"-")
            return
        try:
            socket.send_fds(link, [b"+"], [fd])
        finally:
            os.close(fd)


_keeper_lock = threading.Lock()
_the_keeper: _Keeper | None = None


def _keeper() -> _Keeper:
    global _the_keeper
    with _keeper_lock:
        if _the_keeper is None:
            _the_keeper = _Keeper()
        return _the_keeper


def _forget_in_child() -> None:
    global _the_keeper, _keeper_lock
    _keeper_lock = threading.Lock()
    if _the_keeper is not None:
        _the_keeper.abandon()
        _the_keeper = None


os.register_at_fork(after_in_child=_forget_in_child)
