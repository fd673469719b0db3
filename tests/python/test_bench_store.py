# SPDX-License-Identifier: Apache-2.0
"""`weft bench store`: its arithmetic without timing, and one tiny run."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import replace

import pytest
from weft.bench.results import Block
from weft.bench.runner import Options
from weft.bench.store import cases, marks, pair, report
from weft.bench.store import run as store
from weft.cli import bench as command

TORCH = importlib.util.find_spec("torch") is not None


def blocks_of(case, **times):
    """Three rounds of each system, the middle one with the time given."""
    return [
        Block(case, system, turn, "any", us * scale)
        for system, us in times.items()
        for turn, scale in enumerate((0.9, 1.0, 1.1))
    ]


def blocks_with(goal, badness):
    """weft so far from the goal, against the first of its opponents; others are slow."""
    ratio = goal.bound / badness if goal.at_least else goal.bound * badness
    others = dict.fromkeys(goal.against, 1e6) | {goal.against[0]: 100.0}
    ours = 100 / ratio if goal.at_least else 100 * ratio
    return blocks_of(goal.case, **{goal.ours: ours}, **others)


@pytest.mark.parametrize("goal", marks.GOALS, ids=lambda g: f"{g.mark}-{g.case.op}-{g.case.bytes}")
def test_a_goal_is_met_on_its_side_of_the_bound_only(goal):
    for badness, met in ((0.9, True), (1.1, False)):
        verdict = marks.judge(goal, blocks_with(goal, badness), {})
        assert verdict.met is met
        assert verdict.against == goal.against[0]
        assert verdict.badness == pytest.approx(badness)


def test_the_marks_ask_for_what_the_table_says():
    asked = {(g.mark, g.case.op, g.case.bytes): (g.at_least, g.bound) for g in marks.GOALS}
    assert asked == {
        ("P1", "pull", 64): (True, 0.6),
        **{("P1", "pull", row): (True, 0.8) for row in (256, 1024, 2048)},
        **{("P1", "pull-one", row): (False, 3.0) for row in (64, 256)},
        **{("P1", "pull-one-python", row): (False, 1.0) for row in (64, 256)},
        **{("P2", "push", row): (True, 0.5) for row in (64, 256, 1024, 2048)},
        ("P3", "hot", 256): (True, 0.5),
        **{("P4", "net-1", row): (False, 3.0) for row in (64, 512)},
        **{("P4", "net-1000-8", row): (True, 0.7) for row in (64, 512)},
        ("P5", "net-stream", 256): (True, 0.5),
        **{("P6b", "net-1", row): (False, 2.0) for row in (64, 512)},
        **{("P6b", "net-1000", row): (False, 2.5) for row in (64, 512)},
        ("P6a", "pull-million", 64): (True, 0.6),
        ("P6a", "pull-million", 256): (True, 0.7),
        **{("P6a", "pull-million", row): (True, 0.8) for row in (512, 2048)},
        **{("P6a", "push-million", row): (True, 0.5) for row in (64, 256, 512, 2048)},
    }


def test_the_fastest_opponent_counts():
    goal = next(goal for goal in marks.GOALS if goal.mark == "P2")
    verdict = marks.judge(goal, blocks_of(goal.case, weft=150, loop=100, torch=50), {})
    assert (verdict.met, verdict.against) == (False, "torch")
    assert verdict.ratio == pytest.approx(1 / 3)


def test_every_goal_is_measured_in_a_full_run_and_most_in_a_quick_one():
    for goal in marks.GOALS:
        if goal.case.op in cases.LOCAL:
            what = cases.LOCAL[goal.case.op]
            assert goal.case.bytes in what.rows
            assert goal.case.bytes in what.quick_rows or marks.full_only(goal.case)
            assert {goal.ours, *goal.against} <= set(what.systems)


def test_what_is_missing_or_was_not_measured_is_not_judged():
    rows = {row["mark"]: row for row in marks.mark_rows([], {"gather": "left out"})}
    assert [row["met"] for row in rows.values()] == [None] * len(rows)
    assert "gather (left out)" in rows["P1"]["reason"]
    assert "not measured: push 64 B" in rows["P2"]["reason"]


def test_one_goal_that_fails_makes_a_mark_fail():
    blocks = [block for goal in marks.GOALS for block in blocks_with(goal, 0.9)]
    assert all(row["met"] for row in marks.mark_rows(blocks, {}))
    bad = next(goal for goal in marks.GOALS if goal.mark == "P6a")
    blocks = [block for block in blocks if block.case != bad.case] + blocks_with(bad, 1.5)
    failed = {row["mark"]: row for row in marks.mark_rows(blocks, {}) if not row["met"]}
    assert list(failed) == ["P6a"]
    assert failed["P6a"]["case"] == "pull-million 64 B"


FOUND = pair.Footprint(16, 16, 4, 28, 0.001, 0.009, 64)


@pytest.mark.parametrize(
    ("change", "case"),
    [
        ({}, None),
        ({"moved": 17}, "bytes beside a present key's row"),
        ({"home": 17}, "bytes beside a present key's row"),
        ({"absent": 4.5}, "bytes of an absent key"),
        ({"idle": 0.02}, "share of a core, idle"),
        ({"idle_with_copies": 0.02}, "share of a core, idle with copies"),
    ],
)
def test_memory_and_idling_have_limits(change, case):
    row = marks.footprint_row(replace(FOUND, **change))
    assert row["met"] is (case is None)
    if case is not None:
        assert row["case"] == case


def test_the_round_with_the_fewest_local_accesses_counts():
    assert marks.local_row([0.99, 0.94])["met"] is False
    assert marks.local_row([0.99, 0.96])["met"] is True
    assert marks.local_row([])["met"] is None


def test_memory_that_was_not_measured_is_not_judged():
    row = marks.footprint_row(None)
    assert (row["met"], row["ratio"]) == (None, None)
    assert row["reason"] == "not measured: memory"


def test_figures_show_times_of_a_key_and_what_adapm_took():
    blocks = blocks_of(cases.case_of("pull-million", 64), weft=20, gather=10, loop=40)
    blocks += blocks_of(cases.case_of("intent-1000", 512), weft=900)
    hot = {"same": 60, "disjoint": 30, "loop-same": 40, "loop-disjoint": 30}
    blocks += blocks_of(cases.case_of("hot", 256), **hot)
    text = report.figures(blocks)
    assert "20.0 -10/+10%" in text and "2.00" in text and "0.14" in text
    assert "900 us" in text and "4.05 ms" in text
    assert "0.50" in text and "0.75" in text
    assert {row["op"]: row["keys"] for row in report.rows(blocks)} == {
        "pull-million": 1000,
        "intent-1000": 1000,
        "hot": 1000,
    }


def test_without_torch_weft_is_missing_and_the_run_has_failed(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(store.importlib.util, "find_spec", lambda name: None)
    assert command.main(["store", "--json", str(tmp_path / "rows.json")]) == 1
    assert "missing: weft (torch is not installed)" in capsys.readouterr().out


@pytest.mark.skipif(not TORCH, reason="needs torch")
def test_a_tiny_run_of_rows_of_a_host(monkeypatch):
    monkeypatch.setattr(store, "LARGE", 1 << 20)
    monkeypatch.setattr(store, "QUICK_LOCAL_SECONDS", float("inf"))
    options = Options(quick=True, ops=("pull", "push", "pull-one-python"), sizes=(64, 100),
                      rounds=3, block_ms=1)  # fmt: skip
    outcome = store.measure(options)
    assert not outcome.failed and not outcome.missing
    measured = {(b.case.op, b.case.bytes, b.system) for b in outcome.blocks}
    assert measured == {
        (op, row, system)
        for op in options.ops
        for row in options.sizes
        for system in cases.LOCAL[op].systems
    }
    assert all(block.us > 0 for block in outcome.blocks)


@pytest.mark.skipif(not TORCH, reason="needs torch")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs 2 cores")
def test_a_tiny_run_of_two_ranks_and_of_two_hosts(monkeypatch):
    monkeypatch.setattr(pair, "AHEAD", 2)
    monkeypatch.setattr(store, "QUICK_SECONDS", float("inf"))
    monkeypatch.setattr(store, "STEPS", (3, 3))
    monkeypatch.setattr(store, "FOOTPRINT", ((4096, 0.01), (4096, 0.01)))
    few = {op: replace(what, keys=min(what.keys, 20)) for op, what in cases.BETWEEN.items()}
    monkeypatch.setattr(pair, "BETWEEN", few)
    options = Options(quick=True, ops=("hot", "hosts", "memory"), rounds=1, block_ms=1)
    outcome = store.measure(options)
    assert not outcome.failed and not outcome.missing
    measured = {(block.case.op, block.system) for block in outcome.blocks}
    hot = {("hot", name) for name in cases.HOT_SYSTEMS}
    assert measured == {*hot, *((op, "weft") for op in few)}
    assert [row["mark"] for row in outcome.ready if "mark" in row] == ["P5 local", "P6c"]
    assert sum("value" in row for row in outcome.ready) == 6
