# SPDX-License-Identifier: Apache-2.0
"""What ranks of several tests do, and what several tests do in a rank."""

import threading
import time

import numpy as np


def reduce_for_ever():
    """Collectives, for somebody else to look at; to be killed."""
    import weft

    comm = weft.init().comm
    x = np.ones(1000, "f4")
    comm.allreduce(x)
    print("ready", comm.rank)
    while True:
        comm.allreduce(x)
        time.sleep(0.001)  # the viewer needs a core, too


def in_two_threads(work):
    """Call work(0) and work(1) at the same time; neither may fail."""
    failures = []

    def run(number):
        try:
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
