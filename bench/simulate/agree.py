#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does the simulator agree with what is measured?

    agree.py [--hosts 2 4 8] [--each 1] [--rate 1gbit] [--transport ucx] [--seconds 1] [--runs 3]

Starts a job on hosts that are namespaces of this machine (needs root), measures what a message
costs between pairs of them, and then collectives; has bench_simulate predict the same calls with a
model of these costs; and prints both. `--pretend` measures between pretended nodes instead, over
shared memory; `--calibrate FILE` only measures three hosts, and writes the model to FILE.
`--save FILE` keeps what was measured, and `--from FILE` predicts the same calls anew, by a
simulator that was changed since.

Times are the least of several blocks, since other programs of this machine only add to them; then
the median of several jobs, since one and the same call may take a third longer in the next job. The
spread between jobs is printed: no model can be closer than what is measured is to itself. With
`--realtime` ranks go before all others, where there is a core for each; with more ranks than cores
that would starve the kernel's own threads that move packets.

Where ranks outnumber cores they do not poll, as hosts that share cores are to be used, and each
stays on one core. Then all cores are busy all the time, and what a message takes of them is all
that the model has of it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SIMULATOR = HERE.parents[1] / "build" / "bench" / "bench_simulate"
RANK = HERE / "agree_rank.py"
SIZES = (8, 4 << 10, 64 << 10, 1 << 20, 16 << 20)
OPERATIONS = ("allreduce", "broadcast", "allgather")
PATIENCE = 120.0
BITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
BURST = 128 << 10  # of the bed's cables


