# SPDX-License-Identifier: Apache-2.0
"""Who sees the GPUs of this machine.

The process that runs the tests forks ranks, because importing torch takes longer
than most tests. Where torch sees a GPU, its first backward pass starts threads
that do not survive a fork. So that process sees none, and tests that need a GPU
start their ranks anew, with FIRST in their environment.
"""

import contextlib
import os
import pathlib

import pytest

_given = os.environ.get("CUDA_VISIBLE_DEVICES", "0")
FIRST = {"CUDA_VISIBLE_DEVICES": _given.split(",")[0]}


def hide():
    """From now on this process, and what it starts, sees no GPU."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""


@contextlib.contextmanager
def shown():
    """What is started anew meanwhile sees the first GPU."""
    os.environ.update(FIRST)
    try:
        yield
    finally:
        hide()


def needed():
    """The mark of tests that need a GPU."""
    import torch

    here = torch.version.cuda and pathlib.Path("/dev/nvidia0").exists() and _given
    return pytest.mark.skipif(not here, reason="no GPU")
