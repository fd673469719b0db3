# SPDX-License-Identifier: Apache-2.0
"""The benchmarks of `weft bench`. A new one is its folder and a row here."""

from .collectives.benchmark import BENCHMARK as COLLECTIVES
from .conv2d.benchmark import BENCHMARK as CONV2D
from .gather.benchmark import BENCHMARK as GATHER
from .gemm.benchmark import BENCHMARK as GEMM
from .hosts.benchmark import BENCHMARK as HOSTS
from .mpi.benchmark import BENCHMARK as MPI
from .store.benchmark import BENCHMARK as STORE
from .switch.benchmark import BENCHMARK as SWITCH
from .torch.benchmark import BENCHMARK as TORCH

BENCHES = {
    bench.name: bench
    for bench in (COLLECTIVES, TORCH, GATHER, MPI, HOSTS, STORE, SWITCH, GEMM, CONV2D)
}
