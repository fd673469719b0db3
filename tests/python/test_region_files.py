# SPDX-License-Identifier: Apache-2.0
"""Regions in files: saved by some number of ranks, loaded by another."""

import pathlib

import numpy as np
import pytest
import ranks
import weft

SHAPE = (1013, 7)


def expected():
    return np.arange(SHAPE[0] * SHAPE[1], dtype="i4").reshape(SHAPE)


def save(path, partition):
    comm = weft.init().comm
    dealt = {"equal": "equal", "dealt": ("round_robin", 3), "given": None}[partition]
    if dealt is None:
        dealt = [0] * comm.size
        dealt[-1] = SHAPE[0]
    found = weft.table(SHAPE, "i4", partition=dealt, like="numpy")
    mine = np.arange(comm.rank, SHAPE[0], comm.size)
    weft.scatter(found, mine, expected()[mine])
    found.barrier()
    seen = []
    found.save(path, progress=lambda done, size: seen.append((done, size)))
    if found.rows_per_rank[comm.rank]:
        assert seen and seen[-1][0] == seen[-1][1]


def load(path):
    comm = weft.init().comm
    t = weft.from_file(path, like="numpy")
    assert (t == expected()).all() and t.dtype == "i4"
    comm.barrier()
    t[...] = 0
    comm.barrier()
    weft.region(t).load(path, threads=2)
    assert (t == expected()).all()
    dealt = weft.table((2000, 7), "i4", partition="round_robin", like="numpy")
    dealt.load(path)
    dealt.barrier()
    assert (weft.gather(dealt, np.arange(SHAPE[0])) == expected()).all()
    assert not weft.gather(dealt, np.arange(SHAPE[0], 2000)).any()


