# SPDX-License-Identifier: Apache-2.0
"""weft.gather, scatter and scatter_add, against what NumPy and torch say."""

import numpy as np
import pytest
import weft

TYPES = ("?", "u1", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16")
MOVED = ("u2", "u4", "u8", "S3", "M8[s]", [("a", "i4"), ("b", "f8")])


def table_of(shape, dtype, shared):
    """A table with different bytes everywhere, shared or not."""
    plain = np.zeros(shape, dtype)
    plain.reshape(-1).view("u1")[...] = np.arange(plain.nbytes) % 2
    if not shared:
        return plain
    t = weft.empty(shape, dtype, like="numpy")
    t[...] = plain
    return t


@pytest.mark.parametrize("shared", [False, True])
def test_rows_of_every_type_and_shape_are_gathered_and_scattered(alone, shared):
    for dtype in (*TYPES, *MOVED):
        for shape in ((50,), (50, 1), (50, 7), (50, 3, 5), (50, 0)):
            t = table_of(shape, dtype, shared)
            for ids in (np.array([3, 49, 0, 3]), np.arange(12).reshape(3, 4), np.array(7)):
                for kind in ("i4", "i8", "u1"):
                    found = weft.gather(t, ids.astype(kind))
                    assert (found.shape, found.dtype) == (t[ids].shape, t.dtype)
                    assert found.tobytes() == t[ids].tobytes()
            kept = t.copy()
            numbers = np.array([1, 4, 9])
            weft.scatter(t, numbers, kept[numbers + 20])
            kept[numbers] = kept[numbers + 20]
            assert t.tobytes() == kept.tobytes()


def test_slices_of_rows_and_columns_are_tables(alone):
    t = weft.empty((100, 10), "f4", like="numpy")
    t[...] = np.arange(1000).reshape(100, 10)
    for part in (t[10:30], t[:, 2:5], t[5:50, 9:], t[::3], t[7], t[20:21], t[3:90:2, 1:4]):
        n = len(part)
        assert (weft.gather(part, [0, n - 1]) == part[[0, n - 1]]).all()
        with pytest.raises(weft.InvalidError, match=str(n)):
            weft.gather(part, [n])
        weft.scatter_add(part, [0], np.ones((1, *part.shape[1:]), "f4"))
    for odd in (t[:, ::2], t.T, t[::-1], np.broadcast_to(t[0], (5, 10))):
        with pytest.raises(weft.InvalidError, match="row"):
            weft.gather(odd, [0])
    assert weft.region(t).stats()["gathers"] >= 4


def test_rows_across_those_of_the_region_are_a_table(alone):
    t = weft.empty((10, 4), "f4", like="numpy")
    t[...] = np.arange(40).reshape(10, 4)
    across = t.reshape(-1)[2:38].reshape(9, 4)
    assert weft.gather(across, [0, 8]).tolist() == across[[0, 8]].tolist()
    weft.scatter(across, [8], np.zeros((1, 4), "f4"))
    assert t[8:].tolist() == [[32, 33, 0, 0], [0, 0, 38, 39]]


@pytest.mark.parametrize("partition", ["equal", "round_robin"])
def test_a_region_of_any_type_is_a_table(alone, partition):
    for dtype in (*TYPES, *MOVED):
        found = weft.table((20, 3), dtype, partition=partition, like="numpy")
        rows = table_of((20, 3), dtype, False)
        weft.scatter(found, np.arange(20), rows)
        assert weft.gather(found, [19, 3]).tobytes() == rows[[19, 3]].tobytes()
        out = np.zeros((2, 3), dtype)
        assert weft.gather(found, [5, 6], out).tobytes() == rows[5:7].tobytes()


def test_rows_without_elements_go_anywhere(alone):
    t = weft.empty((5, 0), "f4", like="numpy")
    ids = np.array([1, 0, 4, 4])
    whole = np.ones((8, 6), "f4")
    for out in (np.ones((4, 0), "f4"), whole[:4, 2:2], whole[::2, :0], whole.T[:4, :0]):
        assert weft.gather(t, ids, out=out) is out
        weft.scatter(t, ids[:3], out[:3])
        weft.scatter_add(t, ids, out)
    some = weft.empty((5, 6), "f4", like="numpy")
    weft.gather(some[:, 2:2], ids, out=some[:4, 3:3])
    weft.scatter(some[:, :0], ids[:3], some[:3, 5:5])
    assert whole.all() and not some.any()


def test_arrays_that_overlap_the_table_are_refused(alone):
    t = weft.zeros((10, 4), "i8", like="numpy")
    t[...] = np.arange(40).reshape(10, 4)
    before = t.copy()
    with pytest.raises(weft.InvalidError, match="overlap"):
        weft.gather(t, np.arange(9, -1, -1), t)
    with pytest.raises(weft.InvalidError, match="overlap"):
        weft.scatter(t, [0, 1], t[1:3])
    with pytest.raises(weft.InvalidError, match="overlap"):
        weft.scatter_add(t, [0], t[9:])
    with pytest.raises(weft.InvalidError, match="ids lie in"):
        weft.scatter(t, t[0], np.zeros((4, 4), "i8"))
    assert (t == before).all()
    # Other rows and other columns are other memory.
    weft.gather(t[:5], [0, 1], t[5:7])
    weft.gather(t[:, :2], [0], t[9:, 2:])
    assert (t[5:7] == before[:2]).all() and (t[9, 2:] == before[0, :2]).all()


def test_memory_for_reading_is_not_written_to(alone, tmp_path):
    torch = pytest.importorskip("torch")
    t = weft.zeros((6, 2), max_rows=100)
    found = weft.region(t)
    old = found.readonly()
    found.resize(50)
    found.save(tmp_path / "f")
    mapped = weft.from_file(tmp_path / "f", mmap=True)
    with weft.share(old) as ticket:
        attached = weft.attach(ticket)
    for locked in (old, old.numpy(), found.readonly()[::2], mapped, mapped[::2], attached):
        rows = torch.ones(1, 2) if isinstance(locked, torch.Tensor) else np.ones((1, 2), "f4")
        with pytest.raises(weft.InvalidError, match="read"):
            weft.scatter(locked, [0], rows)
        with pytest.raises(weft.InvalidError, match="read"):
            weft.scatter_add(locked, [0], rows)
        assert not weft.gather(locked, [0]).any()


def test_types_are_converted_inside_a_class(alone):
    t = weft.empty((9, 4), "f4", like="numpy")
    t[...] = np.arange(36).reshape(9, 4) / 3
    for kind in ("f2", "f8"):
        found = weft.gather(t, [8, 1], dtype=kind)
        assert found.dtype == kind and (found == t[[8, 1]].astype(kind)).all()
    weft.scatter(t, [0], np.full((1, 4), 0.1, "f8"))
    assert (t[0] == np.float32(0.1)).all()
    whole = weft.empty((4, 2), "i2", like="numpy")
    whole[...] = -7
    assert weft.gather(whole, [1], dtype="i8").tolist() == [[-7, -7]]
    with pytest.raises(weft.InvalidError, match="floating"):
        weft.gather(t, [0], dtype="i4")
    moved = weft.empty((4, 2), "u2", like="numpy")
    with pytest.raises(TypeError, match="different types"):
        weft.gather(moved, [0], dtype="i4")
    with pytest.raises(TypeError, match="elements of type"):
        weft.gather(weft.region(moved), [0], out=np.zeros((1, 2), "i2"))
    for refused in (moved, weft.region(moved)):
        with pytest.raises(TypeError, match="not added"):
            weft.scatter_add(refused, [0], np.ones((1, 2), "u2"))
    with pytest.raises(weft.InvalidError, match="same type"):
        weft.scatter_add(t, [0], np.ones((1, 4), "f8"))


def test_numbers_below_zero_and_past_the_end(alone):
    t = weft.full((5, 2), 3.0, like="numpy")
    assert weft.gather(t, [-1, 2, -9]).tolist() == [[0, 0], [3, 3], [0, 0]]
    out = np.full((3, 2), 7.0)
    assert weft.gather(t, [-1, 2, 4], out) is out
    assert out.tolist() == [[7, 7], [3, 3], [3, 3]]
    with pytest.raises(weft.InvalidError, match="5"):
        weft.gather(t, [1, 5])
    assert weft.gather(t, [1, 5], bounds="skip").tolist() == [[3, 3], [0, 0]]
    weft.scatter(t, [-1, 5, 0], np.ones((3, 2)), bounds="skip")
    assert t.sum() == 2 + 4 * 6
    kept = t.copy()
    with pytest.raises(weft.InvalidError):
        weft.scatter(t, [1, 9], np.zeros((2, 2)))
    assert (t == kept).all()
    big = np.array([1 << 63], "u8")
    with pytest.raises(weft.InvalidError, match="63 bits"):
        weft.gather(t, big)


def test_results_may_be_strided_in_rows(alone):
    t = weft.empty((20, 4), "i4", like="numpy")
    t[...] = np.arange(80).reshape(20, 4)
    wide = np.full((3, 10), -1, "i4")
    weft.gather(t, [5, 6, 7], wide[:, 3:7])
    assert (wide[:, 3:7] == t[5:8]).all() and (np.delete(wide, range(3, 7), 1) == -1).all()
    grid = np.zeros((4, 3, 4), "i4")
    weft.gather(t, np.arange(6).reshape(2, 3), grid[2:])
    assert (grid[2:].reshape(6, 4) == t[:6]).all()
    for bad, text in (
        (np.zeros((3, 8), "i4")[:, ::2], "contiguous"),
        (np.zeros((3, 5), "i4"), "shape"),
        (np.zeros((2, 4), "i4"), "shape"),
        (np.zeros(12, "i4"), "shape"),
    ):
        with pytest.raises(weft.InvalidError, match=text):
            weft.gather(t, [5, 6, 7], bad)
    locked = np.zeros((1, 4), "i4")
    locked.flags.writeable = False
    with pytest.raises(weft.InvalidError, match="read-only"):
        weft.gather(t, [5], locked)
    # A source that is not in rows is copied.
    weft.scatter(t, [1, 2], np.arange(16, dtype="i4").reshape(2, 8)[:, ::2])
    assert t[1:3].tolist() == [[0, 2, 4, 6], [8, 10, 12, 14]]


def test_of_equal_numbers_the_last_wins_and_all_are_added(alone):
    rng = np.random.default_rng(5)
    ids = rng.integers(0, 40, 5000)
    rows = rng.normal(size=(5000, 3))
    t = weft.zeros((40, 3), "f8", like="numpy")
    expected = np.zeros((40, 3))
    weft.scatter(t, ids, rows, threads=2)
    expected[ids] = rows
    assert (t == expected).all()
    weft.scatter_add(t, ids, rows, deterministic=True)
    np.add.at(expected, ids, rows)
    assert (t == expected).all()
    weft.scatter_add(t, ids, rows, threads=2)
    np.add.at(expected, ids, rows)
    assert np.allclose(t, expected)


def test_wrong_arguments_are_told(alone):
    t = weft.zeros((5, 2), "f4", like="numpy")
    for ids in ([0.5], np.array([True]), "a", None, [[1], [2, 3]]):
        with pytest.raises(TypeError, match="ids"):
            weft.gather(t, ids)
    for ids in ([1 << 63], [1 << 70]):
        with pytest.raises((TypeError, weft.InvalidError), match=r"63 bits|object"):
            weft.gather(t, ids)
    with pytest.raises(weft.InvalidError, match="'skip'"):
        weft.gather(t, [0], bounds="wrap")
    with pytest.raises(weft.InvalidError, match="dtype"):
        weft.gather(t, [0], np.zeros((1, 2), "f4"), dtype="f4")
    with pytest.raises(TypeError, match="table"):
        weft.gather([[1, 2]], [0])
    with pytest.raises(TypeError, match="rows"):
        weft.scatter(t, [0], [[1, 2]])
    with pytest.raises(weft.InvalidError, match="at least one dimension"):
        weft.gather(np.array(3), [0])
    with pytest.raises(weft.InvalidError):
        weft.gather(t, [0], threads=-1)
    assert weft.gather(t, []).shape == (0, 2)
    assert weft.gather(np.zeros((0, 2)), np.zeros((3, 0), int)).shape == (3, 0, 2)


def test_torch_tensors(alone):
    torch = pytest.importorskip("torch")
    t = weft.empty((30, 4))
    t.copy_(torch.arange(120.0).view(30, 4))
    for kind in (torch.int32, torch.int64, torch.uint8, torch.int16, torch.uint64):
        ids = torch.tensor([[29, 0, 5]]).to(kind)
        assert torch.equal(weft.gather(t, ids), t[ids.long()])
    assert torch.equal(weft.gather(t[3:20, 1:3], torch.tensor([0, 16])), t[[3, 19], 1:3])
    assert weft.gather(t, torch.arange(10)[::2]).shape == (5, 4)
    assert weft.gather(t, [1], dtype=torch.bfloat16).dtype is torch.bfloat16
    assert isinstance(weft.gather(weft.region(t), [1]), torch.Tensor)
    assert weft.gather(torch.ones(5, 2), np.array([1])).sum() == 2
    weft.scatter(t, torch.tensor([1, 2]), torch.ones(1, 4).expand(2, 4))
    weft.scatter_add(t, torch.tensor([1, 1]), torch.ones(4, 2).T)
    assert t[1:3].tolist() == [[3.0] * 4, [1.0] * 4]
    for kind in (torch.float8_e5m2, torch.uint16, torch.complex64, torch.bool):
        table = weft.empty((6, 3), kind)
        table.view(torch.uint8)[...] = 1
        for source in (table, weft.region(table)):
            assert weft.gather(source, [5]).view(torch.uint8).all()


def test_types_of_one_size_are_not_taken_for_each_other(alone):
    torch = pytest.importorskip("torch")
    for kind, other in (
        (torch.uint16, torch.int16),
        (torch.float8_e4m3fn, torch.float8_e5m2),
        (torch.float8_e4m3fn, torch.uint8),
        (torch.uint32, torch.float32),
    ):
        t = weft.empty((4, 2), kind)
        for source in (t, weft.region(t)):
            with pytest.raises(TypeError, match="type"):
                weft.gather(source, [0], torch.empty(1, 2, dtype=other))
    with pytest.raises(TypeError, match="type"):
        weft.gather(np.zeros((3, 1), "S4"), [0], np.zeros((1, 1), "u4"))


def test_tensors_that_are_not_plain(alone):
    torch = pytest.importorskip("torch")
    t = weft.empty((5, 2))
    weight = torch.nn.Parameter(t)
    assert not weft.gather(weight, [0]).requires_grad
    with pytest.raises(weft.InvalidError, match="no_grad"):
        weft.scatter(weight, [0], torch.ones(1, 2))
    with torch.no_grad():
        weft.scatter(weight, [0], torch.ones(1, 2))
    assert t[0].tolist() == [1, 1]
    with pytest.raises(weft.UnsupportedError, match="layout"):
        weft.gather(torch.eye(3).to_sparse(), [0])
    with pytest.raises(weft.InvalidError, match="conj"):
        weft.gather(torch.ones(3, 2, dtype=torch.complex64).conj(), [0])
    with pytest.raises(weft.UnsupportedError, match="meta"):
        weft.gather(torch.ones(3, 2, device="meta"), [0])
