# SPDX-License-Identifier: Apache-2.0
"""Tensors in the arena: which are, what may be done with them, and that they give it back."""

import contextlib
import copy
import gc
import io
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import gpu
import groups
import pytest
import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
import torch.nn.functional as F
import weft
import weft.torch
from torch import nn
from weft.torch import is_shared

LARGE = 1 << 18  # elements of f32: a megabyte
SMALL_ARENA = {"WEFT_ARENA": "8M", "WEFT_LOG": "warn"}


@pytest.fixture(autouse=True)
def nothing_shared_at_first(monkeypatch):
    """These tests say themselves what is shared."""
    monkeypatch.delenv("WT_SHARE_ALL", raising=False)


def arena():
    return weft.torch.comm_of().world.arena


def which_are_shared():
    private = torch.empty(LARGE)
    with weft.torch.shared():
        large, small, none = torch.zeros(LARGE), torch.zeros(16), torch.zeros(0)
        with weft.torch.shared(minimum=4):
            assert is_shared(torch.zeros(1)) and not is_shared(torch.zeros(0))
        assert not is_shared(torch.zeros(1))
    assert is_shared(large) and is_shared(large[5:]) and large.sum() == 0
    assert not any(map(is_shared, (private, small, none, torch.empty(LARGE))))

    @weft.torch.shared()
    def made(depth):
        inner = made(depth - 1) if depth else []
        return [torch.empty(LARGE), *inner]

    assert all(map(is_shared, made(2))) and not is_shared(torch.empty(LARGE))
    with pytest.raises(ValueError), weft.torch.shared():
        raise ValueError
    assert not is_shared(torch.empty(LARGE))


def test_tensors_from_a_size_on_are_shared_in_a_part_of_the_program():
    groups.run(2, which_are_shared)


def on_another_thread(made):
    """What a new thread returns for it."""
    found = []
    thread = threading.Thread(target=lambda: found.append(made()))
    thread.start()
    thread.join()
    return found[0]


def threads():
    def make():
        return torch.ones(LARGE)

    with weft.torch.shared():
        assert not is_shared(on_another_thread(make))
    with weft.torch.share_all() as sharing:
        x = on_another_thread(make)
        assert is_shared(x) and is_shared(make())
        before = arena().in_use
        holder = [x]
        del x
        on_another_thread(holder.clear)
        assert arena().in_use < before
    assert not is_shared(make())
    sharing.stop()
    first = weft.torch.share_all()
    second = weft.torch.share_all(minimum=1 << 30)
    assert not is_shared(make())
    second.stop()
    assert is_shared(make())
    first.stop()
    assert not is_shared(make())
    first, second = weft.torch.share_all(), weft.torch.share_all()
    first.stop()
    assert is_shared(make())
    second.stop()
    assert not is_shared(make())


def test_a_part_is_that_of_a_thread_and_all_is_that_of_the_process():
    groups.run(1, threads)


def test_wrong_arguments_are_named():
    for wrong in ("64K", None, 1.5):
        with pytest.raises(TypeError, match="minimum"):
            weft.torch.shared(minimum=wrong)
        with pytest.raises(TypeError, match="minimum"):
            weft.shared_arrays(minimum=wrong)
    with pytest.raises(TypeError, match="tensor is str"):
        is_shared("x")
    with pytest.raises(weft.InvalidError, match="must not be negative"):
        weft.torch.share_all(minimum=-1)
    with pytest.raises(TypeError, match="group is str"):
        weft.torch.share_all(group="world")


