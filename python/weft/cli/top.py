# SPDX-License-Identifier: Apache-2.0
"""`weft top`: a live view of a running job of the same user."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence

import weft

from ..top import Refused, find, page, sample
from .common import fail, parser, print_json, table

PROG = "weft top"
DESCRIPTION = """Show what the ranks of a running job do, whom they wait for, operations and bytes a
second, slow ranks, regions and stores; without stopping it, and of your own jobs only. Without
arguments the jobs of this host are listed, and if there is just one it is shown. What is not
written to a terminal is written once. Exit status 2 if there is no such job, or it is not yours."""
EXAMPLES = (
    ("weft top", "the job of this host, or a list of them"),
    ("weft top --pid 4711", "the job of a process: of any of its ranks, or their launcher"),
    ("weft top --job train.py", "by WEFT_JOB, the launcher's id, the script, or the id"),
    ("weft top --once --json", "for programs"),
)


def _interval(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.01 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time from 0.01 to 3600 seconds")
    return value


def _parser() -> argparse.ArgumentParser:
    made = parser(PROG, DESCRIPTION, EXAMPLES)
    which = made.add_mutually_exclusive_group()
    which.add_argument("--pid", type=int, metavar="N", help="the job of this process")
    which.add_argument("--job", metavar="NAME", help="name, script or beginning of the id of a job")
    made.add_argument("--once", action="store_true", help="print one interval, and end")
    made.add_argument("--json", action="store_true", help="for programs (with it: --once)")
    made.add_argument(
        "--interval", type=_interval, default=1.0, metavar="S", help="seconds (default: 1)"
    )
    return made


def _seen(jobs: list[find.Job]) -> list[tuple[find.Job, sample.Shown]]:
    """Those that can be read, with what they show; others are told of."""
    seen = []
    for job in jobs:
        try:
            shown = sample.look(job)
        except weft.Error as error:
            pids = ", ".join(map(str, job.pids.values()))
            print(f"{PROG}: process {pids}: {error}", file=sys.stderr)
        else:
            if not sample.has_ended(shown):
                seen.append((job, shown))
    return seen


def _as_jobs(seen: list[tuple[find.Job, sample.Shown]]) -> list[tuple[find.Job, sample.Shown]]:
    """Each job once: one whose hosts are namespaces of this machine has a board on each of them."""
    first: dict[str, tuple[find.Job, sample.Shown]] = {}
    for job, shown in seen:
        kept = first.setdefault(shown["job"], (job, shown))[0]
        if kept is not job:
            kept.elsewhere += sorted(job.pids.values())
            job.close()
    return list(first.values())


def _rows(seen: list[tuple[find.Job, sample.Shown]]) -> list[dict]:
    return [
        {
            "id": shown["job"],
            "name": shown["name"],
            "program": job.program,
            "size": len(shown["ranks"]),
            "hosts": shown["nodes"],
            "age_s": max(0.0, time.time() - shown["began"]),
            "pids": sorted([*job.pids.values(), *job.elsewhere]),
        }
        for job, shown in seen
    ]


def _list(seen: list[tuple[find.Job, sample.Shown]], as_json: bool) -> int:
    rows = _rows(seen)
    if as_json:
        print_json({"version": sample.VERSION, "jobs": rows})
        return 0
    if not rows:
        print(f"no job of {find.user_name(os.geteuid())} is running on this host")
        return 0
    cells = []
    for row in rows:
        pids = " ".join(map(str, row["pids"][:8])) + (" ..." if len(row["pids"]) > 8 else "")
        name, size = row["name"] or "-", str(row["size"])
        cells.append([row["id"], name, row["program"], size, page.age(row["age_s"]), pids])
    print(table(["id", "name", "program", "ranks", "age", "pids"], cells, left=6))
    if len(rows) > 1:
        print("weft top --job ID, or --pid PID, shows one of them")
    return 0


def _chosen(args: argparse.Namespace) -> tuple[find.Job | None, list]:
    """The job that was asked for, or the only one; else None, and those there are."""
    if args.pid is not None:
        return find.by_pid(args.pid), []
    seen = _as_jobs(_seen(find.jobs()))
    if args.job is not None:
        fitting = [job for job, shown in seen if find.matches(job, shown, args.job)]
        if len(fitting) != 1:
            how = "no job of yours fits" if not fitting else f"{len(fitting)} jobs of yours fit"
            raise Refused(f"{how} {args.job!r} on this host; weft top lists them")
        return fitting[0], seen
    return (seen[0][0] if len(seen) == 1 else None), seen


def _once(job: find.Job, args: argparse.Namespace) -> int:
    before = sample.look(job)
    time.sleep(args.interval)
    view = sample.between(before, sample.look(job))
    if args.json:
        print_json(view)
    else:
        print("\n".join(page.lines(view)))
    return 0


def run(args: argparse.Namespace) -> int:
    job, seen = _chosen(args)
    if job is None:
        return _list(seen, args.json)
    if args.once or args.json or not (sys.stdout.isatty() and sys.stdin.isatty()):
        return _once(job, args)
    from ..top import screen  # curses, which not every Python has

    screen.show(job, args.interval)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    try:
        return run(args)
    except (Refused, weft.Error) as error:
        return fail(PROG, str(error))
    except ImportError as error:
        return fail(PROG, f"this Python has no curses ({error}): use --once")


if __name__ == "__main__":
    sys.exit(main())
