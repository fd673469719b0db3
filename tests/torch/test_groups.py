# SPDX-License-Identifier: Apache-2.0
"""Process groups: making, splitting and ending them, and what weft.torch adds."""

import copy
import datetime
import importlib.metadata
import io
import os
import pathlib
import shutil
import subprocess
import sys
import time

import groups
import pytest
import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
import weft
import weft.torch
from weft.torch import build

SECOND = datetime.timedelta(seconds=1)


def subgroups():
    rank = dist.get_rank()
    pair = dist.new_group([0, 2])
    others = dist.new_group([1], use_local_synchronization=True) if rank == 1 else None
    x = torch.ones(3)
    if rank != 1:
        dist.all_reduce(x, group=pair)
        assert x.tolist() == [2, 2, 2]
        dist.broadcast(x, src=2, group=pair)
    else:
        dist.all_reduce(x, group=others)
    again = [dist.new_group() for _ in range(3)]
    for group in again:
        dist.barrier(group)
    dist.destroy_process_group(again[0])
    dist.barrier(again[1])


def test_groups_of_some_ranks():
    groups.run(3, subgroups)


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def over_and_over(times):
    rank, size = dist.get_rank(), dist.get_world_size()
    store = c10d._get_default_store()
    dist.destroy_process_group()
    counts = []
    for _ in range(times):
        dist.init_process_group("weft", store=store, rank=rank, world_size=size)
        x = torch.ones(1000)
        dist.all_reduce(x)
        assert x[0] == size
        dist.all_reduce(x, async_op=True).wait()
        dist.destroy_process_group()
        counts.append(descriptors())
    assert counts[-1] <= counts[5], counts
    del x  # it may lie in the arena
    maps = pathlib.Path("/proc/self/maps").read_text()
    assert "memfd:" not in maps


def test_a_hundred_groups_in_one_process_leave_nothing():
    groups.run(2, over_and_over, 100)


def communicators():
    rank, size = dist.get_rank(), dist.get_world_size()
    comm = weft.torch.comm_of()
    assert (comm.rank, comm.size) == (rank, size)
    x = torch.ones(4)
    comm.allreduce(x)
    dist.all_reduce(x)
    assert x.tolist() == [size * size] * 4
    with pytest.raises(weft.InvalidError, match="process group"):
        comm.world.close()
    half = comm.split(rank % 2)
    group = weft.torch.as_group(half)
    assert (group.rank(), group.size()) == (half.rank, half.size)
    y = torch.ones(2)
    group.allreduce([y]).wait()
    assert y.tolist() == [half.size] * 2
    with pytest.raises(weft.InvalidError, match="process group"):
        half.close()
    group.shutdown()
    half.close()
    text = io.StringIO()
    weft.torch.dump(file=text)
    assert f"rank {rank}" in text.getvalue()
    dist.barrier()


def test_a_communicator_is_a_group_and_a_group_is_a_communicator():
    groups.run(4, communicators)


def splits():
    rank = dist.get_rank()
    backend = weft.torch.backend_of()
    assert backend.supports_splitting
    part = dist.group.WORLD.split_group(
        [0, 2], opts=backend.options, group_name="part", group_desc="two of three"
    )
    if rank == 1:
        assert part is None
        return
    assert (part.rank(), part.size()) == ([0, None, 1][rank], 2)
    x = torch.full((3,), float(rank))
    part.allreduce([x]).wait()
    assert x.tolist() == [2] * 3
    part.shutdown()


def test_split():
    groups.run(3, splits)


def options():
    rank, size = dist.get_rank(), dist.get_world_size()
    chosen = weft.torch.Options(timeout=170 * SECOND, engine="message", spin="1us")
    group = dist.new_group(pg_options=chosen)
    assert weft.torch.comm_of(group).timeout == 170
    weft.torch.set_timeout(90 * SECOND, group)
    assert weft.torch.comm_of(group).timeout == 90
    x = torch.full((1000,), float(rank))
    dist.all_reduce(x, group=group)
    assert x[0] == size * (size - 1) / 2
    for wrong in ({"engine": "magic"}, {"algorithm": "allreduce=magic"}, {"rank": 3}):
        with pytest.raises(weft.InvalidError, match=next(iter(wrong)).upper()):
            dist.new_group(pg_options=weft.torch.Options(**wrong))
    with pytest.raises(TypeError, match="Options"):
        dist.new_group(pg_options=3)


