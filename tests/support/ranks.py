# SPDX-License-Identifier: Apache-2.0
"""Run a function of a test module on several ranks, each a process of its own.

    def body(greeting): ...                # runs in every rank
    ranks.run(3, body, "hello")            # fails with each bad rank's output

Ranks are told who they are by WEFT_RANK, WEFT_RANKS and WEFT_JOB. Arguments
travel as JSON. Run as a script, this file is the child.
"""

import dataclasses
import fcntl
import importlib.util
import inspect
import json
import os
import pathlib
import secrets
import signal
import subprocess
import sys
import tempfile
import time

import on_hosts

DEADLINE = 180.0  # seconds; a rank that takes longer is killed and reported


@dataclasses.dataclass
class Rank:
    number: int
    process: subprocess.Popen
    log: object

    def output(self):
        self.log.seek(0)
        return self.log.read()

    def line(self, start, seconds=DEADLINE):
        """Wait until the rank has printed a line that starts so; return the rest of it."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            # print writes each of its arguments, and the end of the line, by themselves.
            for text in self.output().splitlines(keepends=True):
                if text.startswith(start) and text.endswith("\n"):
                    return text[len(start) :].strip()
            if self.process.poll() is not None:
                break
            time.sleep(0.01)
        raise AssertionError(f"rank {self.number} did not print {start!r}:\n{self.output()}")


class Job:
    """Ranks under way. Leaving it ends those that still run."""

    def __init__(self, size, body, *args, environment=None):
        self.ranks = []
        name = secrets.token_hex(8)
        shared = self._shared_environment()
        for number in range(size):
            own = {"WEFT_RANK": str(number), "WEFT_RANKS": str(size), "WEFT_JOB": name}
            log = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 (ends with us)
            # The rank and we share one position in the file; it writes at the end all the same.
            fcntl.fcntl(log, fcntl.F_SETFL, os.O_APPEND)
            process = self._start(
                number,
                size,
                child_command(body, *args),
                env={**quiet_environment(), **shared, **own, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            self.ranks.append(Rank(number, process, log))

    def _shared_environment(self):
        """What all ranks get: ranks of different hosts meet in a directory."""
        if on_hosts.bed() is None:
            return {}
        folder = tempfile.mkdtemp(prefix="boot-", dir=on_hosts.bed().shared)
        return {**on_hosts.ENVIRONMENT, "WEFT_BOOT_DIR": folder}

    def _start(self, number, size, command, **more):
        """Start a rank; elsewhere, in a job that has another place for it."""
        return subprocess.Popen(on_hosts.command(number, size, command), **more)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        for rank in self.ranks:
            rank.process.kill()
            rank.process.wait()
            rank.log.close()

    def __getitem__(self, number):
        return self.ranks[number]

    def kill(self, number, which=signal.SIGKILL):
        self.ranks[number].process.send_signal(which)

    def finish(self, expected=None, seconds=DEADLINE):
        """Wait for all; `expected` maps a rank to another exit status than 0."""
        end = time.monotonic() + seconds
        late = []
        for rank in self.ranks:
            try:
                rank.process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                late.append(rank.number)
        problems = []
        for rank in self.ranks:
            code = rank.process.poll()
            if rank.number in late:
                problems.append(f"rank {rank.number} did not end:\n{rank.output()}")
            elif code != (expected or {}).get(rank.number, 0):
                problems.append(f"rank {rank.number} ended with {code}:\n{rank.output()}")
        assert not problems, "\n".join(problems)
        return [rank.output() for rank in self.ranks]


def run(size, body, *args, environment=None, seconds=DEADLINE):
    """Run `body(*args)` on `size` ranks; all must end well. Returns what each printed."""
    with Job(size, body, *args, environment=environment) as job:
        return job.finish(seconds=seconds)


def child_command(body, *args):
    """The command line that runs `body(*args)` in a process."""
    return [sys.executable, __file__, inspect.getfile(body), body.__name__, json.dumps(args)]


def quiet_environment():
    """The environment without what another launcher left in it, and with one thread a rank."""
    launchers = ("WEFT_", "OMPI_", "PMI", "SLURM_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(launchers)}
    return {**kept, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


def _child(file, name, args):
    # A job that a shell runs in the background is started with it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    path = pathlib.Path(file)
    sys.path[:0] = [str(path.parent), str(path.parent.parent / "support")]
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    getattr(module, name)(*json.loads(args))


if __name__ == "__main__":
    _child(*sys.argv[1:])