def collectives(sharing_ranks, count):
    """Results of all operations, on tensors that some ranks share."""
    rank, size = dist.get_rank(), dist.get_world_size()
    share = rank in sharing_ranks and dist.get_backend() == "weft"
    found = []
    with weft.torch.shared(minimum=1) if share else contextlib.nullcontext():
        x = torch.arange(count * size, dtype=torch.float32) % 97 + rank
        whole, part = torch.zeros(count * size), torch.zeros(count)
        assert is_shared(x) == (share and count > 0)
    own = slice(count * rank, count * (rank + 1))
    at_root = rank == 0 and count > 0
    calls = [
        lambda: dist.all_reduce(x),
        lambda: dist.broadcast(x, src=size - 1),
        lambda: dist.all_to_all_single(whole, x),
        lambda: dist.all_gather_into_tensor(whole, x[own]),
        lambda: dist.reduce_scatter_tensor(part, x),
        lambda: dist.reduce(x, dst=0, op=dist.ReduceOp.MAX),
    ]
    if count > 0:
        calls += [
            lambda: dist.scatter(part, list(x.chunk(size)) if at_root else None),
            lambda: dist.gather(part, list(whole.chunk(size)) if at_root else None),
        ]
    for call in calls:
        whole.zero_(), part.zero_()
        call()
        kept = x if rank == 0 else torch.zeros(0)  # what others have after a reduce is open
        found += [kept.clone(), whole.clone(), part.clone()]
        dist.broadcast(x, src=0)
        x.add_(rank)
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    return [*found, x]


@pytest.mark.parametrize("count", [0, 1, 100003])
@pytest.mark.parametrize("sharing_ranks", [(0, 1, 2), (1,)])
def test_collectives_have_the_same_results_whoever_shares(sharing_ranks, count):
    groups.same_as_gloo(3, collectives, sharing_ranks, count)


def outliving():
    rank, size = dist.get_rank(), dist.get_world_size()
    store = c10d._get_default_store()
    sharing = weft.torch.share_all()
    kept = torch.full((LARGE,), 7.0)
    dist.all_reduce(kept)
    dist.destroy_process_group()
    private = torch.ones(LARGE)
    assert is_shared(kept) and not is_shared(private)
    assert (kept == 7 * size).all() and kept.add_(1)[0] == 7 * size + 1
    dist.init_process_group("weft", store=store, rank=rank, world_size=size)
    again = torch.ones(LARGE)
    assert is_shared(again) and is_shared(kept)
    for x in (kept, private, again):  # of the world before, of none, of this one
        dist.all_reduce(x)
    assert kept[0] == size * (7 * size + 1) and private[0] == again[0] == size
    del kept, private, again, x
    gc.collect()
    assert arena().blocks == 0, arena()
    sharing.stop()
    dist.destroy_process_group()
    assert "memfd:weft arena" not in pathlib.Path("/proc/self/maps").read_text()


def test_tensors_outlive_their_group_and_give_their_memory_back():
    groups.run(2, outliving)


def over():
    world = weft.torch.comm_of().world
    for kind in ("wait", "future", "never"):
        with weft.torch.shared():
            x = torch.ones(LARGE)
        work = dist.all_reduce(x, async_op=True)
        if kind == "future":
            work.get_future().wait()
        elif kind == "wait":
            work.wait()
        else:
            while not work.is_completed():
                pass
        assert world.arena.blocks == 1
        del work, x
        # Callbacks of futures run, and end, on a thread of their own.
        while kind == "future" and world.arena.blocks:
            pass
        assert world.arena.blocks == 0


def test_a_group_keeps_no_tensor_of_an_operation_that_is_over():
    groups.run(2, over)


def before_the_group(rank, file):
    torch.set_num_threads(1)  # OpenMP does not survive a fork
    weft.torch.share_all()
    early = torch.ones(LARGE)
    dist.init_process_group("weft", store=dist.FileStore(file, 2), rank=rank, world_size=2)
    late = torch.ones(LARGE)
    assert not is_shared(early) and is_shared(late)
    for x in (early, late):
        dist.all_reduce(x)
        assert x.sum() == 2 * LARGE
    early.resize_(2 * LARGE)  # where it lies when it grows is decided when it grows
    assert is_shared(early) and early[0] == 2
    dist.destroy_process_group()


def test_sharing_begins_with_the_first_group(tmp_path):
    import processes

    ended = processes.start(
        2, before_the_group, str(tmp_path / "store"), deadline=groups.DEADLINE, spread=False
    )
    processes.values(ended)


