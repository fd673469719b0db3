# SPDX-License-Identifier: Apache-2.0
"""`weft bench mpi`: its arithmetic without timing, and one tiny run."""

import os

import pytest
from weft.bench import systems
from weft.bench.in_turn import takes_turn
from weft.bench.mpi import marks as mpi_marks
from weft.bench.mpi import report as mpi_report
from weft.bench.mpi import run as mpi_run
from weft.bench.mpi.marks import GOALS, judge, mark_rows
from weft.bench.results import Block, Case
from weft.bench.runner import Options

MIB = 1 << 20
NAMES = {system.name: system for system in mpi_run.SYSTEMS}


def blocks_with_ratio(goal, factor, placement="near"):
    """Three rounds in which weft takes `factor` of what the goal allows."""
    total = 600.0
    blocks = []
    for turn in range(3):
        own = 0.0
        for term in goal.terms:
            us = total / len(goal.terms) / term.factor
            own += us * term.factor
            blocks.append(Block(term.case, term.system, turn, placement, us))
        blocks.append(Block(goal.case, "weft", turn, placement, own * goal.bound * factor))
    return blocks


@pytest.mark.parametrize("goal", GOALS, ids=lambda g: f"{g.mark}-{g.case.op}-{g.against}")
def test_a_goal_is_met_below_its_bound_and_not_above(goal):
    for factor, met in ((0.9, True), (1.1, False)):
        verdict = judge(goal, blocks_with_ratio(goal, factor), {})
        assert verdict.met is met
        assert verdict.ratio == pytest.approx(goal.bound * factor)


def test_the_marks_ask_for_what_the_table_says():
    asked = {(g.mark, g.case.op, g.case.bytes, g.against): g.bound for g in GOALS}
    assert asked == {
        ("M1", "forward", 4, "core + 1.3 clone"): 1.0,
        ("M1", "forward_backward", 4, "2 core + 1.3 clone"): 1.0,
        **{("M1", op, 4, gloo): 1 / 25 for op in mpi_run.CALLS_OF_CORE for gloo in mpi_run.GLOOS},
        ("M2", "forward_backward", 4 * MIB, "kept"): 1.15,
        ("M2", "forward_backward", 64 * MIB, "kept"): 1.15,
        ("M3", "alltoall", 8, "mpi4py"): 4.0,
        ("M3", "ring", 4, "mpi4py"): 6.0,
        ("M3", "alltoall_grad", 8, "weft (alltoall 8 B) + 1.3 clone (forward 4 B)"): 1.0,
        ("M3", "ring_grad", 4, "weft (ring 4 B) + 5.2 clone (forward 4 B)"): 1.0,
    }


def test_what_is_missing_or_was_not_measured_is_not_judged():
    rows = {row["mark"]: row for row in mark_rows([], {"mpi4py": "not installed"})}
    assert [row["met"] for row in rows.values()] == [None] * 3
    assert "mpi4py (not installed)" in rows["M3"]["reason"]
    goal = GOALS[0]
    near = [b for b in blocks_with_ratio(goal, 0.5) if b.system == "weft"]
    far = [b for b in blocks_with_ratio(goal, 0.5, "far") if b.system != "weft"]
    assert judge(goal, [*near, *far], {}).met is None
    anywhere = [b for b in blocks_with_ratio(goal, 0.5, "any") if b.system != "weft"]
    assert judge(goal, [*near, *anywhere], {}).met is True


def test_every_goal_is_measured_in_a_quick_run_too():
    for goal in GOALS:
        for name, case in (("weft", goal.case), *((t.system, t.case) for t in goal.terms)):
            assert mpi_run.takes_case(NAMES[name], case, quick=True), (name, case)
            assert case.bytes in mpi_run.OPERATIONS[case.op]


def test_large_tensors_sit_out_later_rounds_but_not_too_many():
    large, small = (Case("forward_backward", size, 2, 2) for size in (64 * MIB, 4))
    assert sum(takes_turn(large, turn) for turn in range(10)) >= 3
    assert all(takes_turn(small, turn) for turn in range(10))


def test_two_calls_of_the_core_stand_beside_forward_and_backward():
    case = Case("forward_backward", 4, 2, 2)
    blocks = [Block(case, name, turn, "near", 1.0) for name in ("core", "weft") for turn in (0, 1)]
    values = {row["system"]: row["value"] for row in mpi_report.rows(blocks)}
    assert values == {"core": 2.0, "weft": 1.0}
    text = mpi_report.figures(blocks)
    assert "2.00 us" in text and "13.7 us" in text


def test_without_mpi4py_it_is_named_as_missing(monkeypatch):
    monkeypatch.setattr(systems.importlib.util, "find_spec", lambda name: None)
    assert "mpi4py" in systems.find_mpi4py().missing


def shim_missing():
    pytest.importorskip("torch")
    from weft.torch import build

    return None if build.find() else build.COMMAND


def test_a_tiny_run():
    if shim_missing():
        pytest.skip(f"the shim is not built: {shim_missing()}")
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs 2 cores")
    systems = frozenset({"weft", "mpi4py", "clone", "kept", "core"})
    options = Options(families=systems, rounds=1, block_ms=1, sizes=(4, 4096))
    outcome = mpi_run.measure(options)
    assert not outcome.failed, outcome.failed
    assert set(outcome.missing) <= {"mpi4py"}
    # A block is dropped if the cores moved.
    measured = {(block.case.op, block.system) for block in outcome.blocks}
    wanted = {
        (op, name)
        for op in mpi_run.OPERATIONS
        for name in systems - set(outcome.missing)
        if NAMES[name].has(op)
    }
    assert measured <= wanted and len(wanted - measured) <= outcome.dropped
    assert all(block.us > 0 for block in outcome.blocks)
    assert mpi_marks.mark_rows(outcome.blocks, outcome.missing)[0]["mark"] == "M1"
