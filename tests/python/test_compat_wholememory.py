# SPDX-License-Identifier: Apache-2.0
"""weft.compat.wholememory: programs of 2022 run, without a GPU too."""

import ctypes
import os
import pathlib
import secrets
import shutil
import socket
import subprocess
import sys
import time

import pytest
import ranks

torch = pytest.importorskip("torch")

import weft  # noqa: E402
from weft.compat import _meet, _original  # noqa: E402
from weft.compat import wholememory as wm  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]

# The calls of the page, in its order, with its own import.
PAGE = """
import sys, torch
from wholememory.torch import wholememory_pytorch as wm
rank, size = int(sys.argv[1]), int(sys.argv[2])
wm.init_lib()
wm.mp_init(rank, size)
a = wm.create_tensor([10000, 512], [], torch.float32, True, [])
print("rank=%d, a=%s" % (rank, a))
b = wm.create_tensor([10, 3], [], torch.int64, True, [])
b_cpu = wm.get_tensor_view(b, torch.device('cpu'))
if rank == size - 1:
    a[5] = 2.5
    b_cpu[9] = 7
wm.barrier([])
assert a[5].sum() == 2.5 * 512 and a.sum() == a[5].sum() and b[9].tolist() == [7, 7, 7]
wm.barrier([])
wm.finalize_lib()
assert a[5, 0] == 2.5
print("the page has run")
"""


