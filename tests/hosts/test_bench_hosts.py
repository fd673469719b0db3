# SPDX-License-Identifier: Apache-2.0
"""`weft bench hosts`: its arithmetic without timing, and tiny runs for the form of its output."""

import json
import pathlib
import shutil
import subprocess
import sys

import pytest
from weft.bench import pairs
from weft.bench.hosts import algorithms, limit, marks, parts, run
from weft.bench.results import Block, Case
from weft.bench.runner import Options

AGREE = pathlib.Path(__file__).resolve().parents[2] / "bench" / "simulate" / "agree.py"


def blocks_of(goal, ratio, rounds=3):
    case = Case(goal.op, goal.size, goal.ranks, 2)
    ours = [Block(case, goal.ours, turn, "any", 100.0 * ratio) for turn in range(rounds)]
    theirs = [Block(case, goal.theirs, turn, "any", 100.0) for turn in range(rounds)]
    return ours + theirs


@pytest.mark.parametrize("goal", marks.GOALS, ids=lambda goal: f"{goal.mark}-{goal.theirs}")
def test_a_goal_is_met_up_to_its_bound_and_not_beyond(goal):
    assert pairs.judge(goal, blocks_of(goal, goal.bound * 0.99), {}).met is True
    assert pairs.judge(goal, blocks_of(goal, goal.bound * 1.01), {}).met is False


def test_what_was_not_measured_is_not_judged():
    goal = marks.GOALS[0]
    few = pairs.judge(goal, blocks_of(goal, 1.0, rounds=2), {})
    absent = pairs.judge(goal, [], {goal.theirs: "iperf3 is not installed"})
    assert few.met is None
    assert few.reasons[0][0] == "too few rounds"
    assert absent.reasons == (("missing", "iperf3 (iperf3 is not installed)"),)
    assert [row["met"] for row in marks.mark_rows([], {})] == [None] * 4


def test_every_goal_is_about_what_is_measured():
    for goal in marks.GOALS:
        assert goal.size in (*run.OPERATIONS[goal.op], parts.ROW, parts.ROW * parts.IDS)
        assert {goal.ours, goal.theirs} <= {*run.NAMES}


def test_the_limit_of_an_allreduce_is_what_each_host_has_to_send():
    # 4 hosts, 100 bytes a second: 1.5 times 400 bytes.
    assert limit.ring_us(400, 4, 100.0) == pytest.approx(6e6)


def test_what_failed_is_told_by_the_line_that_says_so():
    aborted = "started\nnode.c:684 Assertion `ok' failed\n==== backtrace ====\n 0 main\n=====\n"
    raised = "Traceback (most recent call last):\n  File x\nweft.PeerError: rank 1 died\n"
    assert parts._telling(aborted) == "node.c:684 Assertion `ok' failed"
    assert parts._telling(raised) == "weft.PeerError: rank 1 died"
    assert parts._telling("out of luck\n") == "out of luck"
    assert parts._telling("\n===\n") == ""


def test_a_plan_has_all_systems_that_were_asked_for():
    wanted = Options(families=frozenset({"gloo", "iperf3"}))
    unlimited, limited = run.plan(wanted, (0, 1))
    assert [system.name for system in unlimited.systems] == ["gloo"]
    assert [system.name for system in limited.systems] == ["gloo", "iperf3"]
    assert (unlimited.rate, limited.rate) == (None, "1gbit")


def bench(tmp_path, *words):
    file = tmp_path / "rows.json"
    command = [sys.executable, "-m", "weft.cli.bench", "hosts", "--json", str(file), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=150)
    return done, json.loads(file.read_text())


def test_peers_take_turns_on_hosts(tmp_path):
    if shutil.which("mpirun.openmpi") is None:
        pytest.skip("Open MPI is not installed")
    words = ["--ops", "allreduce", "--sizes", "4K", "--rounds", "1", "--block-ms", "1"]
    done, rows = bench(tmp_path, *words, "--systems", "openmpi")
    assert done.returncode == 0, done.stdout + done.stderr
    values = [row for row in rows if row.get("value") is not None]
    assert [(row["system"], row["ranks"], row["bytes"]) for row in values] == [("openmpi", 4, 4096)]
    assert {row["mark"] for row in rows if "mark" in row} == {"H1", "H2", "H3", "H4"}


def test_the_limit_is_measured_on_a_limited_cable(tmp_path):
    if shutil.which("iperf3") is None:
        pytest.skip("iperf3 is not installed")
    words = ["--ops", "allreduce_1gbit", "--rounds", "1", "--systems", "iperf3"]
    done, rows = bench(tmp_path, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = (row for row in rows if row.get("value") is not None)
    # No more than 1 Gbit/s goes through, so it takes no less than this.
    assert row["value"] > 1.5 * (64 << 20) * 8 / 1e9 * 1e6


@pytest.mark.over("ucx")
@pytest.mark.bed(hosts=8)
def test_no_rank_talks_to_all_hosts(bed, monkeypatch):
    # Hosts that are not heard for long, since they get no core, are asked by others directly.
    monkeypatch.setenv("WEFT_HOST_TIMEOUT", "120")
    found = parts._ranks(bed, "start_rank.py", "endpoints", each=2)
    assert max(each["collective"] for each in found) <= 2 * 3 + 2
    # Two hosts beside it, a chord, and one of the ring's own.
    assert max(each["ring"] for each in found) <= 4


WRONG = ("--hosts 0", "--hosts 100", "--each 0", "--sizes 0", "--rounds none", "--rate fast")


@pytest.mark.parametrize("words", WRONG)
def test_what_cannot_be_measured_is_refused_with_the_option(words, capsys):
    with pytest.raises(SystemExit) as ended:
        algorithms.main(words.split())
    assert ended.value.code == 2
    assert f"argument {words.split()[0]}: " in capsys.readouterr().err


@pytest.mark.parametrize("words", ["--hosts 1", "--runs 0", "--each 0"])
def test_the_simulator_is_compared_with_messages_between_hosts_alone(words):
    command = [sys.executable, str(AGREE), *words.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "must be at least" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.over("ucx")
def test_each_algorithm_between_hosts_is_measured(capsys):
    words = ["--hosts", "2", "--each", "1", "--ops", "allgather", "--sizes", "1024"]
    assert algorithms.main([*words, "--rounds", "1"]) == 0
    row = capsys.readouterr().out.splitlines()[-1]
    for way in ("chosen", "doubling", "bruck", "ring", "message"):
        assert f"{way} " in row
