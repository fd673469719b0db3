# SPDX-License-Identifier: Apache-2.0
"""`weft bench switch`: who takes part on which network.

Switches run where the cables of all hosts end, each on a core of its own where goodput is measured.
A turn counts only if its switch has reduced all of its chunks: weft would go on without one.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..bed import Unavailable, missing
from ..collectives.systems import WEFT
from ..hosts.bed_runner import (
    FREE,
    GLOO_RANKS,
    IPERF3,
    WEFT_RANKS,
    BedRunner,
    BedSetup,
    sharing_cores,
)
from ..hosts.job import BedJob
from ..hosts.limit import Cable, ring_us
from ..job import Job, JobError
from ..results import Block, Case, block_from, paired_ratios
from ..runner import Options, Outcome, Setup, cores_here, interruptible, progress
from ..systems import FREE_GLOO_LINE, GLOO_LINE, WEFT_LINE, Line, System
from .bare import BARE, bare_us
from .capacity import Links, links_for
from .daemon import PROGRAM, Daemon

_KIB, _MIB = 1 << 10, 1 << 20
GOODPUT, JUMBO, SMALL = "goodput_1k", "goodput_8k", "small"
UNLIMITED, LIMITED = "unlimited", "limited"
SIZES = {
    GOODPUT: 16 * _MIB,
    JUMBO: 16 * _MIB,
    SMALL: _KIB,
    UNLIMITED: 64 * _MIB,
    LIMITED: 64 * _MIB,
}
OPERATIONS = {op: (size,) for op, size in SIZES.items()}
MANY_HOSTS = (4, 8)  # those of marks
_SOME_HOSTS = (3, *MANY_HOSTS)
# Systems with loss: what a switch loses of all packets each way, and what goodput must be left.
LOSSES = {"loss-0.1%": (0.001, 0.9), "loss-1%": (0.01, 0.6)}
# Bytes of a packet's payload: as many floats with their exponents, two bytes for each 64 of them.
_PACKETS = {256: 1088, 2048: 8256}
_FRAMES = 9000


@dataclass(frozen=True)
class Through(System):
    """Ranks of weft whose allreduce goes through a switch.

    loses:  what that switch loses of all packets, each way
    alone:  it has a core that the ranks leave to it
    floats: in a packet
    """

    loses: float = 0.0
    alone: bool = False
    floats: int = 256

    @property
    def daemon(self) -> tuple[float, bool]:
        """Those for whom it is equal have one switch."""
        return self.loses, self.alone


def _lossy(name: str, loses: float, color: str) -> Through:
    about = f"the same, with {loses:.1%} of all packets lost each way"
    line = Line(f"switch, {loses:.1%} loss", color, "v")
    return Through(name, WEFT, about=about, only_op=GOODPUT, loses=loses, alone=True, line=line)


def _limit(name: str, op: str, about: str) -> System:
    line = Line("iperf3", "#555555", linestyle="--")
    return System(name, IPERF3, about=about, only_op=op, checked=False, line=line)


def _bare(name: str, op: str, about: str) -> System:
    line = Line("packets alone", "#999999", linestyle=":")
    return System(name, BARE, about=about, only_op=op, checked=False, line=line)


_SWITCH_LINE = Line("switch", WEFT_LINE.color, "o")

SYSTEMS: tuple[System, ...] = (
    Through(
        "switch",
        WEFT,
        about="weft from C",
        lacks=frozenset({SMALL, JUMBO}),
        alone=True,
        line=_SWITCH_LINE,
    ),
    *(
        _lossy(name, loses, color)
        for (name, (loses, _)), color in zip(LOSSES.items(), ("#e69f00", "#f0c75e"), strict=True)
    ),
    Through(
        "switch-8k",
        WEFT,
        about="the same, 8 KiB in a packet",
        only_op=JUMBO,
        alone=True,
        floats=2048,
        line=_SWITCH_LINE,
    ),
    Through("weft", WEFT_RANKS, about='init_process_group("weft")', only_op=SMALL, line=WEFT_LINE),
    System("gloo", GLOO_RANKS, about='init_process_group("gloo")', only_op=SMALL, line=GLOO_LINE),
    System(
        "gloo-free",
        GLOO_RANKS,
        env=FREE,
        about="the same, not pinned",
        only_op=SMALL,
        line=FREE_GLOO_LINE,
    ),
    System(
        "ring",
        WEFT,
        about="weft from C, without a switch",
        lacks=frozenset({GOODPUT, JUMBO, SMALL}),
        line=Line("ring", "#0072b2", "s"),
    ),
    _limit("udp", GOODPUT, "iperf3: datagrams of 1 KiB"),
    _limit("tcp", JUMBO, "iperf3: one TCP stream"),
    _limit("iperf3", LIMITED, "a ring's bytes over TCP"),
    _bare("bare", GOODPUT, "the packets of `switch` through a core that only sends them back"),
    _bare("bare-8k", JUMBO, "the packets of `switch-8k` likewise"),
)
NAMES = tuple(system.name for system in SYSTEMS)
# A quick run has time for few hosts with limited links; what it starts last ends in time.
_QUICK_HOSTS = (4,)
_QUICK_ENDS = (26.0, 31.0, 36.0, 42.0)
_UDP = ("--udp", "--bitrate", "0", "--length", "1024")


def _setup(options: Options, cores: Sequence[int], hosts: int, *ops: str, mtu: int = 1500) -> Setup:
    """Those of `ops` that were asked for, on one network."""
    wanted = [op for op in ops if op in (options.ops or OPERATIONS)]
    cases = [
        Case(op, size, hosts, len(cores))
        for op in wanted
        for size in options.sizes or OPERATIONS[op]
    ]
    chosen = [s for s in SYSTEMS if options.wants(s.name) and any(map(s.has, wanted))]
    if len(cores) <= hosts:  # one more than hosts, for the switch
        chosen = [sharing_cores(s) for s in chosen]
    return BedSetup(hosts, tuple(cores), tuple(cases), tuple(chosen), None, mtu)


def plan(options: Options, cores: Sequence[int]) -> list[Setup]:
    """Two hosts with small and with large frames; then several hosts, first without limits."""
    setups = [
        _setup(options, cores, 2, GOODPUT, SMALL),
        _setup(options, cores, 2, JUMBO, mtu=_FRAMES),
    ]
    for hosts in options.ranks or (_QUICK_HOSTS if options.quick else _SOME_HOSTS):
        setups += [_setup(options, cores, hosts, op) for op in (UNLIMITED, LIMITED)]
    return [setup for setup in setups if setup.cases and setup.systems]


class SwitchRunner(BedRunner):
    """The rounds of the other programs, with switches in the network."""

    def __init__(self, options: Options):
        super().__init__(options, SYSTEMS)
        self._stack = contextlib.ExitStack()
        self._daemons: dict[tuple[float, bool], Daemon] = {}
        self._cables: dict[bool, Cable] = {}
        self._cores: Sequence[int] = ()
        self.links: list[Links] = []

    def _quick_end(self, number: int, setups: int) -> float:
        return _QUICK_ENDS[min(number, len(_QUICK_ENDS) - 1)]

    def _run(self, setup: Setup, advance: Callable[[str], None]) -> None:
        assert isinstance(setup, BedSetup)
        self._cables.clear()
        self._cores = setup.cores
        if setup.cases[0].op == LIMITED:
            setup = replace(setup, rate=self._rate(setup.ranks))
        try:
            super()._run(setup, advance)
        finally:
            self._stack.close()
            self._daemons.clear()

    def _rate(self, hosts: int) -> str:
        """That of links which the cores can serve, from the turns without a limit."""
        found = links_for(hosts, (b for b in self.outcome.blocks if b.case.op == UNLIMITED))
        if found is None:
            return "1gbit"
        self.links.append(found)
        return found.words

    def _takes_turn(self, case: Case, turn: int) -> bool:
        """What is only measured to choose a rate needs no more turns than that."""
        return case.op != UNLIMITED or turn < 2

    def _job(self, setup: Setup, system: System, folder: Path) -> Job:
        cores = setup.cores
        if isinstance(system, Through):
            system = replace(system, env={**system.env, **self._settings(system)})
            if system.alone and len(cores) > 1 and setup.ranks == 2:
                cores = cores[1:]
        return BedJob(self._bed, system, self._programs[system.family], cores, folder)

    def _settings(self, system: Through) -> Mapping[str, str]:
        daemon = self._daemons.get(system.daemon)
        if daemon is None:
            faults = ("--inject", f"loss={system.loses}") if system.loses else ()
            core = self._cores[0] if system.alone and len(self._bed) == 2 else None
            daemon = self._stack.enter_context(Daemon(self._bed, *faults, core=core))
            self._daemons[system.daemon] = daemon
        payload = {"WEFT_SWITCH_PAYLOAD": str(_PACKETS[system.floats])}
        return {**daemon.settings, **payload, "WEFT_ENGINE": "switch"}

    def _block(self, system: System, jobs: dict[str, Job], case: Case, turn: int) -> None:
        if not isinstance(system, Through):
            super()._block(system, jobs, case, turn)
            return
        if (system, case) not in self._checked:
            self._checked.add((system, case))
            self._ask(jobs, system, "check", case)
        before = self._daemons[system.daemon].chunks() if system.job in jobs else 0
        answers = self._ask(jobs, system, "block", case)
        if answers is None:
            return
        each = -(-case.bytes // (4 * system.floats))
        reduced = self._daemons[system.daemon].chunks() - before
        if reduced < answers[0][5] * each:
            error = JobError(f"calls did not go through the switch, which reduced {reduced} chunks")
            self._drop(jobs, system, case.ranks, error)
            return
        block = block_from(case, system.name, turn, answers)
        if block is not None:
            self.outcome.blocks.append(block)

    def _least(self, system: System, case: Case) -> float:
        """Between hosts for a ring; else from a host to the switch, which has its own core."""
        if system.family is BARE:
            floats = 256 if case.op == GOODPUT else 2048
            program = self._programs[BARE].path
            packets = -(-case.bytes // (4 * floats))
            return bare_us(self._bed, program, _PACKETS[floats], packets, self._cores)
        in_switch = system.name != "iperf3"
        if in_switch not in self._cables:
            cores = (self._cores[-1], self._cores[0]) if in_switch else None
            client = 0 if in_switch else 1
            self._cables[in_switch] = Cable(self._bed, client, in_switch=in_switch, cores=cores)
        cable = self._cables[in_switch]
        if not in_switch:
            return ring_us(case.bytes, case.ranks, cable.bytes_per_second())
        return case.bytes / cable.bytes_per_second(*(_UDP if system.name == "udp" else ())) * 1e6


def _beside_bare(blocks: Sequence[Block]) -> Iterator[str]:
    """How much more than packets alone the switch needs, in the same rounds."""
    for op, ours, bare in ((GOODPUT, "switch", "bare"), (JUMBO, "switch-8k", "bare-8k")):
        case = Case(op, SIZES[op], 2, 0)
        here = [replace(b, case=case) for b in blocks if b.case.op == op and b.case.ranks == 2]
        if found := paired_ratios(here, case, ours, bare, "any"):
            ratio = statistics.median(found)
            yield f"{op}: {ours} takes {ratio:.2f} times as long as its packets alone ({bare})"


def _told(links: Links) -> dict:
    """The share of what the cores can move that links together had."""
    values = dict.fromkeys(("value", "low", "high"), links.share)
    who = {"bench": "switch", "case": "share of what the cores can move", "system": "switch"}
    return {**who, "ranks": links.hosts, "bytes": 0, "unit": "", **values, "rate": links.rate}


def measure(options: Options) -> Outcome:
    """A whole run. To be called from the main thread."""
    if (why := missing()) is not None:
        return Outcome(missing={"switch": f"there can be no hosts here: {why}"})
    if not PROGRAM.exists():
        return Outcome(missing={"switch": f"{PROGRAM} is not there; install the package again"})
    runner = SwitchRunner(options)
    runner.prepare()
    setups = plan(options, cores_here(options.cores))
    with interruptible(runner.outcome), progress(runner.total(setups)) as advance:
        try:
            runner.run_all(setups, advance)
        except Unavailable as error:
            runner.outcome.failed["hosts"] = str(error)
    runner.finish()
    runner.outcome.ready += map(_told, runner.links)
    runner.outcome.notes += map(str, runner.links)
    runner.outcome.notes += _beside_bare(runner.outcome.blocks)
    if options.quick and options.ops is None:
        runner.outcome.notes.append("3 and 8 hosts with limited links: left to a full run")
    return runner.outcome


def about() -> Mapping[str, str]:
    """What the systems are, by name."""
    return {system.name: system.about for system in SYSTEMS}
