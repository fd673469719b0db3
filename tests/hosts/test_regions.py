# SPDX-License-Identifier: Apache-2.0
"""Regions whose rows lie on several hosts: rows are right, and cost the bytes that they have."""

import host_ranks
import numpy as np
import pytest
import test_jobs
import weft

transport = test_jobs.transport  # skips where two hosts cannot be one job

ROWS, WIDTH = 4096, 256  # of floats: 4 MiB


def row(ids):
    """What a row holds at first; whole numbers that floats have."""
    return (np.asarray(ids)[:, None] * 512 + np.arange(WIDTH)).astype("f4")


def use_rows(reach):
    comm = weft.init().comm
    table = weft.table((ROWS, WIDTH), dtype="float32", like="numpy", reach=reach)
    assert table.reach == reach
    table.local[:] = row(np.arange(table.start, table.stop))
    table.barrier()
    with pytest.raises(weft.UnsupportedError):
        weft.empty((ROWS, WIDTH), dtype="float32", reach=reach)  # no tensor can have these rows
    everything = np.random.default_rng(comm.rank).permutation(ROWS)
    np.testing.assert_array_equal(weft.gather(table, everything), row(everything))
    table.barrier()
    mine = everything[everything % comm.size == comm.rank]
    weft.scatter(table, mine, -row(mine))
    table.barrier()
    np.testing.assert_array_equal(weft.gather(table, everything), -row(everything))
    table.barrier()
    weft.scatter_add(table, everything, row(everything))
    table.barrier()
    total = (comm.size - 1) * row(everything)
    np.testing.assert_array_equal(weft.gather(table, everything), total)
    table.barrier()


@pytest.mark.parametrize("reach", ["distributed", "hierarchy"])
def test_rows_of_other_hosts_are_read_and_written_for_the_bytes_that_they_have(
    bed, transport, reach
):
    host_ranks.run(bed, use_rows, reach, each=2, environment=test_jobs.environment(transport))
    # Both ranks of a host get half of all rows three times and add to them once. They write a
    # quarter of all rows each, half of which are those of the other host.
    least = (2 * (3 + 1) * ROWS // 2 + 2 * ROWS // 8) * WIDTH * 4
    for host in range(len(bed)):
        for moved in bed.bytes(host):
            assert least < moved < 1.1 * least, f"{moved / least:.3f} of what is needed"
