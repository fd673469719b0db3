# SPDX-License-Identifier: Apache-2.0
"""`weft bench torch`: its arithmetic without timing, and one tiny run."""

import json
import re
import subprocess
import sys
import unittest.mock
from dataclasses import replace

import pytest
from weft.bench.in_turn import takes_turn
from weft.bench.results import Block, Case
from weft.bench.runner import Options
from weft.bench.torch import marks as torch_marks
from weft.bench.torch import report as torch_report
from weft.bench.torch.marks import GOALS, judge, judge_alone, mark_rows
from weft.bench.torch.operations import OPERATIONS
from weft.bench.torch.run import GLOOS, NAMES, SYSTEMS, plan, takes_case
from weft.cli import bench as command

ONE = Case("all_reduce", 4, 2, 2)
MANY = 64  # cores, more than any mark needs


def blocks_with_ratio(goal, factor, sum_us=600.0, placement="near"):
    """Three rounds in which weft takes `factor` of what the goal allows."""
    blocks = []
    for turn in range(3):
        weights = sum(weight for weight, _ in goal.times)
        for _, name in goal.times:
            case = goal.other or goal.case
            for way in GLOOS if name == "gloo" else [name]:
                blocks.append(Block(case, way, turn, placement, sum_us / weights))
        us = sum_us * goal.bound * factor
        blocks.append(Block(goal.case, goal.ours, turn, placement, us))
    return blocks


def goal_id(goal):
    return f"{goal.mark}-{goal.case.op}-{goal.case.bytes}-{goal.against}"


@pytest.mark.parametrize("goal", GOALS, ids=goal_id)
def test_a_goal_is_met_below_its_bound_and_not_above(goal):
    for factor, met in ((0.9, True), (1.1, False)):
        verdict = judge_alone(goal, blocks_with_ratio(goal, factor), {}, MANY)
        assert verdict.met is met
        assert verdict.ratio == pytest.approx(goal.bound * factor)


def test_the_marks_ask_for_what_the_table_says():
    asked = {}
    for goal in GOALS:
        asked.setdefault(goal.mark, {})[goal.case.op, goal.case.bytes, goal.times] = goal.bound
    gloo, kib, mib = ((1.0, "gloo"),), 1 << 10, 1 << 20
    assert asked["T1"] == {
        ("all_reduce", 4, ((1.0, "noop"),)): 1.7,
        ("all_reduce", 4, gloo): 1 / 15,
    }
    sizes = {size for op, size, times in asked["T2"] if op == "all_reduce"}
    assert (min(sizes), max(sizes)) == (kib, mib)
    assert len({op for op, _, _ in asked["T3"]}) == 5
    hardest = ("all_reduce", 256 * mib, gloo)
    assert asked["T3"].pop(hardest) == 1 / 4
    assert set(asked["T3"].values()) == {1 / 3}
    moving = {op for op, _, _ in asked["T5"]}
    assert moving == {op for op, _, _ in asked["T3"]} - {"all_reduce"}
    for op, size, times in asked["T5"]:
        assert mib <= size <= 256 * mib
        assert asked["T5"][op, size, times] == (1 / 4 if times == gloo else 1.2)
        assert times == ((1.0, "limit"),) or op == "all_to_all_single"
    assert {goal.ours for goal in GOALS} == {"weft", "weft-shared"}
    assert all((goal.ours == "weft-shared") == (goal.mark == "T5") for goal in GOALS)
    assert set(asked["T4a"].values()) == {1 / 2}
    assert set(asked["T4b"].values()) == {0.6}
    assert asked["T4c"] == {("all_reduce", 64 * kib, ((1.0, "noop"), (2.0, "core"))): 1.0}


def test_a_fast_gloo_is_no_measure_for_one_element():
    goal = next(g for g in GOALS if g.from_us)
    assert judge(goal, blocks_with_ratio(goal, 2.0, sum_us=99.0), {}, MANY) is None
    assert judge(goal, blocks_with_ratio(goal, 2.0, sum_us=101.0), {}, MANY).met is False


def test_where_torch_and_the_core_take_longer_they_are_the_measure():
    goal = next(g for g in GOALS if g.or_else)
    slow = blocks_with_ratio(goal, 4.0)  # half of gloo's time
    assert judge(goal, slow, {}, MANY).met is None  # the floors were not measured
    floors = [
        Block(goal.case, name, turn, "near", 200.0)
        for turn in range(3)
        for name in ("noop", "core")
    ]
    verdict = judge(goal, [*slow, *floors], {}, MANY)
    assert verdict.met is True
    assert verdict.ratio == pytest.approx(300 / 500)


def test_against_gloo_is_against_the_better_way_to_run_it():
    goal = next(goal for goal in GOALS if goal.mark == "T4b")
    pinned = blocks_with_ratio(goal, 0.5)
    free = [replace(b, us=b.us / 4) if b.system == "gloo-free" else b for b in pinned]
    assert judge(goal, pinned, {}, 2).met is True
    assert judge(goal, free, {}, 2).met is False
    assert judge(goal, free, {}, 2).peer == "gloo-free"
    assert judge(goal, [b for b in pinned if b.system != "gloo-free"], {}, 2).met is None


