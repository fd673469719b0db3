# SPDX-License-Identifier: Apache-2.0
"""Hosts as namespaces: to start, to run commands on, to cut off and to kill.

    with Bed(hosts=4, rate="1gbit") as bed:
        server = bed.popen(0, ["iperf3", "-s"])
        bed.run(1, ["iperf3", "-c", "host0"])
        bed.cut(1)                       # its cable loses every packet
        bed.mend(1)
        bed.lose(2, 0.01)                # its cable loses 1 % of them, each way
        bed.kill(3)                      # as if its power went off
        sent, received = bed.bytes(0)

Each host has a network, a name, a process table, IPC objects and folders for temporary files of its
own. All other files are the machine's, like a home folder on a network file system; `bed.shared` is
an empty one. A process that popen() starts is a child of this one: its id can be killed.

Nothing has a name that two beds could both want, and a bed ends with the process that made it,
also if that is killed: the first process of each host watches it.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import ctypes
import functools
import os
import secrets
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from . import network

MOST_HOSTS = 64
PORT = 29500  # the first that launch() has ranks meet at
_HERE = Path(__file__).parent
_NEWPID = 0x20000000  # CLONE_NEWPID of linux/sched.h
_NEWNET = 0x40000000  # CLONE_NEWNET
_WITHOUT_FILES = ("net", "uts", "ipc")
_NAMESPACES = (*_WITHOUT_FILES, "mount")
_PROGRAMS = ("ip", "tc", "bridge", "unshare", "nsenter", "mount")
_READY = 30.0  # seconds that a host may take to start
_END = 10.0  # seconds that its processes may take to be gone

T = TypeVar("T")

_libc = ctypes.CDLL(None, use_errno=True)


class Unavailable(Exception):
    """This machine cannot have such a bed; the text says what is missing."""


def _call(name: str, *args: int) -> None:
    if getattr(_libc, name)(*args) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")


@contextlib.contextmanager
def _children_in(change: Callable[[], None]) -> Iterator[None]:
    """Processes that this thread starts are born in the PID namespace that `change` chooses.

    So they are children of this process, and yet the host's.
    """
    mine = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    try:
        change()
        try:
            yield
        finally:
            _call("setns", mine, _NEWPID)
    finally:
        os.close(mine)


def _attempt(*command: str) -> str | None:
    """Why a command fails; None if it does not."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    said = done.stderr.strip().replace("\n", "; ")
    return None if done.returncode == 0 else said or f"{command[0]} ended with {done.returncode}"


def _trial(*commands: str) -> str | None:
    """Why these do not run in namespaces that are thrown away; None if they do."""
    spaces = ("--net", "--uts", "--ipc", "--pid", "--mount", "--fork")
    return _attempt("unshare", *spaces, "sh", "-ec", "\n".join(commands))


@functools.cache
def missing(delay: bool = False) -> str | None:
    """What this machine lacks to have a bed (with delays), in words; None if nothing."""
    if not sys.platform.startswith("linux"):
        return "hosts are namespaces of Linux"
    if os.geteuid() != 0:
        return "hosts are network namespaces, which need root"
    absent = [name for name in _PROGRAMS if shutil.which(name) is None]
    if absent:
        return f"not installed: {', '.join(absent)} (packages iproute2, util-linux)"
    # Who starts a process on a host goes there and comes back.
    why = _attempt("nsenter", "--pid=/proc/self/ns/pid", "true")
    if why is not None:
        return f"this root may not enter namespaces, for want of CAP_SYS_ADMIN: {why}"
    cable = "ip link add port0 type veth peer name eth0"
    why = _trial(cable, f"ip link add {network.BRIDGE} type bridge")
    if why is not None:
        return f"this machine lets no namespaces, veth or bridge be made: {why}"
    why = _trial(cable, "tc qdisc add dev port0 root tbf rate 1gbit burst 128kb latency 10ms")
    if why is not None:
        return f"the kernel has no tbf, which limits rates: {why}"
    why = _trial(cable, "tc qdisc add dev port0 root netem delay 1ms") if delay else None
    return None if why is None else f"the kernel has no netem, which delays packets: {why}"


