# SPDX-License-Identifier: Apache-2.0
"""Signals are for the program's own threads."""

import os
import re
import signal
import time
from multiprocessing.reduction import ForkingPickler

import ranks


def tasks():
    return set(os.listdir("/proc/self/task"))


def takes(task, which):
    """Would this signal be handled there?"""
    try:
        with open(f"/proc/self/task/{task}/status") as file:
            blocked = int(re.search(r"SigBlk:\s*([0-9a-f]+)", file.read())[1], 16)
    except (FileNotFoundError, ProcessLookupError):
        return False  # it has just ended
    return not blocked >> (which - 1) & 1


def body(folder):
    import torch
    import torch.distributed as dist
    import weft.torch

    torch.set_num_threads(1)
    rank = int(os.environ["WEFT_RANK"])
    store = dist.FileStore(os.path.join(folder, "store"), 2)
    others = tasks()
    dist.init_process_group("weft", store=store, rank=rank, world_size=2)
    heard = []
    work = dist.all_reduce(torch.ones(1 << 20), async_op=True)
    work.get_future().then(lambda future: heard.append(future.value()))
    work.wait()
    while not heard:
        time.sleep(0.001)
    ForkingPickler.dumps(weft.full((4, 2), 1.0, like="numpy"))
    ours = tasks() - others
    assert len(ours) >= 3, ours
    for which in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD, signal.SIGALRM):
        assert [task for task in ours if takes(task, which)] == []
    dist.destroy_process_group()


def test_no_thread_of_weft_takes_them(tmp_path):
    ranks.run(2, body, str(tmp_path))