def other_worlds():
    first = weft.torch.comm_of().world
    second = weft.init("alone")
    with weft.torch.shared():
        x = torch.empty(LARGE)
        assert first.arena.blocks == 1 and second.arena.blocks == 0
    with weft.torch.shared(group=second):
        y = torch.empty(LARGE)
        assert (first.arena.blocks, second.arena.blocks) == (1, 1)
    with weft.torch.shared(group=dist.group.WORLD):
        z = torch.empty(LARGE)
        assert (first.arena.blocks, second.arena.blocks) == (2, 1)
    part = weft.torch.shared(group=second)
    weft.finalize()
    with part:
        assert not is_shared(torch.empty(LARGE))  # its world is gone
    with pytest.raises(weft.InvalidError, match="closed"):
        weft.torch.shared(group=second)
    assert is_shared(y) and y.fill_(3).sum() == 3 * LARGE
    del x, y, z
    assert first.arena.blocks == 0


def test_the_group_can_be_named():
    groups.run(1, other_worlds)


def usual_things():
    """What torch does with storages, on shared ones."""
    weft.torch.share_all()
    x = torch.arange(LARGE, dtype=torch.float32)
    for n in (2 * LARGE, 4 * LARGE + 3, LARGE, 0, LARGE):
        x.resize_(n)
    assert is_shared(x)
    x.copy_(torch.arange(LARGE))
    x.untyped_storage().resize_(0)
    x.untyped_storage().resize_(4 * LARGE)
    x.copy_(torch.arange(LARGE))
    for other in (x.clone(), copy.deepcopy(x), torch._lazy_clone(x), x.numpy().copy()):
        assert other[-1] == LARGE - 1
        other[-1] = 0
    assert x[-1] == LARGE - 1
    file = io.BytesIO()
    torch.save({"x": x, "view": x[2:]}, file)
    file.seek(0)
    loaded = torch.load(file)
    assert torch.equal(loaded["x"], x) and torch.equal(loaded["view"], x[2:])
    assert is_shared(loaded["x"])
    moved = torch.arange(LARGE).share_memory_()
    assert moved.is_shared() and not is_shared(moved) and moved[-1] == LARGE - 1
    view = x.numpy()
    view[0] = 5
    del x
    gc.collect()
    assert view[0] == 5 and view[1] == 1
    del view, other, loaded, moved
    y = torch.ones(LARGE // 512, 512, requires_grad=True)
    (y @ y.T).sum().backward()
    assert is_shared(y.grad)
    del y
    gc.collect()
    assert arena().blocks == 0, arena()
    with pytest.raises(RuntimeError, match="allocate"):
        torch.empty(1 << 58)
    with pytest.raises(RuntimeError):
        torch.empty(1 << 62, dtype=torch.float64)


def test_storages_are_resized_copied_saved_and_moved_as_others_are():
    groups.run(1, usual_things)


def full_arena():
    with weft.torch.shared():
        tensors = [torch.full((LARGE,), float(i)) for i in range(12)]
    assert 0 < sum(map(is_shared, tensors)) < 12
    for i, x in enumerate(tensors):
        dist.all_reduce(x)
        assert (x == i * dist.get_world_size()).all()
    del tensors, x
    with weft.torch.shared():
        assert is_shared(torch.empty(LARGE))


def test_what_finds_no_room_lies_in_ordinary_memory_and_that_is_told_once(capfd):
    groups.run(2, full_arena, environment=SMALL_ARENA)
    told = [line for line in capfd.readouterr().err.splitlines() if "ordinary memory" in line]
    assert len(told) == 2, told  # by each rank
    assert all("has no room for 1048576 bytes" in line for line in told)


def without_arena():
    with weft.torch.shared():
        x = torch.ones(LARGE)
    assert not is_shared(x)
    dist.all_reduce(x)
    assert x[0] == dist.get_world_size()
    assert arena().room == 0


def test_a_group_without_an_arena_works(capfd):
    groups.run(2, without_arena, environment={"WEFT_ARENA": "0"})
    assert "has no arena" in capfd.readouterr().err


def in_a_child(body):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            body()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def forks():
    weft.torch.share_all()
    x = torch.arange(LARGE)
    holder = [torch.ones(LARGE)]

    def child():
        assert x[-1] == LARGE - 1 and holder[0].sum() == LARGE
        x.fill_(-1)  # its own copy
        assert x.sum() == -LARGE
        fresh = torch.ones(LARGE)
        assert not is_shared(fresh)
        holder.clear()
        gc.collect()

    in_a_child(child)
    assert x[-1] == LARGE - 1 and holder[0].sum() == LARGE
    dist.all_reduce(holder[0])
    assert holder[0][0] == dist.get_world_size()
    before = arena()
    holder.clear()
    assert arena().blocks == before.blocks - 1


def test_a_forked_child_reads_and_what_it_writes_or_frees_is_its_own():
    groups.run(2, forks)


class Rows(torch.utils.data.Dataset):
    """Rows of a tensor, which a worker scribbles over when it has read them."""

    def __init__(self, table):
        self._table = table

    def __len__(self):
        return len(self._table)

    def __getitem__(self, i):
        row = self._table[i].clone()
        self._table[i] = -1
        return row


def loader(persistent):
    weft.torch.share_all(minimum=1)
    rank = dist.get_rank()
    table = torch.arange(256.0).repeat_interleave(1024).view(256, 1024) + rank
    assert is_shared(table)
    loader = torch.utils.data.DataLoader(
        Rows(table),
        16,
        num_workers=2,
        persistent_workers=persistent,
        multiprocessing_context="fork",
    )
    for _ in range(1 if persistent else 2):
        total = torch.zeros(1024)
        for batch in loader:
            noise = torch.randn(1 << 16)  # the parent goes on making and freeing
            dist.all_reduce(noise)
            total += batch.sum(0)
        assert (total == sum(range(256)) + 256 * rank).all()
    assert (table[:, 0] == torch.arange(256.0) + rank).all()
    del loader
    if persistent:  # workers that outlive the tensors of the parent
        keeping = torch.utils.data.DataLoader(
            Rows(table), 16, num_workers=1, persistent_workers=True, multiprocessing_context="fork"
        )
        batches = iter(keeping)
        first = next(batches)
        keeping.dataset._table = None
        del table
        gc.collect()
        filler = [torch.full((1024,), -7.0) for _ in range(512)]
        dist.all_reduce(filler[0])
        rest = torch.cat([first, *batches])
        assert (rest[:, 0] == torch.arange(256.0) + rank).all()
        assert filler[1][0] == -7


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_of_a_dataloader_read_shared_tensors(persistent):
    groups.run(2, loader, persistent)


class Untouched(Rows):
    """Rows of a tensor, which a worker only reads."""

    def __getitem__(self, i):
        return self._table[i].clone()


def loader_of_other_processes(method):
    weft.torch.share_all(minimum=1)
    rank = dist.get_rank()
    table = torch.arange(64.0).repeat_interleave(1024).view(64, 1024) + rank
    assert is_shared(table)
    batches = torch.utils.data.DataLoader(
        Untouched(table), 16, num_workers=1, multiprocessing_context=method
    )
    total = torch.zeros(1024)
    for batch in batches:
        dist.all_reduce(torch.randn(1 << 16))
        total += batch.sum(0)
    assert (total == sum(range(64)) + 64 * rank).all()
    assert (table[:, 0] == torch.arange(64.0) + rank).all()
    dist.all_reduce(table)
    assert table[1, 0] == 1 + 2
    assert is_shared(torch.ones(LARGE))


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_that_are_not_forked_read_copies(method):
    groups.run(2, loader_of_other_processes, method)


def events():
    weft.torch.share_all()
    torch.ones(LARGE)
    with torch.profiler.profile(profile_memory=True) as profile:
        x = torch.empty(LARGE)
        assert is_shared(x)
        del x
    sizes = [event.cpu_memory_usage for event in profile.events() if event.name == "aten::empty"]
    assert 4 * LARGE in sizes, sizes
    freed = [event.cpu_memory_usage for event in profile.events() if event.name == "[memory]"]
    assert -4 * LARGE in freed, freed


def test_the_memory_profiler_sees_shared_tensors():
    groups.run(1, events)


def local(x):
    """This rank's part of a parameter of FSDP2, or a parameter."""
    return getattr(x, "to_local", lambda: x)()


def keep_bucket(seen, bucket):
    """What DDP does with a bucket, seen."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    seen.append(is_shared(bucket.buffer()))
    return allreduce_hook(None, bucket)


def steps(kind):
    """Parameters after some steps of DDP or FSDP2, in which all that moves is in the arena."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    if dist.get_backend() == "weft":
        weft.torch.share_all(minimum=1 << 10)
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(64, 500), nn.ReLU(), nn.Linear(500, 10))
    linear = model[0]
    moved, kept = [], []
    if kind == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
        model.register_comm_hook(moved, keep_bucket)
    else:
        for layer in (model[0], model[2], model):
            fully_shard(layer, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
        # In a forward pass a unit has the whole of its parameters.
        linear.register_forward_pre_hook(lambda unit, _: moved.append(is_shared(unit.weight)))
    adjust = torch.optim.AdamW(model.parameters())
    source = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(4):
        adjust.zero_grad()
        x = torch.randn(32, 64, generator=source)
        F.cross_entropy(model(x), torch.arange(32) % 10).backward()
        kept += [is_shared(local(linear.weight)), is_shared(local(linear.weight.grad))]
        adjust.step()
    ours = dist.get_backend() == "weft"
    assert len(moved) >= 4 and set(moved) == {ours}, moved
    assert set(kept) == {ours}, kept
    whole = [getattr(p, "full_tensor", lambda p=p: p)() for p in model.parameters()]
    return [p.detach().clone() for p in whole]


@pytest.mark.parametrize("kind", ["ddp", "fsdp2"])
def test_training_is_the_same_and_what_it_moves_is_shared(kind):
    groups.same_as_gloo(2, steps, kind, exact=False)


def dying():
    weft.torch.share_all()
    x, y = torch.ones(LARGE), torch.ones(LARGE)
    dist.all_reduce(x)
    groups.meet("all have shared")
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(RuntimeError, match="rank 1"):
        while True:
            dist.all_to_all_single(y, x)
    assert (x == 2).all() and is_shared(x)
    dist.destroy_process_group()
    del x, y
    gc.collect()
    return "memfd:weft arena" in pathlib.Path("/proc/self/maps").read_text()


def test_tensors_stay_good_when_a_rank_is_killed_and_leave_nothing():
    ended = groups.start(2, dying)
    assert ended[0].error is None and ended[0].value is False
    assert ended[1].error == f"ended with -{signal.SIGKILL.value}"


def arena_file():
    """The file of the node's arena, as /proc/PID/maps names it."""
    lines = pathlib.Path("/proc/self/maps").read_text().splitlines()
    device, inode = next(line.split()[3:5] for line in lines if "memfd:weft arena" in line)
    return device, inode


def killed_with_a_worker(folder):
    """Both ranks are killed while a forked worker of each has its dataset in the arena."""
    weft.torch.share_all()
    large = torch.ones(DYING_BYTES // 4)
    # Workers ask that often whether their parent lives.
    torch.utils.data._utils.worker.MP_STATUS_CHECK_INTERVAL = 0.2
    keeping = torch.utils.data.DataLoader(
        Rows(large.view(-1, 1 << 16)),
        num_workers=1,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    batches = iter(keeping)
    assert next(batches).sum() == 1 << 16
    (worker,) = batches._workers
    said = (str(worker.pid), *arena_file())
    holders = those_with_the_file(*arena_file())
    assert {str(os.getpid()), str(worker.pid)} <= set(holders), holders
    (pathlib.Path(folder) / str(dist.get_rank())).write_text(" ".join(said))
    groups.meet("all have a worker")
    os.kill(os.getpid(), signal.SIGKILL)


def opened_by(process):
    """Device and inode of what it has open."""
    for fd in os.listdir(process / "fd"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            file = (process / "fd" / fd).stat()
            yield file.st_dev, file.st_ino


def those_with_the_file(device, inode):
    """Processes that map a file or have it open."""
    of_file = os.makedev(*(int(part, 16) for part in device.split(":"))), int(inode)
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        # Those that end meanwhile, and those of others.
        with contextlib.suppress(OSError):
            lines = (process / "maps").read_text().splitlines()
            maps = [device, inode] in (line.split()[3:5] for line in lines)
            if maps or of_file in opened_by(process):
                found.append(process.name)
    return found


def shared_memory():
    """What all processes of the machine have of it, in bytes."""
    lines = pathlib.Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Shmem:"))


def awaited(holds, seconds=60):
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.1)
    return holds()


DYING_BYTES = 256 << 20


def test_ranks_that_are_killed_leave_nothing_although_their_workers_live_on(tmp_path):
    """Other programs may take and give back shared memory meanwhile, but hardly so much."""
    before = shared_memory()
    ended = groups.start(2, killed_with_a_worker, str(tmp_path))
    assert [rank.error for rank in ended] == [f"ended with -{signal.SIGKILL.value}"] * 2
    said = [path.read_text().split() for path in tmp_path.iterdir()]
    (_, device, inode), _ = said
    workers = [worker for worker, *_ in said]
    assert [device, inode] == said[1][1:]
    assert awaited(lambda: not any(pathlib.Path("/proc", pid).exists() for pid in workers))
    assert those_with_the_file(device, inode) == []
    assert awaited(lambda: shared_memory() < before + DYING_BYTES)


ENDINGS = """
import threading, torch, torch.distributed as dist, weft, weft.torch
weft.torch.share_all(minimum=1)
dist.init_process_group("weft", store=dist.HashStore(), rank=0, world_size=1)
kept = torch.ones(1 << 18, requires_grad=True)
(kept * 2).sum().backward()
class Cycle: pass
ring = Cycle(); ring.it, ring.x = ring, torch.ones(1 << 18)
torch.hold_at_exit = torch.ones(1 << 18)
local = threading.local(); local.x = torch.ones(1 << 18)
threading.Thread(target=lambda: setattr(local, "y", torch.ones(1 << 18))).start()
assert weft.torch.is_shared(kept)
DESTROY
"""


@pytest.mark.parametrize("destroy", ["", "dist.destroy_process_group()"])
def test_a_program_can_end_with_shared_tensors(destroy):
    program = ENDINGS.replace("DESTROY", destroy)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def many_threads(times):
    """Tensors that some threads make and others free, in any order, must all come back."""
    weft.torch.share_all(minimum=1)
    before = arena()
    pool = [None] * 64
    lock = threading.Lock()
    wrong = []

    def work(seed):
        source = torch.Generator().manual_seed(seed)
        for step in range(times):
            n = int(torch.randint(1, 1 << 16, (), generator=source))
            x = torch.full((n,), float(seed))
            with lock:
                at = (seed * 31 + step * 7) % len(pool)
                pool[at], x = x, pool[at]
            if x is not None and not (x == x[0]).all():
                wrong.append(step)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in workers:
        thread.start()
    for thread in workers:
        thread.join()
    pool.clear()
    gc.collect()
    assert wrong == []
    after = arena()
    assert after.in_use - before.in_use <= before.in_use // 100 + (64 << 10), (before, after)


def test_memory_returns_after_tensors_of_many_threads():
    groups.run(1, many_threads, 200 if "WT_FULL" not in os.environ else 5000)


@gpu.needed()
def test_shared_tensors_can_be_pinned():
    groups.run(1, pinned, context=groups.SPAWN)


def pinned():
    weft.torch.share_all()
    x = torch.ones(LARGE)
    y = x.pin_memory()
    assert is_shared(x) and y.is_pinned() and not is_shared(y)
    assert torch.equal(x.cuda().cpu(), y)
