# SPDX-License-Identifier: Apache-2.0
"""The first process of a host, which all others of the host end with.

    python -I -S host.py OWNER NAME SHARED [FOLDER...]

It was started in new namespaces of processes, network, host name, IPC and mounts. It makes them
look like a host: a name, a /proc and a /sys of its own, and empty folders for what processes of one
host leave for each other. Then it collects ended processes, runs what `rsh` asks for, and ends when
the process behind the descriptor OWNER does, however that happened.

SHARED and the FOLDERs can be seen at their place even if it is in one of the emptied folders. The
program imports nothing of weft: it has to start at once, many times.
"""

from __future__ import annotations

import array
import contextlib
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

EMPTIED = ("/tmp", "/var/tmp", "/dev/shm")
_LARGEST = 1 << 18  # bytes of a command


def _mount(*words: str, fds: Sequence[int] = ()) -> None:
    subprocess.run(("mount", *words), check=True, pass_fds=fds)


def _bind(source: int, target: str, how: str = "--bind") -> None:
    """What the descriptor `source` leads to, also if it is covered by now."""
    # The name that the descriptor once had leads elsewhere, so mount must not look for it.
    _mount("--no-canonicalize", how, f"/proc/self/fd/{source}", target, fds=(source,))


def _folder(path: str) -> int:
    return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def _mount_files(kept: Sequence[str]) -> None:
    """Nothing that a process leaves in a usual place can be found on another host."""
    emptied = [path for path in EMPTIED if os.path.isdir(path)]
    folders = {path: _folder(path) for path in dict.fromkeys(kept)}
    for path in emptied:
        _mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", path)
    for path, source in folders.items():
        if any(path.startswith(f"{parent}/") for parent in emptied):
            os.makedirs(path, exist_ok=True)
            _bind(source, path)
        os.close(source)


def _mount_kernel() -> None:
    """Interfaces and processes are those of this host; control groups are the machine's."""
    groups = "/sys/fs/cgroup"
    source = _folder(groups) if os.path.isdir(groups) else -1
    _mount("-t", "sysfs", "sysfs", "/sys")
    if source >= 0:
        _bind(source, groups, "--rbind")
        os.close(source)
    _mount("-t", "proc", "proc", "/proc")


def _quiet_network() -> None:
    """No packets that nobody asked for: an interface without IPv6 announces nothing."""
    with contextlib.suppress(OSError):  # the machine has no IPv6 at all
        Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")


class Host:
    """Waits for ended processes, for commands, and for the end of the owner."""

    def __init__(self, owner: int, listener: socket.socket, ended: int):
        self._selector = selectors.DefaultSelector()
        self._owner, self._listener, self._ended = owner, listener, ended
        for what in (owner, listener, ended):
            self._selector.register(what, selectors.EVENT_READ)
        self._pids: dict[socket.socket, int] = {}  # of the commands, 0 before they are known

    def serve(self) -> None:
        """Return when the owner has ended."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj == self._owner:
                    return
                if key.fileobj == self._ended:
                    os.read(self._ended, 4096)
                    self._reap()
                elif key.fileobj is self._listener:
                    client = self._listener.accept()[0]
                    self._pids[client] = 0
                    self._selector.register(client, selectors.EVENT_READ)
                elif key.fileobj in self._pids:
                    self._hear(key.fileobj)

    def _hear(self, client: socket.socket) -> None:
        """A client sends one command, then waits; one that closes wants no more of it."""
        pid = self._pids[client]
        try:
            text, fds = _receive(client)
        except OSError:
            text, fds = b"", []
        if pid == 0 and text and len(fds) == 3:
            self._pids[client] = _start(text.decode(errors="surrogateescape"), fds)
        elif not text:
            if pid > 0:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGTERM)
            self._forget(client)
        for fd in fds:
            os.close(fd)

    def _forget(self, client: socket.socket) -> None:
        self._selector.unregister(client)
        del self._pids[client]
        client.close()

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0] != 0:
                pid, status = found
                code = os.waitstatus_to_exitcode(status)
                for client in [c for c, command in self._pids.items() if command == pid]:
                    with contextlib.suppress(OSError):
                        # What a shell would say of a signal.
                        client.send(str(code if code >= 0 else 128 - code).encode())
                    self._forget(client)


def _receive(client: socket.socket) -> tuple[bytes, list[int]]:
    """socket.recv_fds, but programs that are started do not inherit the descriptors."""
    fds = array.array("i")
    room = socket.CMSG_SPACE(3 * fds.itemsize)
    text, ancillary, _, _ = client.recvmsg(_LARGEST, room, socket.MSG_CMSG_CLOEXEC)
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return text, list(fds)


def _start(command: str, fds: Sequence[int]) -> int:
    """A command in a session of its own, as a login has."""
    actions = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(fds)]
    argv = ["sh", "-c", command]
    return os.posix_spawn(
        "/bin/sh", argv, os.environ, file_actions=actions, setsid=True, setsigmask=()
    )


def _say_nothing_more() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)
    os.close(null)


def main() -> None:
    owner, name, shared = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    os.set_inheritable(owner, False)
    parent = _folder(os.path.dirname(shared))
    socket.sethostname(name)
    _mount_files([shared, *sys.argv[4:]])
    _mount_kernel()
    _quiet_network()
    _mount("--bind", f"{shared}/hosts", "/etc/hosts")
    os.chdir(os.environ.get("HOME", "/"))

    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(f"{shared}/{name}.sock")
    listener.listen(64)
    ended, wakeup = os.pipe()
    os.set_blocking(wakeup, False)
    signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    print("ready", flush=True)
    _say_nothing_more()
    Host(owner, listener, ended).serve()
    # The owner had no time to remove it. Here it is a place where something is mounted, so its
    # name can only be removed where it is not.
    shutil.rmtree(shared, ignore_errors=True)
    with contextlib.suppress(OSError):
        os.rmdir(os.path.basename(shared), dir_fd=parent)


if __name__ == "__main__":
    main()
