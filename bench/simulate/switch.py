#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where does a switch pay? Draws what bench_simulate says of it.

    switch.py [--plot FILE.svg] [--measured FILE.json ...]

Prints the time of an allreduce through a switch and without one, for numbers of hosts and for
sizes, with links of 1 Gbit/s. `--measured` reads rows of `weft bench switch`, and prints and draws
them beside what is simulated for the same hosts and links.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

SIMULATOR = Path(__file__).resolve().parents[2] / "build" / "bench" / "bench_simulate"
MIB = 1 << 20
GBIT = 1e9 / 8
HOSTS = (2, 3, 4, 8, 16, 32, 64)
SIZES = tuple(1 << power for power in range(10, 27, 2))
MANY = 16  # hosts, where sizes are looked at
CORES = 4  # that add, in one switch or several; together they have a link for each host
LATENCY = 2e-5
# What frames add to a packet; and what one TCP stream has of a link: of 1514 bytes 1448 are data.
DATAGRAM = {"header": 42, "send": 3e-7, "receive": 3e-7}
STREAM = {"header": 0, "send": 3e-6, "receive": 3e-6}
STREAM_PART = 1448 / 1514


def _simulate(*words: object, **model: float) -> float:
    """Seconds of the slowest rank."""
    sets = [word for name, value in model.items() for word in ("--set", f"{name}={value}")]
    command = [SIMULATOR, "--json", "--set", f"latency={LATENCY}", *sets, *map(str, words)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(said)["seconds"][2]


def through_switch(
    hosts: int, size: int, rate: float = GBIT, cores: int = CORES, links: float | None = None
) -> float:
    """With as many links as hosts, or so many."""
    each = (hosts if links is None else links) / cores
    words = ("--what", "switch", "--ranks", hosts, "--bytes", size)
    more = ("--switches", cores, "--links", each)
    return _simulate(*words, *more, bandwidth=rate, **DATAGRAM)


def without(hosts: int, size: int, rate: float = GBIT) -> float:
    words = ("--op", "allreduce", "--ranks", hosts, "--bytes", size)
    return _simulate(*words, bandwidth=rate * STREAM_PART, **STREAM)


def by_hosts() -> list[dict[str, float]]:
    return [
        {
            "hosts": hosts,
            "switch": through_switch(hosts, 64 * MIB),
            "one core": through_switch(hosts, 64 * MIB, cores=1),
            "one link": through_switch(hosts, 64 * MIB, links=1) if hosts <= 4 else 0,
            "without": without(hosts, 64 * MIB),
        }
        for hosts in HOSTS
    ]


def by_size() -> list[dict[str, float]]:
    return [
        {"bytes": size, "switch": through_switch(MANY, size), "without": without(MANY, size)}
        for size in SIZES
    ]


def measured(files: Iterable[Path]) -> list[dict[str, Any]]:
    """Rows with limited links, with what is simulated for them."""
    found = []
    for file in files:
        rows = json.loads(file.read_text())
        rates = {row["ranks"]: row["rate"] / 8 for row in rows if "rate" in row}
        for row in rows:
            if row.get("case") != "limited" or row.get("system") not in ("switch", "ring"):
                continue
            rate = rates.get(row["ranks"], GBIT)
            said = (through_switch if row["system"] == "switch" else without)(
                row["ranks"], row["bytes"], rate
            )
            seconds = row["value"] * {"s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}[row["unit"]]
            found.append({**row, "seconds": seconds, "simulated": said, "mbit": rate * 8e-6})
    return found


def _print(hosts: list[dict], sizes: list[dict], rows: list[dict]) -> None:
    print("64 MiB, links of 1 Gbit/s: seconds\n")
    print(f"{'hosts':>6}{'switch':>10}{'one core':>10}{'one link':>10}{'without':>10}{'ratio':>8}")
    for row in hosts:
        one = f"{row['one link']:10.3f}" if row["one link"] else f"{'-':>10}"
        ratio = row["switch"] / row["without"]
        times = f"{row['switch']:10.3f}{row['one core']:10.3f}{one}{row['without']:10.3f}"
        print(f"{row['hosts']:6}{times}{ratio:8.3f}")
    print(f"\n{MANY} hosts: milliseconds\n")
    print(f"{'bytes':>10}{'switch':>10}{'without':>10}{'ratio':>8}")
    for row in sizes:
        times = f"{row['switch'] * 1e3:10.3f}{row['without'] * 1e3:10.3f}"
        print(f"{row['bytes']:10}{times}{row['switch'] / row['without']:8.3f}")
    if rows:
        print("\nmeasured\n")
        print(
            f"{'hosts':>6}{'Mbit/s':>8}{'system':>8}{'measured':>10}{'simulated':>10}{'ratio':>8}"
        )
    for row in rows:
        ratio = row["simulated"] / row["seconds"]
        times = f"{row['seconds']:10.3f}{row['simulated']:10.3f}{ratio:8.3f}"
        print(f"{row['ranks']:6}{row['mbit']:8.0f}{row['system']:>8}{times}")


def _draw(path: Path, hosts: list[dict], sizes: list[dict], rows: list[dict]) -> None:
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "weft"
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2))
    at = [row["hosts"] for row in hosts]
    left.plot(at, [row["switch"] for row in hosts], "o-", color="#d55e00", label="switch")
    left.plot(at, [row["without"] for row in hosts], "s-", color="#0072b2", label="without")
    cores = [row["one core"] for row in hosts]
    left.plot(at, cores, "^:", color="#cc79a7", label="switch on one core")
    narrow = [row for row in hosts if row["one link"]]
    left.plot(
        [row["hosts"] for row in narrow],
        [row["one link"] for row in narrow],
        "v--",
        color="#e69f00",
        label="switch behind one link",
    )
    for system, marker in (("switch", "*"), ("ring", "P")):
        points = [r for r in rows if r["system"] == system and round(r["mbit"]) == 1000]
        if points:
            left.plot(
                [r["ranks"] for r in points],
                [r["seconds"] for r in points],
                marker,
                color="black",
                markersize=9,
                label=f"measured: {system}",
            )
    left.set_xscale("log", base=2)
    left.set_xticks([2, 4, 8, 16, 32, 64], labels=["2", "4", "8", "16", "32", "64"])
    left.set_xlabel("hosts")
    left.set_ylabel("seconds")
    left.set_ylim(bottom=0)
    left.set_title("allreduce of 64 MiB, links of 1 Gbit/s", fontsize=10)
    left.legend(fontsize=8)
    at = [row["bytes"] for row in sizes]
    right.loglog(at, [row["switch"] for row in sizes], "o-", color="#d55e00", label="switch")
    right.loglog(at, [row["without"] for row in sizes], "s-", color="#0072b2", label="without")
    right.set_xticks([1 << 10, 1 << 14, 1 << 18, 1 << 22, 1 << 26])
    right.set_xticklabels(["1 KiB", "16 KiB", "256 KiB", "4 MiB", "64 MiB"])
    right.set_ylabel("seconds")
    right.set_title(f"simulated: {MANY} hosts, by the size of the tensor", fontsize=10)
    right.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--plot", type=Path, help="write an SVG")
    parser.add_argument("--measured", type=Path, nargs="+", default=[], help="rows of a benchmark")
    options = parser.parse_args()
    rows = measured(options.measured)
    hosts, sizes = by_hosts(), by_size()
    _print(hosts, sizes, rows)
    if options.plot is not None:
        _draw(options.plot, hosts, sizes, rows)


if __name__ == "__main__":
    main()
