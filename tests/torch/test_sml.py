# SPDX-License-Identifier: Apache-2.0
"""The backend "sml": torch.distributed through a real weft-switch; SwitchML's plugin's names."""

import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

import groups
import pytest
import switches
import torch
import torch.distributed as dist
import weft
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from weft._switch import PROGRAM
from weft.compat import torch_switchml

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOSS = ("--inject", "loss=0.01,seed=5")

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="weft-switch is not in the package")


# --- operations -----------------------------------------------------------------------------------


def many_operations(page=None):
    rank, size = dist.get_rank(), dist.get_world_size()
    results = []
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32):
        for n in (1, 1000, 70001):
            x = (torch.arange(n) % 100 + rank).to(dtype)
            dist.all_reduce(x)
            results.append(x)
    for op in (dist.ReduceOp.MAX, dist.ReduceOp.MIN, dist.ReduceOp.PRODUCT):
        x = torch.arange(1, 300).float() * (1 + rank)
        dist.all_reduce(x, op)
        results.append(x)
    tensors = [torch.full((999,), float(rank + i)) for i in range(5)]
    for work in [dist.all_reduce(x, async_op=True) for x in tensors]:
        work.wait()
    special = torch.tensor([float("nan"), float("inf"), 1.0, -float("inf")])
    dist.all_reduce(special)
    gathered = [torch.empty(7) for _ in range(size)]
    dist.all_gather(gathered, torch.full((7,), float(rank)))
    whole = torch.arange(8.0) * rank
    dist.broadcast(whole, 1)
    group = dist.new_group([0, 1])
    if rank < 2:
        pair = torch.ones(5)
        dist.all_reduce(pair, group=group)
        results.append(pair)
    if page is not None:
        assert dist.get_backend() == "sml"
        assert rank != 0 or switches.chunks_at(page) > 500
    dist.barrier()
    return [*results, *tensors, special, *gathered, whole]


@pytest.mark.parametrize("switch", [(), LOSS], ids=["no loss", "1 % loss"], indirect=True)
def test_operations_give_what_gloo_gives(switch):
    place = {"backend": "sml", "environment": switch.environment()}
    ours = groups.run(3, many_operations, switch.page, **place)
    theirs = groups.run(3, many_operations, backend="gloo")
    for mine, peer in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, peer, equal_nan=True)


def options_body(places, key):
    options = weft.torch.Options(switch=places, switch_key=key, engine="switch")
    group = dist.new_group(backend="weft", pg_options=options)
    x = torch.ones(1000)
    dist.all_reduce(x, group=group)
    return x


def test_a_switch_can_be_an_option_of_a_group(switch):
    for x in groups.run(2, options_body, f"127.0.0.1:{switch.port}", switch.key):
        assert x.eq(2).all()


def two_body(pages):
    x = torch.ones(10_000)
    dist.all_reduce(x)
    dist.barrier()
    assert dist.get_rank() != 0 or min(map(switches.chunks_at, pages)) > 10
    dist.barrier()
    return x


def test_a_group_can_have_several_switches(switch):
    second = switches.Switch(switch.key)
    try:
        places = f"127.0.0.1:{switch.port},127.0.0.1:{second.port}"
        for x in groups.run(2, options_body, places, switch.key):
            assert x.eq(2).all()
        environment = {**switch.environment(), "WEFT_SWITCH": places}
        pages = [switch.page, second.page]
        for x in groups.run(3, two_body, pages, backend="sml", environment=environment):
            assert x.eq(3).all()
    finally:
        second.kill()


# --- training -------------------------------------------------------------------------------------


def batch(step):
    generator = torch.Generator().manual_seed(100 * step + dist.get_rank())
    x = torch.randn(16, 20, generator=generator)
    return x, (x[:, :3] * 2 + x[:, 3:6].sin())


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 3))