def test_options():
    groups.run(2, options)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"timeout": 3}, TypeError),
        ({"timeout": 0 * SECOND}, weft.InvalidError),
        ({"timeout": -SECOND}, weft.InvalidError),
        ({"transport": "shm"}, weft.InvalidError),
        ({"engines": "shm"}, weft.InvalidError),
        ({"spin": "1us ENGINE=message"}, weft.InvalidError),
        ({"spin": ""}, weft.InvalidError),
    ],
    ids=str,
)
def test_a_wrong_option_is_named_before_ranks_meet(wrong, error):
    with pytest.raises(error, match=next(iter(wrong))):
        weft.torch.Options(**wrong)


def test_an_unknown_option_is_answered_with_those_that_exist():
    with pytest.raises(weft.InvalidError, match=r"engines is not.*engine, algorithm"):
        weft.torch.Options(engines="shm")


def several_groups():
    chosen = weft.torch.Options()
    first = dist.new_group(pg_options=chosen, timeout=50 * SECOND)
    second = dist.new_group(pg_options=chosen, timeout=70 * SECOND)
    weft.torch.set_timeout(30 * SECOND, first)
    own = copy.deepcopy(weft.torch.Options(timeout=170 * SECOND, engine="message"))
    third = dist.new_group(pg_options=own, timeout=90 * SECOND)
    for group, seconds in ((first, 30), (second, 70), (third, 170)):
        assert weft.torch.comm_of(group).timeout == seconds
        assert weft.torch.backend_of(group).options._timeout == seconds * SECOND
    parent = weft.torch.backend_of(third)
    part = dist.group.WORLD.split_group([0, 1], opts=parent.options, group_name="part")
    weft.torch.backend_of(part).set_timeout(SECOND)
    assert parent.options._timeout == 170 * SECOND
    part.shutdown()
    dist.barrier(dist.new_group(timeout=datetime.timedelta(days=400)))
    with pytest.raises(weft.InvalidError, match="timeout"):
        dist.new_group(timeout=0 * SECOND)


def test_groups_that_were_made_with_the_same_options_are_apart():
    groups.run(2, several_groups)


def let_time_out(group, time, peer):
    """Wait for nothing on `group`: what `time` is enough for elsewhere is over then, too."""
    weft.torch.set_timeout(time, group)
    with pytest.raises(RuntimeError, match="Timed out"):
        dist.recv(torch.zeros(1), peer, group=group)


def standing_receive():
    """Posted long before its message comes, which nobody waits for yet."""
    x = torch.zeros(1)
    other = dist.new_group()
    if dist.get_rank() == 0:
        work = dist.irecv(x, 1)
        weft.torch.set_timeout(SECOND / 5)
        let_time_out(other, SECOND / 2, 1)
        weft.torch.set_timeout(60 * SECOND)
        dist.send(torch.ones(1), 1, tag=1)
        work.wait()
        assert x.item() == 1
        work = dist.irecv(x, 1)
        weft.torch.set_timeout(SECOND / 5)
        with pytest.raises(RuntimeError, match="Timed out"):
            work.wait()
    else:
        dist.recv(x, 0, tag=1)
        dist.send(x, 0)
        with pytest.raises(RuntimeError, match="Timed out"):
            dist.recv(x, 0, tag=2)


def test_the_time_of_a_receive_counts_while_somebody_waits_for_it():
    groups.run(2, standing_receive)


def nobody_sends():
    group = dist.new_group()
    work = dist.irecv(torch.zeros(3), 1 - dist.get_rank(), group=group)
    start = time.monotonic()
    dist.destroy_process_group(group)
    assert time.monotonic() - start < 9  # it waits 10 s for other operations
    with pytest.raises(RuntimeError):
        work.wait()