def test_a_file_of_three_ranks_is_read_by_five_and_by_one(tmp_path):
    path = str(tmp_path / "table.weft")
    ranks.run(3, save, path, "equal")
    ranks.run(5, load, path)
    ranks.run(1, load, path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["table.weft"]


@pytest.mark.parametrize("partition", ["dealt", "given"])
def test_a_file_has_its_rows_in_order_however_they_were_dealt(tmp_path, partition):
    path = str(tmp_path / "table.weft")
    ranks.run(2, save, path, partition)
    ranks.run(1, load, path)


def mapped(path):
    comm = weft.init().comm
    t = weft.from_file(path, mmap=True, like="numpy")
    assert (t == expected()).all() and not t.flags.writeable
    assert not weft.region(t).readonly().flags.writeable
    with pytest.raises(weft.InvalidError):
        weft.scatter(weft.region(t), [0], np.zeros((1, 7), "i4"))
    del t
    comm.barrier()
    t = weft.from_file(path, mmap=True, writable=True, like="numpy")
    found = weft.region(t)
    found.local[...] += 1
    found.sync()
    comm.barrier()
    assert (t == expected() + 1).all()


def test_a_file_can_be_the_memory(tmp_path):
    path = str(tmp_path / "table.weft")
    ranks.run(1, save, path, "equal")
    ranks.run(2, mapped, path)
    weft.init("alone")
    assert (weft.from_file(path, like="numpy") == expected() + 1).all()
    weft.finalize()


def made(path):
    comm = weft.init().comm
    t = weft.new_file(path, SHAPE, "i4", like="numpy")
    found = weft.region(t)
    assert not t.any()
    comm.barrier()
    found.local[...] = expected()[found.start : found.stop]
    found.sync()
    assert (t == expected()).all()
    with pytest.raises(weft.Error):
        weft.new_file(path + "/beside", 3, "f4", like="numpy")
    with pytest.raises(weft.UnsupportedError):
        found.resize(1)
    comm.barrier()


def test_a_new_file_can_be_the_memory(tmp_path):
    path = str(tmp_path / "table.weft")
    ranks.run(3, made, path)
    ranks.run(2, load, path)


def test_types_without_a_word_can_be_in_a_new_file(alone, tmp_path):
    kind = np.dtype([("a", "i4"), ("b", "f8")])
    t = weft.new_file(tmp_path / "f", 5, kind, like="numpy")
    t["b"] = 2.5
    weft.region(t).sync()
    assert (np.fromfile(tmp_path / "f", "u1")[-60:].view(kind)["b"] == 2.5).all()


def test_numpy_files_and_raw_ones(alone, tmp_path):
    np.save(tmp_path / "a.npy", expected())
    t = weft.from_file(tmp_path / "a.npy", like="numpy")
    assert (t == expected()).all()
    names = [tmp_path / f"part_{i}" for i in range(3)]
    for name, rows in zip(names, np.array_split(expected(), 3), strict=True):
        rows.tofile(name)
    found = weft.table(SHAPE, "i4", like="numpy")
    found.load_raw(names)
    assert (found.tensor == expected()).all()
    wide = weft.table((SHAPE[0], 9), "i4", like="numpy")
    wide.load_raw(names, row_bytes=28, skip=4)
    assert (wide.tensor[:, 1:8] == expected()).all() and not wide.tensor[:, ::8].any()
    found.load_raw(str(tmp_path / "a.npy"))


def test_types_that_a_file_has_no_word_for_are_named_by_the_reader(alone, tmp_path):
    torch = pytest.importorskip("torch")
    t = weft.empty((5, 3), torch.float8_e4m3fn)
    t.view(torch.uint8)[...] = 9
    weft.region(t).save(tmp_path / "f")
    assert weft.from_file(tmp_path / "f").dtype is torch.uint8
    again = weft.from_file(tmp_path / "f", dtype=torch.float8_e4m3fn)
    assert again.dtype is torch.float8_e4m3fn and (again.view(torch.uint8) == 9).all()
    with pytest.raises(weft.InvalidError, match="1 bytes"):
        weft.from_file(tmp_path / "f", dtype=torch.float32)


def test_bad_files_are_told(alone, tmp_path):
    with pytest.raises(weft.Error, match="nothing"):
        weft.from_file(tmp_path / "nothing")
    with pytest.raises(TypeError, match="progress"):
        weft.table(3, "f4", like="numpy").save(tmp_path / "f", progress=3)
    (tmp_path / "text").write_text("no table at all" * 100)
    with pytest.raises(weft.Error):
        weft.from_file(tmp_path / "text")
    found = weft.table((1000, 4), "f8", like="numpy")
    found.tensor[...] = 1
    found.save(tmp_path / "good")
    weft.verify_file(tmp_path / "good")
    data = bytearray((tmp_path / "good").read_bytes())
    data[data.index(np.ones(40).tobytes()) + 100] ^= 1
    (tmp_path / "bad").write_bytes(data)
    with pytest.raises(weft.Error, match="checksum"):
        weft.verify_file(tmp_path / "bad")
    with pytest.raises(weft.Error, match="checksum"):
        weft.from_file(tmp_path / "bad", like="numpy")
    assert weft.from_file(tmp_path / "bad", verify=False, like="numpy").shape == (1000, 4)
    with pytest.raises(weft.Error):
        weft.table((1000, 4), "f4", like="numpy").load(tmp_path / "good")
    with pytest.raises(weft.InvalidError, match="mmap"):
        weft.from_file(tmp_path / "good", writable=True)
    with pytest.raises(TypeError, match="max_rows"):
        weft.from_file(tmp_path / "good", mmap=True, max_rows=5)
    with pytest.raises(weft.InvalidError, match="npy"):
        weft.from_file(tmp_path / "good.npy", mmap=True)
    with pytest.raises(weft.InvalidError):
        found.sync()


def one_has_no_file(folder):
    comm = weft.init(timeout=60).comm
    own = pathlib.Path(folder) / str(comm.rank)
    if comm.rank != 1:
        alone = weft.table((5, 3), "f4", comm=comm.subset([comm.rank]), like="numpy")
        alone.save(own)
    with pytest.raises(weft.InvalidError, match="" if comm.rank == 1 else "rank 1: cannot open"):
        weft.from_file(own, like="numpy")
    comm.barrier()  # nobody waits for anybody
    for make in (
        lambda kind: weft.new_file(f"{folder}/new", (4, 2), kind),
        lambda kind: weft.from_file(f"{folder}/0", mmap=True, dtype=kind),
    ):
        with pytest.raises(weft.MismatchError, match="rank 1 has a different dtype than rank 0"):
            make(np.dtype("u4" if comm.rank == 1 else ">u4"))
    comm.barrier()


def test_what_one_rank_cannot_read_is_told_to_all(tmp_path):
    ranks.run(3, one_has_no_file, str(tmp_path))
