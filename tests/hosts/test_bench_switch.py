# SPDX-License-Identifier: Apache-2.0
"""`weft bench switch`: its arithmetic without timing, and tiny runs for the form of its output."""

import json
import shutil
import subprocess
import sys

import pytest
from weft.bench import pairs
from weft.bench.bed import Bed
from weft.bench.hosts.bed_runner import BedSetup
from weft.bench.hosts.limit import Cable
from weft.bench.results import Block, Case
from weft.bench.runner import Options
from weft.bench.switch import capacity, marks, run
from weft.bench.switch.daemon import PROGRAM, Daemon

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="weft-switch is not in the package")
MIB = 1 << 20


def blocks_of(goal, ratio):
    case = Case(goal.op, goal.size, goal.ranks, 2)
    ours = [Block(case, goal.ours, turn, "any", 100.0 * ratio) for turn in range(3)]
    return ours + [Block(case, goal.theirs, turn, "any", 100.0) for turn in range(3)]


def name(goal):
    return f"{goal.mark}-{goal.ranks}-{goal.ours}-{goal.theirs}"


@pytest.mark.parametrize("goal", marks.GOALS, ids=name)
def test_a_goal_is_met_up_to_its_bound_and_not_beyond(goal):
    assert pairs.judge(goal, blocks_of(goal, goal.bound * 0.99), {}).met is True
    assert pairs.judge(goal, blocks_of(goal, goal.bound * 1.01), {}).met is False


def test_every_goal_is_about_what_is_measured():
    systems = {system.name: system for system in run.SYSTEMS}
    for goal in marks.GOALS:
        assert goal.size in run.OPERATIONS[goal.op]
        assert systems[goal.ours].has(goal.op)
        assert systems[goal.theirs].has(goal.op)
    rows = marks.mark_rows([], {})
    assert [(row["mark"], row["met"]) for row in rows] == [(f"S{n}", None) for n in (1, 2, 3, 4)]


def test_a_switch_of_4_hosts_may_take_two_thirds_of_the_rings_time_and_a_tenth_more():
    (goal,) = (g for g in marks.GOALS if (g.ranks, g.ours) == (4, "switch"))
    assert goal.bound == pytest.approx(1.1 * 2 / 3)


def unlimited(hosts, **seconds):
    case = Case(run.UNLIMITED, 100 * MIB, hosts, 2)
    return [Block(case, system, 0, "any", s * 1e6) for system, s in seconds.items()]


def test_links_get_at_most_their_share_of_what_the_cores_can_move():
    fast = capacity.links_for(4, unlimited(4, switch=0.1, ring=0.1))
    assert fast.rate == 1e9
    # 100 MiB through a switch in a second are 839 Mbit/s on each link.
    slow = capacity.links_for(4, unlimited(4, switch=1.0, ring=0.5))
    assert slow.can == pytest.approx(4 * 838.8608e6)
    assert slow.words == "330mbit"
    assert slow.share <= capacity.SHARE
    assert "lowered from 1 Gbit/s" in str(slow)
    assert "lowered" not in str(fast)
    # A ring has 2 (n - 1) / n of the bytes on each link.
    ring = capacity.links_for(4, unlimited(4, switch=0.1, ring=1.5))
    assert ring.can == pytest.approx(4 * 838.8608e6)
    assert capacity.links_for(8, unlimited(4, switch=1.0)) is None


def test_a_plan_has_what_was_asked_for_and_a_quick_one_no_large_jobs():
    setups = run.plan(Options(), (0, 1))
    assert all(isinstance(setup, BedSetup) for setup in setups)
    assert [(setup.ranks, setup.mtu) for setup in setups[:2]] == [(2, 1500), (2, 9000)]
    assert {setup.ranks for setup in setups} == {2, 3, *run.MANY_HOSTS}
    quick = run.plan(Options(quick=True), (0, 1))
    assert {setup.ranks for setup in quick} <= {2, 4}
    (only,) = run.plan(Options(ops=(run.GOODPUT,), families=frozenset({"switch", "udp"})), (0, 1))
    assert [system.name for system in only.systems] == ["switch", "udp"]


