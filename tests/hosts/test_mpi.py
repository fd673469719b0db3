# SPDX-License-Identifier: Apache-2.0
"""Jobs on several hosts over the MPI that has started them: no directory, nothing but mpirun."""

import os
import pathlib
import re
import sys

import launched
import pytest
import test_jobs
import waiting

MPIS = ("openmpi", "mpich")
MOST_TESTED = MPIS if os.environ.get("WT_FULL") == "1" else MPIS[:1]

COLLECTIVES = """
import numpy as np, weft
comm = weft.init().comm
rank, size = comm.rank, comm.size
for count in (0, 1, 1000, 300_001):
    x = np.arange(count, dtype="f4") % 1000 + rank
    total = size * (np.arange(count, dtype="f4") % 1000) + size * (size - 1) / 2
    np.testing.assert_array_equal(comm.allreduce(x, out=np.empty_like(x)), total)
    blocks = np.full(size * count, -1)
    comm.alltoall(np.repeat(100 * rank + np.arange(size), count), blocks)
    np.testing.assert_array_equal(blocks, np.repeat(100 * np.arange(size) + rank, count))
comm.barrier()
print(f"right {rank} of {size}\\n", end="", flush=True)  # in one piece
weft.finalize()
"""

ALLREDUCE = """
import numpy as np, weft
comm = weft.init().comm
x = np.ones({count}, "f4")
for _ in range({times}):
    x[:] = 1
    assert (comm.allreduce(x) == comm.size).all()
weft.finalize()
"""

# A function of another module of tests.
CALL = """
import sys; sys.path[:0] = {folders}
import test_jobs
test_jobs.{call}
"""
TESTS = pathlib.Path(__file__).parent.parent


def call(what):
    """A program that calls this function of test_jobs."""
    return CALL.format(folders=[str(TESTS / name) for name in ("hosts", "support")], call=what)


@pytest.fixture(params=MPIS)
def mpi(request, bed):
    """Run a Python program on `each` ranks of every host, started by this MPI's mpirun.

    Over MPICH it ends without MPI_Finalize, which before MPICH 4.2 can hang over UCX.
    """
    if (why := launched.lacks(request.param)) is not None:
        pytest.skip(why)

    def run(program, each, timeout=60.0):
        if request.param == "mpich":
            program += "\nimport os; os._exit(0)"
        counts = [each] * len(bed)
        words = launched.command(request.param, bed, counts, [sys.executable, "-c", program])
        return bed.run(0, words, timeout=timeout)

    return run


@pytest.mark.bed(hosts=3)
@pytest.mark.parametrize("each", [1, 2])
def test_collectives_are_right_over_the_mpi_that_started_the_ranks(mpi, bed, each):
    said = mpi(COLLECTIVES, each)
    ranks = each * len(bed)
    # Hydra puts what several ranks say into one line at times.
    right = sorted(int(rank) for rank in re.findall(f"right (\\d+) of {ranks}", said))
    assert right == list(range(ranks)), said


def test_an_allreduce_over_mpi_sends_what_it_has_to_and_no_more(mpi, bed):
    count, times = 4 << 20, 3
    mpi(ALLREDUCE.format(count=count, times=times), each=2)
    least = 4 * count * times
    for host in range(len(bed)):
        for moved in bed.bytes(host):
            assert least < moved < 1.1 * least, f"{moved / least:.2f} of what is needed"


@pytest.mark.parametrize("operation", test_jobs.PARTS)
@pytest.mark.parametrize("mpi", MOST_TESTED, indirect=True)
def test_other_operations_over_mpi_send_what_they_have_to_and_no_more(mpi, bed, operation):
    count, times = 1 << 20, 2
    mpi(call(f"call({operation!r}, {count}, {times})"), each=2)
    least = test_jobs.PARTS[operation] * 4 * count * times
    for host in range(len(bed)):
        moved = sum(bed.bytes(host))
        assert least < moved < 1.1 * least, f"{moved / least:.2f} of what is needed"


@pytest.mark.parametrize("mpi", MOST_TESTED, indirect=True)
def test_an_idle_job_over_mpi_uses_less_than_a_hundredth_of_a_core(mpi):
    said = mpi(call("do_nothing(3.0)"), each=1)
    shares = [float(share) for share in re.findall(r"used (\S+)", said)]
    assert len(shares) == 2
    assert max(shares) < waiting.bound(0.01, 0, times=3)


UNASKED = """
import numpy as np, weft
comm = weft.init().comm
assert comm.allreduce(np.ones(1000))[0] == comm.size
weft.finalize()
"""


@pytest.mark.over("mpi")
@pytest.mark.parametrize("there", [True, False])
def test_mpi_is_taken_where_ucx_is_missing(bed, there):
    """Without a word about transports. A file that is no library stands where UCX would be."""
    if (why := launched.lacks("openmpi")) is not None:
        pytest.skip(why)
    folder = bed.shared / "no-ucx"
    folder.mkdir()
    (folder / "libucp.so.0").touch()
    missing = [] if there else [f"LD_LIBRARY_PATH={folder}"]
    settings = ["env", "-u", "WEFT_TRANSPORTS", "WEFT_LOG=info", *missing]
    words = [*settings, sys.executable, "-c", UNASKED]
    said = bed.run(0, launched.command("openmpi", bed, [1, 1], words), timeout=60)
    assert ("uses UCX" in said) == there, said
    assert ("uses MPI: Open MPI" in said) != there, said


MPI4PY = """
from mpi4py import MPI
import numpy as np, weft
comm = weft.init(comm=MPI.COMM_WORLD).comm
assert (comm.rank, comm.size) == (MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size)
assert comm.allreduce(np.ones(1000))[0] == comm.size
print(f"right {comm.rank}\\n", end="", flush=True)
weft.finalize()
"""


@pytest.mark.over("ucx")
def test_an_mpi4py_communicator_is_a_job_on_several_hosts(bed):
    pytest.importorskip("mpi4py")
    if (why := launched.lacks("openmpi")) is not None:
        pytest.skip(why)
    words = ["env", "-u", "WEFT_TRANSPORTS", sys.executable, "-c", MPI4PY]
    said = bed.run(0, launched.command("openmpi", bed, [2, 1], words), timeout=60)
    assert sorted(re.findall("right (\\d)", said)) == ["0", "1", "2"], said