def _cases(ranks: int, sizes: Sequence[int]) -> list[tuple[str, int]]:
    """A block of allgather is a rank's share of the buffer."""
    made: list[tuple[str, int]] = [("barrier", 0)]
    for op in OPERATIONS:
        made += [(op, max(size // ranks, 8) if op == "allgather" else size) for size in sizes]
    return made


# --- measuring ------------------------------------------------------------------------------------


@contextlib.contextmanager
def _on_bed(
    hosts: int, each: int, rate: str | None, command: Sequence[str], env: Mapping[str, str]
) -> Iterator[list[subprocess.Popen]]:
    from weft.bench.bed import Bed

    with Bed(hosts, rate=rate) as bed:
        boot = bed.shared / "boot"
        boot.mkdir(mode=0o700)
        more = {**env, "WEFT_BOOT_DIR": str(boot)}
        yield bed.launch(command, ranks=each, env=more, stdout=subprocess.PIPE, text=True)


@contextlib.contextmanager
def _pretended(
    hosts: int, each: int, command: Sequence[str], env: Mapping[str, str]
) -> Iterator[list[subprocess.Popen]]:
    with tempfile.TemporaryDirectory() as boot:
        children = []
        for rank in range(hosts * each):
            place = {"RANK": str(rank), "WORLD_SIZE": str(hosts * each), "WEFT_BOOT_DIR": boot}
            node = {"WEFT_NODE": f"host{rank // each}", "WEFT_JOB": f"agree-{os.getpid()}"}
            all_ = {**os.environ, **env, **place, **node}
            pipe = subprocess.PIPE
            children.append(subprocess.Popen(command, env=all_, stdout=pipe, text=True))
        try:
            yield children
        finally:
            for child in children:
                child.kill()
                child.wait()


def measure(options: argparse.Namespace, hosts: int, cases: list[tuple[str, int]]) -> dict:
    from weft.bench.bed import SHARED_CORES

    words = [json.dumps(cases), str(options.seconds), str(options.each)]
    command = [sys.executable, str(RANK), *words]
    crowded = hosts * options.each > len(os.sched_getaffinity(0))
    if options.realtime and not crowded:
        command = ["chrt", "-r", "10", *command]
    env = {"OMP_NUM_THREADS": "1", **(SHARED_CORES if crowded else {})}
    if options.transport is not None:
        env["WEFT_TRANSPORTS"] = f"self,shm,{options.transport}"
    job = (
        _pretended(hosts, options.each, command, env)
        if options.pretend
        else _on_bed(hosts, options.each, options.rate, command, env)
    )
    patience = PATIENCE + 4 * options.seconds * (len(cases) + 3)
    with job as children:
        said = [child.communicate(timeout=patience)[0] for child in children]
        if any(child.returncode for child in children):
            raise SystemExit(f"agree: a job on {hosts} hosts failed")
    return json.loads(said[0])


# --- the model ------------------------------------------------------------------------------------


def rate_of(text: str | None) -> float | None:
    """Bytes a second of "1gbit"."""
    for unit, bits in BITS.items():
        if text is not None and text.endswith(unit):
            return float(text.removesuffix(unit)) * bits / 8
    return None


def small_of(messages: Mapping[str, float]) -> dict[str, float]:
    """What a message without data takes where there is a core for each rank.

    Half of what a small message costs in a stream is each end's; the rest of half a round trip is
    latency. What a barrier of two takes beyond that is the library's own time, for two looks. In a
    circle of three hosts nobody answers whom it hears from, so that TCP acknowledges a message
    by a packet of its own, where answers do it in a round trip: that is what a hop takes longer.
    """
    one_way = messages["round_trip"] / 2
    each_end = min(messages["small"], one_way) / 2
    return {
        "latency": one_way - 2 * each_end,
        "step": max(messages["barrier"] - one_way, 0) / 2,
        "send": each_end,
        "receive": each_end,
        "ack": max(messages["hop"] - one_way, 0),
    }


def crowded_of(messages: Mapping[str, float]) -> dict[str, float]:
    """What it takes where ranks outnumber cores: the time of a core, half of it at each end.

    There is no wire between namespaces, so nothing else passes time. What ranks lose by looking
    when nothing has come, and by changing places on a core, is in it.
    """
    each_end = messages["work"] / 2
    return {"latency": 0, "step": 0, "send": each_end, "receive": each_end, "ack": 0}


def model_of(
    messages: Mapping[str, float], hosts: int, options: argparse.Namespace
) -> dict[str, float]:
    """What the simulator needs to know, from what messages were measured to cost.

    All hosts share the cores of this machine.
    """
    crowded = hosts * options.each > messages["cores"]
    stream = messages["large_bytes"] / messages["large"]
    limit = rate_of(None if options.pretend else options.rate)
    return {
        **(crowded_of(messages) if crowded else small_of(messages)),
        "bandwidth": stream,
        "longer": max(messages["longer"] - 2 * messages["longer_bytes"] / options.touch, 0),
        "burst": BURST if limit is not None else 0,
        "header": 0,
        "cores": messages["cores"],
        "one_machine": 1,
        "pinned": 1 if crowded else 0,
        "eager": options.eager,
        "touch": options.touch,
        "fold": options.fold,
        "copy": options.copy,
    }


def lines_of(model: Mapping[str, float]) -> str:
    return "".join(f"{name} = {value:.9g}\n" for name, value in model.items())


def predict(model: Path, hosts: int, each: int, case: Mapping[str, Any]) -> dict[str, Any]:
    words = ["--model", model, "--ranks", hosts * each, "--per-host", each, "--op", case["op"]]
    words += ["--bytes", case["bytes"], "--repeat", min(case["calls"], 20), "--json"]
    command = [str(SIMULATOR), *map(str, words)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


# --- all of it ------------------------------------------------------------------------------------


def _print_row(hosts: int, case: Mapping[str, Any], said: Mapping[str, Any]) -> float:
    measured, predicted = case["seconds"], said["seconds"][2]
    ratio = predicted / measured
    low, high = (100 * (case[end] / measured - 1) for end in ("least", "most"))
    print(
        f"{hosts:5} {case['op']:10} {case['bytes']:10} {measured * 1e6:12.1f} "
        f"{low:+4.0f}/{high:+4.0f}% {predicted * 1e6:12.1f} {ratio:7.2f}  {said['how']}",
        flush=True,
    )
    return ratio


def middle(runs: Sequence[dict]) -> dict:
    """What several jobs found: the median of each figure, and of calls the spread."""
    messages = {
        name: statistics.median(run["messages"][name] for run in runs)
        for name in runs[0]["messages"]
    }
    cases = []
    for same in zip(*(run["cases"] for run in runs), strict=True):
        times = [case["seconds"] for case in same]
        spread = {"seconds": statistics.median(times), "least": min(times), "most": max(times)}
        cases.append({**same[0], **spread})
    return {"messages": messages, "cases": cases}


def measured(options: argparse.Namespace) -> Iterator[tuple[int, dict]]:
    """Of each number of hosts, what messages and calls take there."""
    if options.old is not None:
        for hosts, runs in json.loads(options.old.read_text()).items():
            if not isinstance(runs, list):
                raise SystemExit(f"agree: {options.old} is not as --save writes it: measure anew")
            yield int(hosts), middle(runs)
        return
    all_found = {}
    for hosts in options.hosts:
        cases = _cases(hosts * options.each, options.sizes)
        all_found[hosts] = [measure(options, hosts, cases) for _ in range(options.runs)]
        yield hosts, middle(all_found[hosts])
    if options.save is not None:
        options.save.write_text(json.dumps(all_found))


def compare(options: argparse.Namespace, folder: Path) -> list[float]:
    ratios = []
    print("hosts operation       bytes  measured us    spread predicted us   ratio  by")
    for hosts, found in measured(options):
        model = folder / f"model{hosts}"
        model.write_text(lines_of(model_of(found["messages"], hosts, options)))
        for case in found["cases"]:
            said = predict(model, hosts, options.each, case)
            ratios.append(_print_row(hosts, case, said))
    return ratios


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--hosts", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--each", type=int, default=1, help="ranks on a host")
    parser.add_argument("--rate", default="1gbit", help='of a cable; "none": no limit')
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="bytes")
    parser.add_argument("--transport", help="between hosts: ucx or mpi")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each case")
    parser.add_argument("--runs", type=int, default=3, help="jobs on as many hosts")
    parser.add_argument("--eager", type=float, default=65536, help="bytes sent unasked")
    parser.add_argument(
        "--touch", type=float, default=8e9, help="bytes a second of a core to a link"
    )
    parser.add_argument("--fold", type=float, default=4e9, help="bytes a second that are reduced")
    parser.add_argument("--copy", type=float, default=6e9, help="bytes a second that are copied")
    parser.add_argument("--realtime", action="store_true", help="go before other programs")
    parser.add_argument("--pretend", action="store_true", help="between pretended nodes")
    parser.add_argument("--calibrate", type=Path, help="write a model of three hosts to this file")
    parser.add_argument("--save", type=Path, help="keep what was measured in this file")
    parser.add_argument("--from", dest="old", type=Path, help="read such a file, measure nothing")
    options = parser.parse_args()
    if min(options.hosts) < 2:
        parser.error("--hosts must be at least 2: messages between hosts are measured")
    if options.runs < 1 or options.each < 1:
        parser.error("--runs and --each must be at least 1")
    options.rate = None if options.rate == "none" else options.rate
    return options


def main() -> int:
    options = _options()
    if options.calibrate is not None:
        found = measure(options, 3, [])
        options.calibrate.write_text(lines_of(model_of(found["messages"], 3, options)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        ratios = compare(options, Path(folder))
    close = sum(1 / 1.2 <= ratio <= 1.2 for ratio in ratios)
    print(f"{close} of {len(ratios)} within 20 %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