def test_rounds_with_another_placement_are_not_compared_but_for_what_has_none():
    goal = GOALS[0]
    weft = [Block(ONE, "weft", turn, "near", 5.0) for turn in range(3)]
    noop = [Block(ONE, "noop", turn, "any", 4.0) for turn in range(3)]
    gloo = [Block(ONE, "gloo", turn, "far", 400.0) for turn in range(3)]
    assert judge(goal, [*weft, *noop], {}, MANY).ratio == pytest.approx(1.25)
    assert judge(GOALS[1], [*weft, *gloo], {}, MANY).reasons[0][0] == "too few rounds"


def test_many_ranks_are_judged_on_many_cores_only():
    goal = next(g for g in GOALS if g.mark == "T4c")
    blocks = blocks_with_ratio(goal, 0.5)
    assert judge(goal, blocks, {}, 16).met is True
    assert judge(goal, blocks, {}, 15).met is None


def test_a_run_without_blocks_judges_nothing_and_names_what_is_missing():
    rows = mark_rows([], {"gloo": "gone"}, 2)
    assert [row["mark"] for row in rows] == ["T1", "T2", "T3", "T5", "T4a", "T4b", "T4c"]
    assert all(row["met"] is None and row["ratio"] is None for row in rows)
    assert "gloo (gone)" in rows[2]["reason"]
    assert "16 cores" in rows[6]["reason"]


def test_tokens_are_judged_by_their_rate():
    goals = [goal for goal in GOALS if goal.mark == "T4a"]
    blocks = [block for goal in goals for block in blocks_with_ratio(goal, 0.5)]
    row = next(row for row in mark_rows(blocks, {}, 2) if row["mark"] == "T4a")
    assert (row["ratio"], row["goal"], row["direction"]) == (pytest.approx(4), 2, ">=")
    assert row["met"] is True
    assert "tokens/s with gloo" in torch_report.figures(blocks)
    assert all(r["tokens_per_s"] == 1e6 / r["value"] for r in torch_report.rows(blocks))


def test_a_full_run_measures_every_case_that_a_mark_needs():
    planned = {
        case
        for setup in plan(Options(families=frozenset(NAMES)), range(16))
        for case in setup.cases
    }
    by_name = {system.name: system for system in SYSTEMS}
    for goal in [*GOALS, *(g.or_else for g in GOALS if g.or_else)]:
        assert {goal.case, goal.other or goal.case} <= planned
        for name in (goal.ours, *(name for _, name in goal.times)):
            assert takes_case(by_name[name], goal.other or goal.case)


def test_the_transformer_runs_where_its_heads_can_be_divided():
    setups = plan(Options(ranks=(2, 3, 8, 16), families=frozenset(NAMES)), range(16))
    asked = {s.ranks for s in setups if any(case.op == "llm_token" for case in s.cases)}
    assert asked == {2, 8}


def test_a_quick_run_leaves_out_the_largest_tensors_and_later_rounds_most_large_ones():
    setups = plan(Options(quick=True, families=frozenset(NAMES)), range(2))
    assert [setup.ranks for setup in setups] == [2]
    assert max(case.bytes for case in setups[0].cases) == 16 << 20
    large = Case("all_reduce", 256 << 20, 2, 2)
    assert [turn for turn in range(7) if takes_turn(large, turn)] == [0, 1, 2, 3, 6]


@pytest.mark.parametrize("arguments", [["--ops", "scan"], ["--systems", "weft,mpich"]])
def test_what_another_program_has_is_refused(arguments, capsys):
    assert command.main(["torch", *arguments]) == 2
    assert "torch has no" in capsys.readouterr().err


@pytest.mark.parametrize("op", [op for op, shape in OPERATIONS.items() if shape.sizes != (0,)])
def test_a_backend_that_does_nothing_does_not_pass_the_checks(op):
    torch = pytest.importorskip("torch")
    from weft.bench.torch.rank import TorchRank

    rank = TorchRank(torch, None, 0, 2, False)
    rank._dist = unittest.mock.Mock()
    with pytest.raises(ValueError, match="is wrong"):
        rank.check(op, 64, 1)


def needs_backends():
    if (why := SYSTEMS[0].family.find().missing) is not None:
        pytest.skip(why)
    from weft.torch import build

    if build.find() is None:
        pytest.skip("the shim is not built")


def test_a_tiny_run_has_every_system_and_passes_all_checks(tmp_path):
    """Checks come before the timing, and a system that fails one makes the command fail."""
    needs_backends()
    rows_file = tmp_path / "rows.json"
    few = ["--ranks", "2", "--cores", "2", "--sizes", "8,20K", "--rounds", "1", "--block-ms", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "weft", "bench", "torch", *few, "--json", str(rows_file)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(rows_file.read_text())
    values = [row for row in rows if row.get("value") is not None]
    # Blocks in which the cores moved are told of; on a busy machine they may be all of a system.
    told = re.search(r"^(\d+) blocks dropped", done.stdout, re.MULTILINE)
    absent = set(NAMES) - {row["system"] for row in values}
    assert len(absent) <= int(told[1] if told else 0)
    assert {row["bench"] for row in values} == {"torch"}
    assert [row["mark"] for row in rows if "mark" in row] == list(
        dict.fromkeys(goal.mark for goal in torch_marks.GOALS)
    )
    assert all(row["met"] is None for row in rows if "mark" in row)