def test_the_end_of_a_group_waits_for_no_receive():
    groups.run(2, nobody_sends)


def by_device():
    rank, size = dist.get_rank(), dist.get_world_size()
    store = c10d._get_default_store()
    dist.destroy_process_group()
    dist.init_process_group("cpu:weft", store=store, rank=rank, world_size=size)
    x = torch.ones(3)
    dist.all_reduce(x)
    assert x.tolist() == [size] * 3
    assert weft.torch.comm_of().size == size
    dist.destroy_process_group()
    dist.init_process_group("cpu:gloo", store=store, rank=rank, world_size=size)
    with pytest.raises(weft.InvalidError, match="no weft backend"):
        weft.torch.comm_of()
    groups.meet("gloo has connected all ranks")


def test_weft_for_one_kind_of_device():
    groups.run(2, by_device)


def watched_barrier():
    rank = dist.get_rank()
    weft.torch.monitored_barrier()
    weft.torch.monitored_barrier(wait_all_ranks=True)
    if rank == 0:
        with pytest.raises(RuntimeError, match="Ranks 1, 2 failed to pass monitoredBarrier"):
            weft.torch.monitored_barrier(timeout=SECOND, wait_all_ranks=True)
    dist.barrier()
    # What it waited for in vain does not fail the group when its time is over.
    group, other = dist.new_group(), dist.new_group()
    if rank == 0:
        weft.torch.set_timeout(SECOND, group)
        with pytest.raises(RuntimeError, match="Rank 1 failed to pass monitoredBarrier"):
            weft.torch.monitored_barrier(group, timeout=SECOND / 10)
        let_time_out(other, SECOND * 1.2, 1)
        weft.torch.set_timeout(60 * SECOND, group)
    dist.barrier()
    dist.barrier(group)


def test_monitored_barrier_names_who_is_missing():
    groups.run(3, watched_barrier)


def numbers():
    backend = weft.torch.backend_of()
    start = backend._get_sequence_number_for_group()
    dist.barrier()
    work = dist.all_reduce(torch.ones(1), async_op=True)
    work.wait()
    assert backend._get_sequence_number_for_group() == start + 2


def test_sequence_numbers_count_calls():
    groups.run(2, numbers)


def shared_memory():
    backend = weft.torch.backend_of()
    x = backend.allocate_tensor(1000, dtype=torch.float32, device=torch.device("cpu"))
    x.fill_(1)
    dist.all_reduce(x)
    assert x.eq(dist.get_world_size()).all()
    y = backend.allocate_tensor(0, dtype=torch.float32, device=torch.device("cpu"))
    assert y.numel() == 0
    del backend
    dist.destroy_process_group()
    # The tensor outlives its group.
    assert x.sum() > 0
    del x


def test_memory_of_the_group():
    groups.run(2, shared_memory)


def late():
    rank = dist.get_rank()
    by_call = groups.TORCH > (2, 11)  # which has no timeout for one barrier
    group = dist.new_group()
    limit = {"timeout": SECOND} if by_call else {}
    if rank == 0:
        if not by_call:
            weft.torch.set_timeout(SECOND, group)
        start = time.monotonic()
        with pytest.raises(RuntimeError, match=r" Timed out .*rank 1"):
            dist.barrier(group, **limit)
        assert time.monotonic() - start > 0.9
        with pytest.raises(RuntimeError):
            dist.barrier(group)
        work = weft.torch.backend_of(group)
        assert work is not None
    dist.barrier()


def test_a_late_rank_is_named():
    groups.run(2, late)


def wait_with_timeout():
    rank = dist.get_rank()
    x = torch.ones(3)
    if rank == 0:
        work = dist.all_reduce(x, async_op=True)
        with pytest.raises(RuntimeError, match="Timed out"):
            work.wait(SECOND / 5)
        dist.send(torch.ones(1), 1)
        work.wait()
        assert x.tolist() == [2] * 3
    else:
        dist.recv(torch.zeros(1), 0)
        dist.all_reduce(x)


def test_a_wait_that_times_out_leaves_the_operation_alone():
    groups.run(2, wait_with_timeout)


