# SPDX-License-Identifier: Apache-2.0
"""Where the tensors of a test are.

    @pytest.mark.parametrize("device", devices.ALL)
    def test_that_it_works(device):
        devices.run(2, body, device)

    def body(device):                     # in every rank
        x = torch.ones(3, device=devices.use(device))

"cpu" tensors are worked on where they are, "cuda" tensors are staged through host
memory. "double" tensors are on the host and are staged all the same, with threads
that play the streams (stream_double.cpp): it is how the staging is tested without a
GPU. Those threads cannot hold the program back, so `settle` comes before a look at a
result.
"""

import ctypes
import functools
import hashlib
import pathlib

import gpu
import groups
import pytest
import torch
from weft.torch import build
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
    double = device == "double"
    make = ctypes.cast(_double().make_double_stream, ctypes.c_void_p).value if double else 0
    shim._stage_host_tensors(make)
    return "cuda" if device == "cuda" else "cpu"


def settle(device):
    """Called in ranks: wait until all that was queued is over."""
    if device == "double":
        _double().wait_for_double_streams()
    elif device == "cuda":
        torch.cuda.synchronize()


@functools.cache
def _double():
    return ctypes.CDLL(str(_built_double()))


def _built_double():
    """It is compiled when a test first needs it; later ones find it."""
    source = pathlib.Path(__file__).resolve().with_name("stream_double.cpp")
    name = f"stream_double_{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}"
    target = source.parents[2] / "build" / f"{name}{build.identity()}.so"
    if not target.is_file():
        target.parent.mkdir(exist_ok=True)
        build.compile_library([source], target, verbose=False)
    return target


def _context(device):
    if device == "double":
        _double()  # ranks are forked, and find it loaded
    return groups.SPAWN if device == "cuda" else groups.FORK
