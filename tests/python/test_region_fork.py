# SPDX-License-Identifier: Apache-2.0
"""Children of ranks: what forked ones can use, and what all of them are told at once."""

import multiprocessing
import os
import secrets
import traceback

import numpy as np
import pytest
import ranks
import weft

# A child that waits for other ranks ends with a TimeoutError, which is not what it shall be told.
SOON = {"WEFT_BOOT_TIMEOUT": "30s"}


def child(body, *args):
    """Run `body` in a forked child; its number."""
    pid = os.fork()
    if pid != 0:
        return pid
    try:
        body(*args)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def must_end_well(pid):
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def is_told(place):
    with pytest.raises(weft.ClosedError, match=f"process {place} is already rank"):
        weft.empty((4, 2), "f4", like="numpy")
    with pytest.raises(weft.ClosedError, match="forked or spawned"):
        weft.init(timeout=5)
    assert weft.init("alone").size == 1
    assert weft.full(3, 1.0, like="numpy").sum() == 3


def rank_and_child():
    table = weft.full((4, 2), 1.0, like="numpy")
    must_end_well(child(is_told, os.getpid()))
    must_end_well(child(lambda: must_end_well(child(is_told, os.getppid()))))
    weft.region(table).barrier()
    weft.finalize()
    table = weft.full((4, 2), 1.0, like="numpy")
    must_end_well(child(is_told, os.getpid()))
    weft.region(table).barrier()


def test_a_child_that_makes_a_region_is_told_at_once():
    ranks.run(2, rank_and_child, environment=SOON)


def rank_and_spawned_child():
    table = weft.full((4, 2), 1.0, like="numpy")
    started = multiprocessing.get_context("spawn").Process(target=is_told, args=(os.getpid(),))
    started.start()
    started.join()
    assert started.exitcode == 0
    weft.region(table).barrier()
    weft.finalize()
    weft.init().comm.barrier()  # the place is free again


def test_so_is_one_that_is_spawned():
    ranks.run(2, rank_and_spawned_child, environment=SOON)


def told_after(go, place):
    os.read(go, 1)
    is_told(place)


def child_before_rank():
    go, tell = os.pipe()
    pid = child(told_after, go, os.getpid())
    table = weft.full((4, 2), 1.0, like="numpy")
    os.write(tell, b"!")
    must_end_well(pid)
    weft.region(table).barrier()


def test_so_is_one_that_was_forked_before_its_parent_joined():
    ranks.run(2, child_before_rank, environment=SOON)


def joins_first(ready, tell, go):
    table = weft.full((4, 2), 1.0, like="numpy")
    os.write(tell, b"!")
    os.close(ready)
    os.read(go, 1)
    weft.region(table).barrier()


def rank_after_child():
    ready, tell = os.pipe()
    go, end = os.pipe()
    pid = child(joins_first, ready, tell, go)
    os.read(ready, 1)
    with pytest.raises(weft.ClosedError, match=f"process {pid} is already rank"):
        weft.init()
    os.write(end, b"!")
    must_end_well(pid)


def test_and_a_rank_whose_child_has_joined_in_its_place():
    ranks.run(2, rank_after_child, environment=SOON)


def is_rank(number):
    os.environ["WEFT_RANK"] = str(number)
    table = weft.full((4, 2), 1.0, like="numpy")
    assert weft.rank() == number
    weft.scatter_add(table, [0], np.ones((1, 2)))
    weft.region(table).barrier()
    assert table.sum() == 8 + 2 * 2


def program_of_two_ranks():
    os.environ.update(WEFT_RANK="0", WEFT_RANKS="2", WEFT_JOB=secrets.token_hex(8))
    for pid in [child(is_rank, number) for number in range(2)]:
        must_end_well(pid)


def test_ranks_that_a_program_forks_have_places_of_their_own():
    ranks.run(1, program_of_two_ranks, environment=SOON)
