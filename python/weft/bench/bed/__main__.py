# SPDX-License-Identifier: Apache-2.0
"""Run a command on hosts that are made for it, with the variables that torchrun sets.

python -m weft.bench.bed --hosts 4 --rate 1gbit -- python train.py
"""

from __future__ import annotations

import argparse
import sys

from .bed import MOST_HOSTS, Bed, Unavailable


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m weft.bench.bed",
        description="Make hosts on this machine (as root), run a command on each, remove them.",
    )
    parser.add_argument("--hosts", type=int, default=2, metavar="N", help="(default: 2)")
    parser.add_argument(
        "--ranks", type=int, default=1, metavar="N", help="processes on each host (default: 1)"
    )
    parser.add_argument("--rate", help="of each cable: 1gbit (default: as fast as it goes)")
    parser.add_argument("--delay", help="of each packet and cable: 1ms")
    parser.add_argument(
        "--on",
        type=int,
        metavar="HOST",
        help="run it on this host alone, for launchers: they find their way by BED_RSH",
    )
    parser.add_argument("command", nargs="+", help="after --")
    return parser


def _args() -> argparse.Namespace:
    parser = _parser()
    args = parser.parse_args()
    if not 1 <= args.hosts <= MOST_HOSTS:
        parser.error(f"--hosts goes from 1 to {MOST_HOSTS}")
    if args.ranks < 1:
        parser.error("--ranks must be at least 1")
    if args.on is not None and not 0 <= args.on < args.hosts:
        parser.error(f"there is no host {args.on}: they go from 0 to {args.hosts - 1}")
    return args


def main() -> int:
    args = _args()
    try:
        with Bed(args.hosts, rate=args.rate, delay=args.delay) as bed:
            env = {"BED_RSH": str(bed.rsh)}
            if args.on is not None:
                children = [bed.popen(args.on, args.command, env=env)]
            else:
                children = bed.launch(args.command, ranks=args.ranks, env=env)
            codes = [child.wait() for child in children]
            for host in range(len(bed)):
                sent, received = bed.bytes(host)
                print(f"{bed.name(host)}: sent {sent}, received {received} bytes", file=sys.stderr)
    except Unavailable as error:
        print(f"there can be no hosts here: {error}", file=sys.stderr)
        return 77
    except KeyboardInterrupt:
        return 130
    return next((code for code in codes if code != 0), 0)


if __name__ == "__main__":
    sys.exit(main())
