# SPDX-License-Identifier: Apache-2.0
"""Jobs on several hosts over the MPI that has started them: no directory, nothing but mpirun."""

import pathlib
import re
import shutil
import sys

import pytest
import weft

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


@pytest.fixture(params=["openmpi", "mpich"])
def mpi(request, bed):
    """Run a Python program on `each` ranks of every host, started by this MPI's mpirun.

    One line that need not end with MPI_Finalize (`finalizes`) runs over MPICH, too.
    """
    library = pathlib.Path(weft.__file__).parent / f"libweft_mpi_{request.param}.so"
    launcher = {"openmpi": "mpirun.openmpi", "mpich": "mpiexec.hydra"}[request.param]
    if shutil.which(launcher) is None or not library.exists():
        pytest.skip(f"no {launcher}, or {library.name} was not built")

    def run(program, each, timeout=60.0, finalizes=True):
        if request.param == "mpich":
            if finalizes:
                pytest.skip("MPI_Finalize of MPICH before 4.2 over UCX hangs, for all programs")
            program += "; import os; os._exit(0)"
        ranks = str(each * len(bed))
        hosts = ",".join(f"{bed.name(host)}:{each}" for host in range(len(bed)))
        # Hosts that are namespaces have the machine's memory in common, which is no network.
        if request.param == "openmpi":
            networks = ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "eth0"]
            launch = ["--allow-run-as-root", "--bind-to", "none", *networks]
            launch += ["--mca", "plm_rsh_agent", bed.rsh, "--mca", "oob_tcp_if_include", "eth0"]
            launch += ["--mca", "pml", "ob1", "--host", hosts, "-n", ranks]
        else:
            launch = ["-launcher", "rsh", "-launcher-exec", bed.rsh, "-hosts", hosts]
            launch += ["-n", ranks, "-genv", "UCX_TLS", "tcp,self"]
            launch += ["-genv", "MPIR_CVAR_NOLOCAL", "1"]
        settings = ["env", "WEFT_TRANSPORTS=self,shm,mpi"]
        words = [*settings, sys.executable, "-c", program]
        return bed.run(0, [launcher, *launch, *words], timeout=timeout)

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
