# SPDX-License-Identifier: Apache-2.0
"""Programs on several hosts, with nothing but Open MPI's mpirun: their ranks meet by PMIx."""

import ctypes
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
import test_jobs
import waiting
import weft

ROOT = pathlib.Path(__file__).resolve().parents[2]
NEEDS = ("mpirun.openmpi", "cc")

pytestmark = pytest.mark.over("ucx")


def unavailable():
    """Why there can be no such job here; None if there can."""
    if missing := [name for name in NEEDS if shutil.which(name) is None]:
        return f"no {', '.join(missing)} here"
    try:
        ctypes.CDLL("libpmix.so.2")
    except OSError:
        return "there is no libpmix here"
    return test_jobs.unsupported("ucx")


def mpirun(bed, each, *options):
    """The beginning of a command that has so many ranks on each host."""
    hosts = ",".join(f"{bed.name(host)}:{each}" for host in range(len(bed)))
    launch = ["mpirun.openmpi", "--allow-run-as-root", "--mca", "plm_rsh_agent", bed.rsh]
    launch += ["--bind-to", "none", "--host", hosts, "-n", str(each * len(bed)), *options]
    return launch


@pytest.mark.bed(hosts=3)
def test_ranks_of_a_c_program_on_several_hosts_meet_by_pmix(bed):
    if (why := unavailable()) is not None:
        pytest.skip(why)
    package = pathlib.Path(weft.__file__).parent
    program = bed.shared / "allreduce"
    build = ["cc", "-std=c11", f"-I{ROOT / 'include'}", ROOT / "examples" / "allreduce.c"]
    build += [next(package.glob("libweft.so*")), f"-Wl,-rpath,{package}", "-o", program]
    subprocess.run(build, check=True)
    settings = ["env", "WEFT_BOOT=pmix", "WEFT_TRANSPORTS=self,shm,ucx"]
    said = bed.run(0, [*mpirun(bed, 2), *settings, program], timeout=60)
    right = [f"rank {rank} of 6: the ranks add up to 15, and are 6" for rank in range(6)]
    # mpirun has words of its own to say.
    assert sorted(line for line in said.splitlines() if line.startswith("rank")) == right
    assert bed.bytes(1)[0] > 1000


# Ranks reduce until one of them is gone, and go on without it for a while.
SURVIVE = """
import os, pathlib, sys, time, numpy as np, weft
folder, victim = pathlib.Path(sys.argv[1]), int(sys.argv[2])
comm = weft.init().comm
comm.barrier()
with open(folder / f"rank{comm.rank}", "w", buffering=1) as file:
    file.write(f"started {os.getpid()}\\n")
    try:
        while True:
            assert comm.allreduce(np.ones(1000))[0] == comm.size
    except weft.PeerError as error:
        file.write(f"told {time.monotonic()} {error}\\n")
    rest = comm.shrink([victim])
    file.write(f"went on {rest.size} {rest.allreduce(np.array([comm.rank]))[0]}\\n")
    end = time.monotonic() + 1.5  # mpirun knows of the death long before
    while rest.allreduce(np.array([time.monotonic() < end]), op="lor")[0]:
        pass
    file.write("stayed\\n")
"""


def line(file, start):
    """Wait until a file has a line that starts so; return the rest of it."""

    def lines():
        text = file.read_text() if file.exists() else ""
        return [line for line in text.splitlines(keepends=True) if line.endswith("\n")]

    waiting.until(lambda: any(found.startswith(start) for found in lines()), f"{start} in {file}")
    return next(found for found in lines() if found.startswith(start))[len(start) :].strip()


def outside(bed, host, pid):
    """What this process calls a process of a host, by the id that it has there."""
    for known in bed.processes(host):
        status = pathlib.Path(f"/proc/{known}/status").read_text()
        if re.search(rf"^NSpid:.*\t{pid}$", status, re.MULTILINE):
            return known
    raise AssertionError(f"{bed.name(host)} has no process {pid}")


@pytest.mark.bed(hosts=3)
@pytest.mark.parametrize("victim", [0, 2])
def test_the_others_outlive_a_killed_rank_under_mpirun_with_recovery(bed, victim):
    """In Python, and by PMIx without its being asked for."""
    if (why := unavailable()) is not None:
        pytest.skip(why)
    settings = ["env", "-u", "WEFT_BOOT", "WEFT_TRANSPORTS=self,shm,ucx", "WEFT_LOG=info"]
    words = [*settings, sys.executable, "-c", SURVIVE, bed.shared, str(victim)]
    files = [bed.shared / f"rank{rank}" for rank in range(3)]
    command = [*mpirun(bed, 1, "--enable-recovery"), *words]
    with (
        (bed.shared / "log").open("w") as log,
        bed.popen(0, command, stdin=subprocess.DEVNULL, stdout=log, stderr=log) as launcher,
    ):
        pids = [int(line(file, "started")) for file in files]
        pid = outside(bed, victim, pids[victim])
        killed = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        others = sorted({0, 1, 2} - {victim})
        for rank in others:
            when, _, text = line(files[rank], "told").partition(" ")
            assert f"rank {victim} " in text
            assert float(when) - killed < waiting.bound(1.0, 3)
            assert line(files[rank], "went on") == f"2 {sum(others)}"
        for rank in others:
            line(files[rank], "stayed")
        launcher.wait(60)
    assert (bed.shared / "log").read_text().count("meets the others by PMIx") == 3