@pytest.mark.bed(hosts=2)
def test_iperf3_measures_datagrams_to_the_switch(bed):
    if shutil.which("iperf3") is None:
        pytest.skip("iperf3 is not installed")
    cable = Cable(bed, 0, in_switch=True)
    before = bed.bytes(0)[0]
    rate = cable.bytes_per_second("--udp", "--bitrate", "80M", "--length", "1024")
    sent = bed.bytes(0)[0] - before
    assert 0 < rate < 10e6 * 1.2
    # One second of datagrams, with their headers.
    assert sent > 0.5 * rate


def test_a_switch_tells_its_counters(bed):
    with Daemon(bed) as daemon:
        assert daemon.chunks() == 0
        assert daemon.counted("jobs") == 0
        assert daemon.settings["WEFT_SWITCH"].startswith(bed.switch_address)


def bench(tmp_path, *words):
    file = tmp_path / "rows.json"
    command = [sys.executable, "-m", "weft.cli.bench", "switch", "--json", str(file), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=150)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, json.loads(file.read_text())


def test_switches_with_and_without_loss_take_turns(tmp_path):
    words = ["--ops", "goodput_1k", "--sizes", "1M", "--rounds", "1", "--block-ms", "1"]
    _, rows = bench(tmp_path, *words, "--systems", "switch,loss-1%")
    values = [row for row in rows if row.get("value") is not None]
    assert [(row["system"], row["ranks"], row["bytes"]) for row in values] == [
        ("switch", 2, MIB),
        ("loss-1%", 2, MIB),
    ]
    assert {row["mark"] for row in rows if "mark" in row} == {"S1", "S2", "S3", "S4"}


def test_links_are_limited_to_what_the_cores_can_serve_and_that_is_told(tmp_path):
    words = ["--ops", "unlimited,limited", "--sizes", "1M", "--rounds", "1", "--ranks", "3"]
    said, rows = bench(tmp_path, *words, "--block-ms", "1", "--systems", "switch,ring")
    (share,) = (row for row in rows if row.get("case") == "share of what the cores can move")
    assert 0 < share["value"] <= capacity.SHARE
    assert "3 hosts: the cores can move" in said
    assert {row["case"] for row in rows if row.get("bytes")} == {"unlimited", "limited"}


def test_a_run_that_does_not_go_through_its_switch_is_no_result(tmp_path, monkeypatch):
    monkeypatch.setattr(Daemon, "chunks", lambda _self: 0)
    options = Options(
        ops=(run.GOODPUT,), sizes=(MIB,), families=frozenset({"switch"}), rounds=1, block_ms=1.0
    )
    outcome = run.measure(options)
    assert outcome.blocks == []
    (why,) = outcome.failed.values()
    assert "did not go through the switch" in why


def test_plots_are_drawn_for_each_number_of_hosts(tmp_path):
    pytest.importorskip("matplotlib")
    from weft.bench import plots
    from weft.bench.switch import report

    blocks = [
        Block(Case(run.LIMITED, 64 * MIB, hosts, 2), system, 0, "any", 1e6)
        for hosts in (3, 4, 8)
        for system in ("switch", "ring", "iperf3")
    ]
    drawn = plots.figures(report.rows(blocks))
    assert list(drawn) == [run.LIMITED]
    assert drawn[run.LIMITED].startswith(b"<?xml")


def test_a_bed_calls_a_function_from_its_switch():
    with Bed(2) as bed:
        bed.popen_in_switch(["true"]).wait()

        def addresses():
            return [line.split()[0] for line in open("/proc/thread-self/net/dev").readlines()[2:]]

        assert "bridge:" in bed.from_switch(addresses)
        assert "bridge:" not in addresses()
