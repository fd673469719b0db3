# SPDX-License-Identifier: Apache-2.0
"""A program in C on several hosts, with nothing but Open MPI's mpirun: its ranks meet by PMIx."""

import ctypes
import pathlib
import shutil
import subprocess

import pytest
import test_jobs
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


@pytest.mark.bed(hosts=3)
def test_ranks_of_a_c_program_on_several_hosts_meet_by_pmix(bed):
    if (why := unavailable()) is not None:
        pytest.skip(why)
    package = pathlib.Path(weft.__file__).parent
    program = bed.shared / "allreduce"
    build = ["cc", "-std=c11", f"-I{ROOT / 'include'}", ROOT / "examples" / "allreduce.c"]
    build += [next(package.glob("libweft.so*")), f"-Wl,-rpath,{package}", "-o", program]
    subprocess.run(build, check=True)
    launch = ["mpirun.openmpi", "--allow-run-as-root", "--mca", "plm_rsh_agent", bed.rsh]
    launch += ["--bind-to", "none", "--host", "host0:2,host1:2,host2:2", "-n", "6"]
    settings = ["env", "WEFT_BOOT=pmix", "WEFT_TRANSPORTS=self,shm,ucx"]
    said = bed.run(0, [*launch, *settings, program], timeout=60)
    right = [f"rank {rank} of 6: the ranks add up to 15, and are 6" for rank in range(6)]
    # mpirun has words of its own to say.
    assert sorted(line for line in said.splitlines() if line.startswith("rank")) == right
    assert bed.bytes(1)[0] > 1000