class _Host:
    """The first process of a host, or of the switch, and what was started beside it."""

    def __init__(self, name: str, owner: int, shared: str, kept: Sequence[str]):
        self.name = name
        self.children: list[subprocess.Popen] = []
        self.alive = True
        program = [sys.executable, "-I", "-S", str(_HERE / "host.py"), str(owner), name, shared]
        spaces = [*(f"--{kind}" for kind in _NAMESPACES), "--propagation", "private"]
        with _children_in(lambda: _call("unshare", _NEWPID)):
            self.first = subprocess.Popen(
                ["unshare", *spaces, *program, *kept],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(owner,),
                start_new_session=True,  # Ctrl-C is for the owner
            )

    @property
    def pid(self) -> int:
        return self.first.pid

    def wait_ready(self) -> None:
        """Return when it is a host; what it said goes into the error if it is none."""
        assert self.first.stdout is not None
        assert self.first.stderr is not None
        timer = threading.Timer(_READY, self.first.kill)
        timer.start()
        try:
            said = self.first.stdout.read()
            problem = b"" if said == b"ready\n" else self.first.stderr.read()
        finally:
            timer.cancel()
            self.first.stdout.close()
            self.first.stderr.close()
        if said != b"ready\n":
            why = problem.decode(errors="replace").strip().rpartition("\n")[2]
            raise Unavailable(f"{self.name} did not start: {why or 'it gave no reason'}")

    def popen(self, command: Sequence[str], **more: Any) -> subprocess.Popen:
        """A child of ours that is born in the host's PID namespace, and enters the others."""
        space = os.open(f"/proc/{self.pid}/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        try:
            with _children_in(lambda: _call("setns", space, _NEWPID)):
                child = subprocess.Popen([*network.enter(self.pid, *_NAMESPACES), *command], **more)
        finally:
            os.close(space)
        self.children.append(child)
        return child

    def processes(self) -> list[int]:
        """The ids of its processes, as this process sees them, without the first."""
        try:
            mine = os.readlink(f"/proc/{self.pid}/ns/pid")
        except OSError:
            return []
        found = []
        for entry in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                if entry.isdecimal() and os.readlink(f"/proc/{entry}/ns/pid") == mine:
                    found.append(int(entry))
        return [pid for pid in found if pid != self.pid]

    def kill(self) -> None:
        """Kill the first process: the kernel kills all others, and then it is gone.

        It is gone only when our children among them have been waited for.
        """
        self.alive = False
        self.first.kill()
        end = time.monotonic() + _END
        while self.first.poll() is None:
            for child in self.children:
                child.poll()
            if time.monotonic() > end:
                raise TimeoutError(f"processes of {self.name} are still there: {self.processes()}")
            time.sleep(0.001)
        for child in self.children:
            child.wait()


def _placed(
    command: Sequence[str | os.PathLike[str]], cwd: str | os.PathLike[str] | None = None
) -> list[str]:
    """A command that runs in a folder: a mount namespace is entered at its root."""
    return ["env", "-C", os.fspath(cwd or os.getcwd()), *(os.fspath(word) for word in command)]


class Bed:
    """Hosts 0, 1, ..., named host0, host1, ..., on one network.

    rate:  of each cable in each direction, as tc(8) writes it: "1gbit"; None: as fast as it goes
    delay: of each packet in each cable and direction, "1ms"; needs netem in the kernel
    visible: folders of the machine's temporary files that all hosts see at their place

    Raises Unavailable with what is missing where there cannot be one.
    """

    def __init__(
        self,
        hosts: int = 2,
        *,
        rate: str | None = None,
        delay: str | None = None,
        mtu: int = 1500,
        visible: Sequence[str | os.PathLike[str]] = (),
    ):
        if not 1 <= hosts <= MOST_HOSTS:
            raise ValueError(f"hosts must be 1 to {MOST_HOSTS}, not {hosts}")
        if (why := missing(delay is not None)) is not None:
            raise Unavailable(why)
        self._hosts: list[_Host] = []
        self._switch: _Host | None = None
        self._cut: dict[int, bool] = {}  # the hosts that are cut off, and whether they can see it
        self._lossy: dict[int, float] = {}  # hosts whose cables lose packets, and how many
        self._last: dict[int, tuple[int, ...]] = {}  # counters of the hosts that were killed
        self._launches = 0
        self._switch_addressed = False
        self._owner = os.pidfd_open(os.getpid())
        self.shared = Path(tempfile.mkdtemp(prefix="weft-bed-"))
        try:
            self._start(hosts, rate, delay, mtu, [os.path.realpath(path) for path in visible])
        except BaseException:
            self.close()
            raise

    def _start(
        self, hosts: int, rate: str | None, delay: str | None, mtu: int, visible: Sequence[str]
    ) -> None:
        self._write_files(hosts)
        kept = [os.getcwd(), sys.prefix, sys.base_prefix, str(_HERE), *visible]
        names = [*map(network.name, range(hosts)), "switch"]
        for name in names:
            self._hosts.append(_Host(name, self._owner, str(self.shared), kept))
        self._switch = self._hosts.pop()
        for host in (*self._hosts, self._switch):
            host.wait_ready()
        try:
            pids = [host.pid for host in self._hosts]
            network.connect(self._switch.pid, pids, rate, delay, mtu)
        except network.NetworkError as error:
            raise Unavailable(str(error)) from error

    def _write_files(self, hosts: int) -> None:
        self.shared.chmod(0o755)
        (self.shared / "hosts").write_text(network.names_file(hosts))
        for number in range(hosts):
            by_address = self.shared / f"{network.address(number)}.sock"
            by_address.symlink_to(f"{network.name(number)}.sock")
        words = [sys.executable, "-I", "-S", str(_HERE / "rsh.py"), str(self.shared)]
        self.rsh.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        self.rsh.chmod(0o755)

    def __enter__(self) -> Bed:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill all hosts and leave nothing behind. May be called twice."""
        everything = [*self._hosts, *([self._switch] if self._switch else [])]
        for host in everything:
            host.first.kill()
        for host in everything:
            host.kill()
        shutil.rmtree(self.shared, ignore_errors=True)
        if self._owner >= 0:
            os.close(self._owner)
            self._owner = -1

    def __len__(self) -> int:
        return len(self._hosts)

    @property
    def rsh(self) -> Path:
        """A program that runs a command on a host, for launchers: `rsh host1 hostname`."""
        return self.shared / "rsh"

    def name(self, host: int) -> str:
        return self._hosts[host].name

    def address(self, host: int) -> str:
        return network.address(host)

    def popen(
        self,
        host: int,
        command: Sequence[str | os.PathLike[str]],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        inherit: bool = True,
        **more: Any,
    ) -> subprocess.Popen:
        """subprocess.Popen on a host. The process ends with the bed.

        env: added to the environment of this process, or all of it unless it is to `inherit`
        """
        there = self._hosts[host]
        if not there.alive:
            raise ValueError(f"{there.name} was killed")
        base = dict(os.environ) if inherit else {}
        return there.popen(_placed(command, cwd), env={**base, **(env or {})}, **more)

    def popen_in_switch(
        self, command: Sequence[str | os.PathLike[str]], **more: Any
    ) -> subprocess.Popen:
        """subprocess.Popen in the switch, where cables of all hosts end; at `switch_address`."""
        assert self._switch is not None
        if not self._switch_addressed:
            network.address_switch(self._switch.pid)
            self._switch_addressed = True
        return self._switch.popen(_placed(command), env=dict(os.environ), **more)

    @property
    def switch_address(self) -> str:
        return network.SWITCH_ADDRESS

    def from_switch(self, call: Callable[[], T]) -> T:
        """What a function returns that makes its connections from the switch."""
        with concurrent.futures.ThreadPoolExecutor(1, initializer=self._enter_switch) as thread:
            return thread.submit(call).result()

    def _enter_switch(self) -> None:
        """Have this thread in the network of the switch; it is not to live longer than that."""
        space = os.open(f"/proc/{self._there()}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _call("setns", space, _NEWNET)
        finally:
            os.close(space)

    def run(
        self,
        host: int,
        command: Sequence[str | os.PathLike[str]],
        *,
        timeout: float = 60.0,
        **more: Any,
    ) -> str:
        """What a command prints on a host; an error with all that it said if it fails."""
        more = {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT, **more}
        with self.popen(host, command, stdout=subprocess.PIPE, text=True, **more) as child:
            try:
                said, _ = child.communicate(timeout=timeout)
            except BaseException:
                child.kill()
                raise
        if child.returncode != 0:
            what = f"{command[0]} on {self.name(host)} ended with {child.returncode}"
            raise RuntimeError(f"{what}: {said.strip()}")
        return said

    def enter(self, host: int) -> None:
        """Move this process to a host; files and process ids stay the machine's.

        For a child that was just forked: of a process with several threads only one would move.
        """
        for kind in _WITHOUT_FILES:
            space = os.open(f"/proc/{self._hosts[host].pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)
            try:
                _call("setns", space, 0)
            finally:
                os.close(space)

    def entering(self, host: int) -> list[str]:
        """The beginning of a command that does as enter() does."""
        return network.enter(self._hosts[host].pid, *_WITHOUT_FILES)

    def launch(
        self,
        command: Sequence[str | os.PathLike[str]],
        *,
        ranks: int | Sequence[int] = 1,
        env: Mapping[str, str] | None = None,
        **more: Any,
    ) -> list[subprocess.Popen]:
        """Start a process for each rank, with the variables that torchrun sets.

        ranks: of each host, or how many each has; the first ranks are on host 0
        """
        counts = [ranks] * len(self) if isinstance(ranks, int) else list(ranks)
        self._launches += 1
        job = {
            "WORLD_SIZE": str(sum(counts)),
            "GROUP_WORLD_SIZE": str(sum(count > 0 for count in counts)),
            "MASTER_ADDR": network.name(next(i for i, count in enumerate(counts) if count)),
            "MASTER_PORT": str(PORT + self._launches),
            "TORCHELASTIC_RUN_ID": f"bed-{secrets.token_hex(4)}",
            "TORCHELASTIC_RESTART_COUNT": "0",
        }
        children: list[subprocess.Popen] = []
        for host, count in enumerate(counts):
            for local in range(count):
                place = {
                    "RANK": str(len(children)),
                    "LOCAL_RANK": str(local),
                    "LOCAL_WORLD_SIZE": str(count),
                    "GROUP_RANK": str(host),
                }
                all_ = {**job, **place, **(env or {})}
                children.append(self.popen(host, command, env=all_, **more))
        return children

    def processes(self, host: int) -> list[int]:
        """The ids of the processes of a host."""
        return self._hosts[host].processes()

    def cut(self, host: int, *, seen: bool = False) -> None:
        """Cut the cable of a host: all packets are lost.

        seen: its interface has no carrier then, as if the cable had been pulled out of it. Else
        nothing tells the host, as if the cable had been cut behind the next switch.
        """
        self._cut[host] = seen
        (network.carrier if seen else network.forward)(self._there(), host, False)

    def mend(self, host: int) -> None:
        """Undo cut(); a cable that is whole stays whole."""
        if (seen := self._cut.pop(host, None)) is not None:
            (network.carrier if seen else network.forward)(self._there(), host, True)

    def lose(self, host: int, share: float) -> None:
        """Have the cable of a host lose this share of all packets each way, at random; 0: none.

        Packets that were merged for the kernel (GSO) are lost as one. Raises Unavailable where the
        kernel cannot.
        """
        if not 0 <= share <= 1:
            raise ValueError(f"share must be 0 to 1, not {share}")
        before = self._lossy.get(host, 0.0)
        try:
            network.lose(self._there(), host, share, before > 0)
        except network.NetworkError as error:
            raise Unavailable(
                f"the kernel has no classifier that loses packets: {error}"
            ) from error
        self._lossy[host] = share

    def kill(self, host: int) -> None:
        """Switch a host off. Its cable goes first: the others get no word of its end."""
        there = self._hosts[host]
        if not there.alive:
            return
        self._last[host] = self._counters(host)
        self._cut.pop(host, None)
        network.remove(self._there(), host)
        there.kill()

    def bytes(self, host: int) -> tuple[int, int]:
        """Bytes that a host has sent and received through its cable, with headers."""
        sent, received, _, _ = self._counters(host)
        return sent, received

    def packets(self, host: int) -> tuple[int, int]:
        """Packets that a host has sent and received. Large ones of TCP count as one."""
        _, _, sent, received = self._counters(host)
        return sent, received

    def _there(self) -> int:
        assert self._switch is not None
        return self._switch.pid

    def _counters(self, host: int) -> tuple[int, ...]:
        """Of the switch's end: what it received was sent by the host."""
        if host in self._last:
            return self._last[host]
        folder = Path(f"/proc/{self._there()}/root/sys/class/net/port{host}/statistics")
        names = ("rx_bytes", "tx_bytes", "rx_packets", "tx_packets")
        return tuple(int((folder / name).read_text()) for name in names)
