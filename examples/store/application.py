# SPDX-License-Identifier: Apache-2.0
"""What the applications of this folder share: the command line, seeds, and what a run costs.

An application calls `run` with two functions that train its model and return how good it is: one
with weft.Store and one with plain torch. Each is given a `Meter`, which it enters for every epoch.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import statistics
import sys
import time
import warnings

import hosts
import torch
import weft


def zipf(n, exponent):
    """The probabilities of n things of which few are frequent: that of the k-th is ~ k^-exponent"""
    weights = torch.arange(1, n + 1, dtype=torch.float64) ** -exponent
    return weights / weights.sum()


def draw(probabilities, shape, generator):
    """Independent draws, by the inverse of the distribution function."""
    uniform = torch.rand(shape, dtype=torch.float64, generator=generator)
    found = torch.searchsorted(probabilities.cumsum(0), uniform)
    return found.clamp_(max=len(probabilities) - 1)


def settle(*stores):
    """Let everybody see what everybody has pushed. Collective."""
    for store in stores:
        store.wait_all()
    for _ in range(2):
        for store in stores:
            store.wait_sync()
        stores[0].barrier()


class Meter:
    """Measures epochs: their time, how many accesses stayed on the host, the bytes that did not."""

    def __init__(self):
        self.seconds, self.counted = [], []

    @contextlib.contextmanager
    def epoch(self, *stores):
        """Around an epoch on these stores; collective if there are any."""
        for store in stores:
            store.reset_stats()
            store.barrier()
        sent = cable_bytes() if stores else 0
        begin = time.perf_counter()
        yield
        for store in stores:
            store.wait_all()
            store.barrier()
        self.seconds.append(time.perf_counter() - begin)
        if stores:
            self._count(stores, cable_bytes() - sent)

    def _count(self, stores, sent):
        """Add up what all ranks have counted."""
        names = ("pulls", "pushes", "local_pulls", "local_pushes", "bytes")
        found = [store.stats() for store in stores]
        mine = [sum(each[name] for each in found) for name in names]
        total = torch.tensor([*mine, sent], dtype=torch.float64)
        weft.world().comm.allreduce(total)
        pulls, pushes, local_pulls, local_pushes, messages, cable = total.tolist()
        self.counted.append(
            {
                "local_share": (local_pulls + local_pushes) / (pulls + pushes),
                "local_pulls": local_pulls / pulls,
                "store_bytes": messages,
                "cable_bytes": cable,
            }
        )

    def row(self):
        """The median epoch, as numbers for a table."""
        found = {"seconds": statistics.median(self.seconds), "epochs": len(self.seconds)}
        for name in self.counted[0] if self.counted else ():
            found[name] = statistics.median(each[name] for each in self.counted)
        if hosts.CABLE not in os.environ:
            found["cable_bytes"] = None
        return found


def cable_bytes():
    """Bytes that this host has sent through its cable; its first rank counts them."""
    world = weft.world()
    name = os.environ.get(hosts.CABLE)
    if name is None or any(p.node == world.node for p in world.peers[: world.rank]):
        return 0
    return int(pathlib.Path(f"/sys/class/net/{name}/statistics/tx_bytes").read_text())


def parse(about, sizes):
    """The command line of an application, whose sizes are dictionaries by name."""
    lines = about.splitlines()
    parser = argparse.ArgumentParser(
        description=lines[0],
        epilog="\n".join(lines[1:]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--hosts",
        type=_not_negative,
        default=0,
        metavar="N",
        help="make N hosts of this machine and train on them (default: this process is a rank)",
    )
    parser.add_argument("--ranks-per-host", type=_positive, default=1, metavar="N")
    parser.add_argument(
        "--pretend", action="store_true", help="hosts without namespaces, as where one is not root"
    )
    parser.add_argument("--rate", help="of the hosts' cables: 1gbit (default: as fast as it goes)")
    parser.add_argument(
        "--intent",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="announce ahead what will be used",
    )
    parser.add_argument("--torch", action="store_true", help="plain torch in one process, no store")
    parser.add_argument("--seed", type=int, nargs="+", default=[1], help="train once for each")
    parser.add_argument("--size", choices=sizes, default="small")
    parser.add_argument("--epochs", type=_positive, help="(default: as the size says)")
    parser.add_argument(
        "--ahead", type=_not_negative, default=20, help="batches that are announced early"
    )
    parser.add_argument(
        "--sampling",
        choices=("naive", "preloc", "pool", "local"),
        help="how negative samples are drawn (default: preloc, or naive without intent)",
    )
    parser.add_argument("--json", action="store_true", help="print rows of JSON")
    options = parser.parse_args()
    if options.torch and options.hosts:
        parser.error("--torch trains in one process: it takes no --hosts")
    options.data = argparse.Namespace(**sizes[options.size])
    options.epochs = options.epochs or options.data.epochs
    options.sampling = options.sampling or ("preloc" if options.intent else "naive")
    options.ahead = options.ahead if options.intent else 0
    return options


def _at_least(least, text):
    if not re.fullmatch(r"-?[0-9]+", text) or int(text) < least:
        raise argparse.ArgumentTypeError(f"must be a whole number from {least} on, not {text}")
    return int(text)


def _positive(text):
    return _at_least(1, text)


def _not_negative(text):
    return _at_least(0, text)


def run(name, options, with_store, with_torch):
    """Train for each seed, here or on hosts that are made for it, and print what came of it."""
    warnings.filterwarnings("ignore", message="Sparse invariant checks")
    if options.hosts:
        _run_on_hosts(options)
        return
    torch.set_num_threads(1)
    for seed in options.seed:
        meter = Meter()
        torch.manual_seed(seed)
        found = (with_torch if options.torch else with_store)(options, seed, meter)
        if options.torch or weft.rank() == 0:
            row = {
                "application": name,
                "size": options.size,
                "system": "torch" if options.torch else "weft",
                "intent": options.intent and not options.torch,
                "seed": seed,
                **_place(options),
                **meter.row(),
                **found,
            }
            show(row, options.json)


def _run_on_hosts(options):
    arguments = sys.argv[1:] if options.json else [*sys.argv[1:], "--json"]
    # The last one counts: the ranks make no hosts of their own.
    command = [os.path.abspath(sys.argv[0]), *arguments, "--hosts", "0"]
    many = options.hosts, options.ranks_per_host
    where = hosts.kind(options.pretend)
    for line in hosts.run(command, *many, options.rate, options.pretend):
        show({**json.loads(line), "where": where}, options.json)


def _place(options):
    if options.torch:
        return {"hosts": 1, "ranks": 1}
    world = weft.world()
    return {"hosts": len({peer.node for peer in world.peers}), "ranks": world.size}


def show(row, as_json):
    """Print a row, for programs or for people."""
    if as_json:
        print(json.dumps(row), flush=True)
        return
    print(f"{row['application']}, {described(row)}, seed {row['seed']}:")
    measures = ", ".join(f"{name} {value:.4f}" for name, value in row["measures"].items())
    print(f"  {measures}")
    costs = [f"epoch {row['seconds']:.3f} s"]
    if row["system"] == "weft":
        local = f"{row['local_share']:.1%} of the accesses were local"
        costs.append(f"{local} ({row['local_pulls']:.1%} of the pulls)")
        costs.append(f"{row['store_bytes'] / 1e6:.2f} MB in the store's messages")
    if row.get("cable_bytes") is not None:
        costs.append(f"{row['cable_bytes'] / 1e6:.2f} MB on the cables")
    print("  " + ", ".join(costs), flush=True)


def described(row):
    """Who trained, in words."""
    if row["system"] == "torch":
        return "plain torch"
    intent = "with intent" if row["intent"] else "without intent"
    where = f" ({row['where']})" if "where" in row else ""
    counts = [
        f"{n} {word}{'s' * (n > 1)}" for word, n in (("host", row["hosts"]), ("rank", row["ranks"]))
    ]
    return f"{counts[0]}{where}, {counts[1]}, {intent}"
