# SPDX-License-Identifier: Apache-2.0
"""Runs the applications of this folder on 1, 2 and 4 hosts, with and without intent, and compares.

    python examples/store/compare.py --size full --seed 1 2 3 --out figures

Beside them is plain torch in one process; each way to train is told to be as good as that within
2 %, or not. It writes figures.json, a table in figures.md and, where there is matplotlib, a page of
plots for each application; `--from figures.json` draws again what was measured before.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import time

import report

HERE = pathlib.Path(__file__).resolve().parent


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        epilog="\n".join(__doc__.splitlines()[1:]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    known = list(report.APPLICATIONS)
    parser.add_argument("--applications", nargs="+", choices=known, default=known)
    parser.add_argument("--hosts", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--seed", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--size", choices=("small", "full"), default="small")
    parser.add_argument("--epochs", type=int, help="(default: as the size says)")
    parser.add_argument("--rate", help="of the hosts' cables: 1gbit (default: as fast as it goes)")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("figures"))
    parser.add_argument("--from", dest="given", type=pathlib.Path, metavar="JSON")
    return parser.parse_args()


def ways(options):
    """The arguments of each way to train."""
    yield ["--torch"]
    for hosts in options.hosts:
        rate = ["--rate", options.rate] if options.rate else []
        for intent in ("--intent", "--no-intent"):
            yield ["--hosts", str(hosts), intent, *rate]


def measured(application, way, options):
    """The rows of an application that trains one way, once for each seed."""
    command = [sys.executable, str(HERE / f"{application}.py"), "--json", "--size", options.size]
    command += ["--seed", *map(str, options.seed), *way]
    if options.epochs:
        command += ["--epochs", str(options.epochs)]
    print(" ".join(command[1:]), end=" ", flush=True)
    begin = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    print(f"{time.monotonic() - begin:.0f} s", flush=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def main():
    options = parse()
    if options.given is not None:
        rows = json.loads(options.given.read_text())
    else:
        rows = []
        for application in options.applications:
            for way in ways(options):
                rows += measured(application, way, options)
                options.out.with_suffix(".json").write_text(json.dumps(rows, indent=1) + "\n")
    table = report.table(rows)
    options.out.with_suffix(".md").write_text(table)
    print(table, end="")
    for line in report.verdicts(rows):
        print(line)
    for path in report.draw(rows, options.out.parent):
        print(f"drawn: {path}")


if __name__ == "__main__":
    main()