def start_page(program, rank, **environment):
    return subprocess.Popen(
        [sys.executable, "-c", program, str(rank), "2"],
        env={**ranks.quiet_environment(), "PYTHONPATH": str(ROOT / "compat"), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run_page(**environment):
    started = [start_page(PAGE, rank, **environment) for rank in range(2)]
    for rank, process in enumerate(started):
        text, _ = process.communicate(timeout=180)
        assert process.returncode == 0 and "the page has run" in text, text
        assert f"rank={rank}, a=tensor([[0., 0., 0.,  ..., 0., 0., 0.]," in text


def test_the_page_runs_and_ranks_find_each_other_by_the_name_of_the_job():
    run_page(WEFT_JOB=secrets.token_hex(8))


def test_ranks_find_each_other_by_the_address_of_the_master():
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    run_page(MASTER_ADDR="localhost", MASTER_PORT=str(port))


def test_ranks_find_each_other_by_their_launcher():
    mpirun = shutil.which("mpirun")
    known = mpirun and subprocess.run(
        [mpirun, "--version"], check=False, capture_output=True, text=True
    )
    if not known or "Open MPI" not in known.stdout:
        pytest.skip("there is no mpirun of Open MPI here")
    start = [mpirun, "--oversubscribe", "--allow-run-as-root", "-n", "2"]
    read = "import os, sys; sys.argv[1:] = [os.environ['OMPI_COMM_WORLD_RANK'], '2']\n"
    done = subprocess.run(
        [*start, sys.executable, "-c", read + PAGE],
        check=False,
        env={**ranks.quiet_environment(), "PYTHONPATH": str(ROOT / "compat")},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.stdout.count("the page has run") == 2, done.stdout + done.stderr


# Each job writes its own number where the other one could see it.
CROSSED = """
import os, sys, torch
from weft.compat import wholememory as wm
rank, job = int(sys.argv[1]), int(os.environ["JOB"])
wm.mp_init(rank, 2)
a = wm.create_tensor([2], [], torch.int64, True, [])
a[rank] = job
wm.barrier([])
print("seen", a.tolist(), flush=True)
wm.barrier([])
wm.finalize_lib()
"""


def start_crossed(*names):
    """Rank 0 of one job and rank 1 of the other, then the rest; what each has printed."""
    started = []
    for rank, job in ((0, 0), (1, 1), (1, 0), (0, 1)):
        name = {"WEFT_JOB": names[job]} if names else {}
        started.append((job, start_page(CROSSED, rank, JOB=str(job), **name)))
    return [(job, process.communicate(timeout=180)[0]) for job, process in started]


def test_two_jobs_of_one_parent_keep_to_themselves():
    for job, text in start_crossed(secrets.token_hex(8), secrets.token_hex(8)):
        assert f"seen [{job}, {job}]" in text, text


def test_two_jobs_that_nothing_tells_apart_are_refused():
    for _, text in start_crossed():
        assert "seen" not in text
        assert "InvalidError" in text and "WEFT_JOB" in text and "MASTER_ADDR" in text, text


def joins_twice(folder):
    """Rank 0 leaves the first job only when the other one has looked for the second."""
    rank = int(os.environ.pop("WEFT_RANK"))
    del os.environ["WEFT_RANKS"]
    wm.mp_init(rank, 2)
    wm.finalize_lib()
    looked = pathlib.Path(folder) / "looked"
    if rank == 1:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_meet, "DEADLINE", 0.3)
            with pytest.raises(weft.TimeoutError):
                wm.mp_init(rank, 2)
        looked.touch()
    while not looked.exists():
        time.sleep(0.01)
    wm.mp_init(rank, 2)
    wm.barrier([])
    wm.finalize_lib()


def test_a_job_can_form_again_however_quick_a_rank_is(tmp_path):
    ranks.run(2, joins_twice, str(tmp_path))


def uses_all_of_it(folder):
    rank = int(os.environ["WEFT_RANK"])
    wm.init_lib()
    wm.init_lib()
    wm.mp_init(rank, 3)
    wm.mp_init(rank, 3)
    assert (wm.get_rank(), wm.get_size()) == (rank, 3)
    strided_tensors(rank)
    tensors_of_some_ranks(rank)
    views(rank)
    assert wm.aggregate_size(10 * rank + 1, []) == (33, [0, 1, 12][rank])
    chunks(rank)
    gathers(rank)
    loaders(folder)
    with pytest.raises(weft.MismatchError, match="rank"):
        wm.create_tensor([4 + (rank == 1), 2], [], torch.float32, True, [])
    kept = wm.create_tensor([6, 2], [], torch.float32, True, [])
    part = kept[3:]
    wm.barrier([])
    wm.finalize_lib()
    wm.finalize_lib()
    del kept
    part.fill_(1)
    with pytest.raises(weft.InvalidError, match="mp_init"):
        wm.barrier([])


def strided_tensors(rank):
    for shape, strides in (
        ([5, 3], [8, 1]),
        ([5, 3], [1, 5]),
        ([2, 3, 4], [20, 5, 1]),
        ([7], [3]),
        ([3, 1], [2, 9]),
    ):
        for dtype in (torch.float64, torch.bool, torch.bfloat16, torch.complex64):
            t = wm.create_tensor(shape, strides, dtype, True, [])
            assert (list(t.shape), list(t.stride())) == (shape, strides) and t.dtype is dtype
            assert not t.any()
            wm.barrier([])
            if rank == 2:
                t.fill_(1)
            wm.barrier([])
            assert bool((t == 1).all())
    for bad in (([2, 3], [1, 1]), ([2, 3], [3]), ([2, 0], []), ([], []), ([2, 2], [0, 1])):
        with pytest.raises(weft.InvalidError):
            wm.create_tensor(*bad, torch.float32, True, [])


def tensors_of_some_ranks(rank):
    """Only those that are named take part, and each group has its own."""
    if rank != 1:
        t = wm.create_tensor([4, 2], [], torch.int32, True, [0, 2])
        t[rank] = rank + 5
        wm.barrier([0, 2])
        assert t[:, 0].tolist() == [5, 0, 7, 0]
        assert wm.aggregate_size(rank, [0, 2]) == (2, 0)
    else:
        assert wm.create_tensor([4], [], torch.int32, True, [1]).tolist() == [0] * 4
    own, other = ([0, 1], [1, 2]) if rank < 2 else ([2], [0, 1])
    t = wm.create_tensor([3], [], torch.int64, True, own)
    t[0] = 1
    wm.barrier(own)
    with pytest.raises(weft.InvalidError):
        wm.create_tensor([3], [], torch.int64, True, [7] if rank == 1 else [*other, *other])
    wm.barrier([])


def views(rank):
    t = wm.create_tensor([6, 5], [], torch.int32, True, [])
    for piece in (t, t[2:], t[1:5, 2:4], t.t(), t[::2], t[3], t[4, 4], t.view(torch.int16)[1:, 3:]):
        seen = wm.get_tensor_view(piece, torch.device("cpu"))
        assert (seen.shape, seen.stride(), seen.dtype) == (
            piece.shape,
            piece.stride(),
            piece.dtype,
        )
        assert seen.data_ptr() == piece.data_ptr() and seen.device.type == "cpu"
    with pytest.raises(weft.UnsupportedError, match="no CUDA device"):
        wm.get_tensor_view(t, "cuda")
    with pytest.raises(weft.InvalidError, match="region"):
        wm.get_tensor_view(torch.zeros(3), "cpu")
    with pytest.raises(weft.UnsupportedError, match="host=True"):
        wm.create_tensor([4], [], torch.float32, False, [])


def chunks(rank):
    c = wm.create_chunked_tensor([10, 6], [], torch.float32, [])
    assert (c.shape, c.stride, c.dtype, c.dim()) == ([10, 6], [6, 1], torch.float32, 2)
    assert [chunk.shape[0] for chunk in c.chunks] == [4, 4, 2]
    c.chunks[rank].copy_(torch.arange(60.0).reshape(10, 6)[4 * rank : 4 * rank + 4])
    wm.barrier([])
    ids = torch.tensor([9, 0, 5])
    got = torch.ops.wholememory.gather_chunked(ids, c.get_ptr(), c.dtype)
    assert torch.equal(got, torch.arange(60.0).reshape(10, 6)[ids])
    part = wm.get_sub_chunked_tensor(c, [2, 1], [-1, 3])
    assert (part.shape, part.stride) == ([8, 3], [6, 1])
    rest = wm.get_sub_chunked_tensor(part, [1], [])
    got = torch.ops.wholememory.gather_chunked(ids[1:], rest.get_ptr(), torch.float64)
    assert got.tolist() == [[19.0, 20.0, 21.0], [49.0, 50.0, 51.0]]
    for bad in (([11], []), ([0, 0], [11, 1]), ([0], [1, 1]), ([-1], []), ([0, 0, 0], [])):
        with pytest.raises(weft.InvalidError):
            wm.get_sub_chunked_tensor(c, *bad)
    number = c.get_ptr()
    wm.barrier([])
    del c
    with pytest.raises(weft.InvalidError, match="existing chunked tensor"):
        torch.ops.wholememory.gather_chunked(ids, number, torch.float32)


def gathers(rank):
    t = wm.create_tensor([9, 3], [4, 1], torch.float32, True, [])
    if rank == 0:
        t.copy_(torch.arange(27.0).reshape(9, 3))
    wm.barrier([])
    for kind in (torch.int32, torch.int64):
        ids = torch.tensor([[8, 0], [-1, 3]], dtype=kind)
        got = torch.ops.wholememory.gather(ids, t, torch.bfloat16)
        assert got.dtype is torch.bfloat16 and got.shape == (2, 2, 3)
        assert got[0, 0].tolist() == [24, 25, 26] and not got[1, 0].any()
    with pytest.raises(weft.InvalidError, match="out of range"):
        torch.ops.wholememory.gather(torch.tensor([9]), t, t.dtype)
    torch.library.opcheck(
        torch.ops.wholememory.gather.default,
        (torch.tensor([1, 2]), t, torch.float32),
        test_utils=("test_schema", "test_faketensor"),
    )
    wm.barrier([])


def loaders(folder):
    want = torch.arange(44.0, dtype=torch.float64).reshape(11, 4)
    t = wm.create_tensor([12, 6], [], torch.float32, True, [])
    arguments = (torch.float64, torch.float32, 11, 4, f"{folder}/rows")
    wm.load_embedding_to_tensor_from_file_prefix(t, *arguments)
    assert torch.equal(t[:11, :4], want.float()) and not t[11].any() and not t[:, 4:].any()
    c = wm.create_chunked_tensor([11, 4], [], torch.float32, [])
    wm.load_embedding_to_chunked_tensor_from_file_prefix(c, *arguments)
    assert torch.equal(torch.cat(c.chunks), want.float())
    for bad in ((11, 5, "rows"), (10, 4, "rows"), (11, 4, "nothing")):
        with pytest.raises(weft.InvalidError):
            wm.load_embedding_to_tensor_from_file_prefix(
                t, torch.float64, torch.float32, *bad[:2], f"{folder}/{bad[2]}"
            )
    wm.barrier([])


def sees_memory_from_two_devices():
    """torch cannot label a tensor for a GPU that it has not, but memory can be looked at."""
    weft.init()
    for place in ("cuda:0", "cpu"):
        made = weft.table((100, 4), torch.int32, place)
        windows = [made._handle.window(device=device) for device in (0, 1)]
        assert [window.__dlpack_device__() for window in windows] == [(2, 0), (2, 1)]
        words = [(ctypes.c_int32 * 400).from_address(address_of(window)) for window in windows]
        made.barrier()
        words[weft.rank()][17 + weft.rank()] = 5
        made.barrier()
        assert all(list(seen[17:19]) == [5, 5] for seen in words)
        with pytest.raises(weft.UnsupportedError, match="device 2"):
            made._handle.window(device=2)
        made.barrier()


def address_of(window):
    """What DLPack says: version, context, deleter and flags come before the pointer."""
    read = ctypes.pythonapi.PyCapsule_GetPointer
    read.restype, read.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    capsule = window.__dlpack__(max_version=(1, 0))
    return ctypes.c_void_p.from_address(read(capsule, b"dltensor_versioned") + 32).value


def test_memory_has_views_from_two_devices_of_the_double():
    library = ROOT / "build/tests/libcuda_double.so"
    if not library.exists():
        pytest.skip("the double of the CUDA driver is not built: run make")
    environment = {"WEFT_CUDA_DRIVER": str(library), "CUDA_DOUBLE": "2:0:4096"}
    ranks.run(2, sees_memory_from_two_devices, environment=environment)


def test_every_call_does_what_it_says(tmp_path):
    rows = torch.arange(44.0, dtype=torch.float64).reshape(11, 4)
    for part, (first, after) in enumerate(((0, 5), (5, 5), (5, 11))):
        piece = rows[first:after].numpy().tobytes()
        (tmp_path / f"rows_part_{part}_of_3").write_bytes(piece)
    ranks.run(3, uses_all_of_it, str(tmp_path))


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_waits_in_vain_is_told_what_to_set(rank, monkeypatch):
    monkeypatch.setattr(_meet, "DEADLINE", 0.3)
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    monkeypatch.setenv("WEFT_JOB", secrets.token_hex(8))
    with pytest.raises(weft.TimeoutError, match=r"WEFT_JOB.*MASTER_ADDR and MASTER_PORT"):
        wm.mp_init(rank, 2)


def test_one_process_needs_nobody_and_wrong_numbers_are_told():
    with pytest.raises(weft.InvalidError, match="rank"):
        wm.mp_init(2, 2)
    wm.mp_init(0, 1)
    try:
        assert wm.create_tensor([3, 2], [], torch.float32, True).sum() == 0
        assert wm.aggregate_size(4) == (4, 0)
        with pytest.raises(weft.InvalidError, match="already"):
            wm.mp_init(0, 2)
    finally:
        wm.finalize_lib()


def test_an_original_is_not_hidden(tmp_path, monkeypatch):
    file = str(ROOT / "compat" / "wholememory" / "__init__.py")
    _original.refuse_to_shadow("wholememory", file)
    (tmp_path / "wholememory").mkdir()
    (tmp_path / "wholememory" / "__init__.py").write_text("original = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match="original 'wholememory'"):
        _original.refuse_to_shadow("wholememory", file)


def test_the_old_names_can_be_installed(tmp_path):
    pytest.importorskip("pip")
    pytest.importorskip("scikit_build_core")
    source, site = tmp_path / "compat", tmp_path / "site"
    shutil.copytree(ROOT / "compat", source)
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation"]
    done = subprocess.run(
        [*install, "--no-index", "--target", site, source],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    code = "from wholememory.torch import wholememory_pytorch as wm; print(wm.create_tensor)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(site)},
        cwd=tmp_path / "site",
        capture_output=True,
        text=True,
        check=False,
    )
    assert "function create_tensor" in done.stdout, done.stderr
    assert (site / "mpi4torch" / "__init__.py").is_file()