def trained(model, steps, at_step=lambda step: None):
    """The loss at the end, averaged over the ranks."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(steps):
        at_step(step)
        x, y = batch(step)
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    return mean / dist.get_world_size()


def train_ddp(steps):
    return trained(DistributedDataParallel(network()), steps)


def train_fsdp2(steps):
    model = network()
    for layer in (model[0], model[2]):
        fully_shard(layer)
    fully_shard(model)
    return trained(model, steps)


@pytest.mark.parametrize("switch", [LOSS], ids=["1 % loss"], indirect=True)
@pytest.mark.parametrize("body", [train_ddp, train_fsdp2], ids=lambda f: f.__name__)
def test_training_ends_with_the_loss_of_gloo(switch, body):
    ours = groups.run(2, body, 200, backend="sml", environment=switch.environment())
    theirs = groups.run(2, body, 200, backend="gloo")
    assert ours[0] == ours[1]
    assert abs(ours[0] - theirs[0]) <= 1e-3 * theirs[0]


def train_with_death(key, pid, port):
    """Rank 0 kills the switch at step 20, and starts it again at step 60."""
    own = []

    def at_step(step):
        if dist.get_rank() == 0 and step == 20:
            os.kill(pid, signal.SIGKILL)
        if dist.get_rank() == 0 and step == 60:
            own.append(switches.Switch(key, port))
        if step > 60:
            time.sleep(0.01)

    loss = trained(DistributedDataParallel(network()), 300, at_step)
    for one in own:
        chunks = switches.chunks_at(one.page)
        one.kill()
        assert chunks > 0, "no call went through the switch that came back"
    return loss


def test_training_goes_on_when_the_switch_dies_and_comes_back(switch):
    environment = {**switch.environment(), "WEFT_LOG": "error"}
    place = (switch.key, switch.process.pid, switch.port)
    ours = groups.run(2, train_with_death, *place, backend="sml", environment=environment)
    theirs = groups.run(2, train_ddp, 300, backend="gloo")
    assert ours[0] == ours[1]
    assert abs(ours[0] - theirs[0]) <= 1e-3 * theirs[0]


# --- what is missing ------------------------------------------------------------------------------


def nothing():
    return None


def test_sml_without_a_switch_says_what_it_needs(monkeypatch):
    monkeypatch.setattr("weft.torch._sml.configured", None)
    ends = groups.start(1, nothing, backend="sml")
    assert "needs a switch: pg_options=weft.torch.Options(switch=" in str(ends)


def test_a_switch_without_a_key_says_so():
    ends = groups.start(1, nothing, backend="sml", environment={"WEFT_SWITCH": "127.0.0.1:5"})
    assert "WEFT_SWITCH needs WEFT_SWITCH_KEY" in str(ends)


# --- SwitchML's names -----------------------------------------------------------------------------


def config(folder, text, name="switchml.cfg"):
    file = folder / name
    file.write_text(text)
    return file


def test_a_configuration_is_read(tmp_path):
    file = config(
        tmp_path,
        """
        # SwitchML configuration file
        [general]
        rank = 1
        num_workers = 4     # of the job
        max_outstanding_packets = 256
        packet_numel = 256
        scheduler = fifo
        controller_ip = 10.0.0.9
        controller_port = 50099
        """,
    )
    found = torch_switchml.read_config(file)
    assert found[1:] == (1, 4, 256, 256, "10.0.0.9", 50099)


def test_several_controllers_are_several_switches(tmp_path, monkeypatch):
    config(tmp_path, "[general]\ncontroller_ip = 10.0.0.9, fe80::1\ncontroller_port = 5000\n")
    monkeypatch.chdir(tmp_path)
    assert torch_switchml.settings(0, 2)["switch"] == "10.0.0.9:5000,[fe80::1]:5000"


def test_keys_without_a_meaning_are_warned_about_and_unknown_ones_refused(tmp_path):
    file = config(tmp_path, "[general]\nbackend = dpdk\n[backend.dpdk]\ncores = 10-13\n")
    with pytest.warns(UserWarning) as told:
        torch_switchml.read_config(file)
    assert "backend.dpdk.cores is ignored: there is no DPDK" in str(told[0].message)
    assert "general.backend is ignored: packets are UDP" in str(told[1].message)
    for text, says in {
        "[general]\nrankk = 1": "unknown key general.rankk",
        "rank = 1": "unknown key rank",
        "[general]\nrank = -1": "general.rank is '-1'; it must be from 0 to 255",
        "[general]\nrank": "line 2: 'rank' is neither",
        "[general]\npacket_numel = 1": "general.packet_numel is '1'",
    }.items():
        with pytest.raises(weft.InvalidError, match=re.escape(says)):
            torch_switchml.read_config(config(tmp_path, text))


def test_the_first_file_counts_and_none_is_an_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(weft.InvalidError, match=r"none of /etc/switchml\.cfg, switchml\.cfg, "):
        torch_switchml.find_config()
    own = config(tmp_path, "", f"switchml-{socket.gethostname()}.cfg")
    assert torch_switchml.find_config().name == own.name
    config(tmp_path, "")
    assert torch_switchml.find_config().name == "switchml.cfg"


def test_a_rank_that_disagrees_with_torch_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config(tmp_path, "[general]\nrank = 3\nnum_workers = 2\n")
    with pytest.raises(weft.InvalidError, match=r"general\.rank is 3, but torch says 1"):
        torch_switchml.settings(1, 2)
    config(tmp_path, "[general]\nnum_workers = 3\n")
    with pytest.raises(weft.InvalidError, match=r"general\.num_workers is 3, but torch says 2"):
        torch_switchml.settings(1, 2)


PROGRAM_OF_THE_DOCUMENT = """
import sys, torch, torch.distributed as dist
import torch_switchml
rank = int(sys.argv[1])
dist.init_process_group(backend="sml", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
x = torch.full((1000,), rank + 1.0)
dist.all_reduce(x)
assert x.eq(3).all()
dist.barrier()
dist.destroy_process_group()
"""


def test_the_program_of_the_document_runs(switch, tmp_path):
    config(
        tmp_path,
        f"[general]\ncontroller_ip = 127.0.0.1\ncontroller_port = {switch.port}\n"
        "packet_numel = 256\n",
    )
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "compat"), *filter(None, sys.path)]),
        "WEFT_SWITCH_KEY": switch.key,
    }
    command = [sys.executable, "-P", "-c", PROGRAM_OF_THE_DOCUMENT]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "store")],
            cwd=tmp_path,
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for rank in ranks:
        _, err = rank.communicate(timeout=120)
        assert rank.returncode == 0, err
