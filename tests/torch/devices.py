# SPDX-License-Identifier: Apache-2.0
"""Where the tensors of a test are.

    @pytest.mark.parametrize("device", devices.ALL)
    def test_that_it_works(device):
        devices.run(2, body, device)

    def body(device):                     # in every rank
        x = torch.ones(3, device=devices.use(device))

"cpu" tensors are worked on where they are, "cuda" tensors are staged through host
memory. "double" tensors are on the host and are staged all the same, with threads
that play the streams: it is how the staging is tested without a GPU. Those threads
cannot hold the program back, so `settle` comes before a look at a result.
"""

import gpu
import groups
import pytest
import torch
from weft.torch._shim import shim

_CUDA = pytest.param("cuda", marks=gpu.needed())
STAGED = ["double", _CUDA]
ALL = ["cpu", *STAGED]


def run(size, body, device, *args, **options):
    """groups.run of body(device, *args), with ranks that can use the device."""
    return groups.run(size, body, device, *args, context=_context(device), **options)


def start(size, body, device, *args, **options):
    """groups.start of body(device, *args), with ranks that can use the device."""
    return groups.start(size, body, device, *args, context=_context(device), **options)


def use(device):
    """Called in ranks: what torch calls the device."""
    shim._stage_host_tensors(device == "double")
    return "cuda" if device == "cuda" else "cpu"


def settle(device):
    """Called in ranks: wait until all that was queued is over."""
    if device == "double":
        shim._wait_for_staged()
    elif device == "cuda":
        torch.cuda.synchronize()


def _context(device):
    return groups.SPAWN if device == "cuda" else groups.FORK