def after_the_end():
    group = dist.group.WORLD
    backend = weft.torch.backend_of()
    dist.destroy_process_group()
    with pytest.raises(RuntimeError, match="destroyed"):
        group.allreduce([torch.ones(1)])
    with pytest.raises(RuntimeError, match="destroyed"):
        _ = backend.group_comm


def test_a_destroyed_group_says_so():
    groups.run(2, after_the_end)


def test_without_a_shim_the_command_to_build_one_is_named(tmp_path):
    code = (
        "import weft.torch.build as b, pathlib\n"
        f"b.folders = lambda: [pathlib.Path({str(tmp_path)!r})]\n"
        "import weft.torch, torch.distributed as d\n"
        "d.init_process_group('weft', store=d.HashStore(), rank=0, world_size=1)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode != 0
    assert "ShimMissingError" in result.stderr
    assert "-m weft.torch.build" in result.stderr


def test_the_shim_is_among_the_files_that_pip_uninstall_removes():
    """Also when the package was installed again after it was built."""
    shim = build.find()
    if shim.parent != pathlib.Path(build.__file__).parent:
        pytest.skip("the shim is in the user's cache")
    listed = [pathlib.Path(file.locate()) for file in importlib.metadata.files("weft")]
    if pathlib.Path(build.__file__) not in listed:
        pytest.skip("this package was not installed by pip")
    assert listed.count(shim) == 1
    assert {*listed} >= {*shim.parent.glob("_shim_*.so")}


def test_only_the_list_of_this_installation_is_changed(tmp_path, monkeypatch):
    shim = tmp_path / "weft" / "torch" / "_shim_2_b.so"
    shim.parent.mkdir(parents=True)
    shim.touch()
    record = tmp_path / "weft-1.dist-info" / "RECORD"
    monkeypatch.setattr(build, "PACKAGE", tmp_path / "weft")
    build._record(shim)  # there is none
    record.parent.mkdir()
    record.write_text("weft_editable.pth,,\n")
    build._record(shim)
    assert record.read_text() == "weft_editable.pth,,\n"
    record.write_text("weft/torch/build.py,x,1\nweft/torch/_shim_2_a.so,,\nweft/nn.py,,\n")
    build._record(shim)
    build._record(shim)
    lines = ["weft/torch/build.py,x,1", "weft/nn.py,,", "weft/torch/_shim_2_b.so,,"]
    assert record.read_text().splitlines() == lines
    build._record(pathlib.Path("/cache/weft/_shim_2_c.so"))
    assert record.read_text().splitlines() == lines


def test_a_compiler_that_is_not_there_is_named():
    result = subprocess.run(
        [sys.executable, "-m", "weft.torch.build", "--force"],
        env={**os.environ, "CXX": "/no/such compiler"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    assert "the compiler '/no/such compiler' cannot be started" in result.stderr
    assert "Traceback" not in result.stderr


def read(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(not shutil.which("g++"), reason="no g++")
def test_the_shim_runs_on_the_library_of_torch(tmp_path):
    """Also where the compiler would rather have its own: two in one process crash."""
    source, output = tmp_path / "f.cpp", tmp_path / "f.so"
    source.write_text(
        "#include <sstream>\nauto f(int i) { std::ostringstream s; s << i; return s.str(); }\n"
    )
    # torch's module for it wants to be imported before others are.
    ask = "from weft.torch import build; print(*build._libraries(), sep='\\n')"
    libraries = read(sys.executable, "-c", ask).splitlines()
    read("g++", "-static-libstdc++", "-shared", "-fPIC", source, *libraries, "-o", output)
    assert "[libstdc++.so.6]" in read("readelf", "-d", output)
    assert "std::ostream::" not in read("nm", "-DC", "--defined-only", output)


def test_a_build_is_good_for_one_torch_one_python_and_one_source():
    name = build.identity()
    version = torch.__version__.replace(".", "_").replace("+", "_")
    assert version in name
    assert f"cpython_{sys.version_info.major}{sys.version_info.minor}" in name
    assert build.find().name == name + ".so"
