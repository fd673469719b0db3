# SPDX-License-Identifier: Apache-2.0
"""What a job did between two looks at it: rates, shares, and who is slow."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .find import Job

VERSION = 1  # of what --json prints
SLOW = 0.05  # a rank is slow if the others wait for it for this share of their time
TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")

Shown = dict[str, Any]

# Of a rank, as the board says it.
KEPT = (
    *("rank", "pid", "host", "node", "here", "age_s", "doing"),
    *("waits_for", "waits_s", "operations", "bytes", "arena"),
)


def _process(pid: int) -> dict[str, Any] | None:
    """Of /proc/PID/stat; None if it has ended."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        # "pid (name) state ...", and the name may contain anything.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if fields[0] not in "ZX":
            cpu = (int(fields[11]) + int(fields[12])) / TICK
            return {"letter": fields[0], "cpu": cpu, "rss": int(fields[21]) * PAGE}
    return None


def look(job: Job) -> Shown:
    """The board, and the processes of this host."""
    shown = job.read()
    shown["program"] = job.program
    for rank in shown["ranks"]:
        pid = job.pids.get(rank["pid"], rank["pid"]) if rank["here"] else None
        rank["process"] = None if pid is None else _process(pid)
        rank["pid"] = rank["pid"] if pid is None else pid
    return shown


def has_ended(shown: Shown) -> bool:
    """Is no rank of this host left?"""
    here = [rank for rank in shown["ranks"] if rank["here"]]
    return all(rank["process"] is None or rank["state"] in ("left", "dead") for rank in here)


def _rate(old: Shown | None, new: Shown, key: str, seconds: float) -> float:
    """Counters go back when counting begins anew: then nothing is known."""
    more = 0.0 if old is None else new[key] - old[key]
    return max(0.0, more) / seconds if seconds > 0 else 0.0


def _share(part: float, whole: float) -> float | None:
    return None if whole <= 0 else min(1.0, max(0.0, part / whole))


def _state(rank: Shown) -> str:
    """One word for what it is up to."""
    process = rank["process"]
    if rank["state"] != "here":
        return str(rank["state"])
    if rank["here"] and process is None:
        return "dead"
    if process is not None and process["letter"] in "Tt":
        return "stopped"
    if rank["waiting"] is None:
        return "unknown"
    return "waiting" if rank["waiting"] else "running"


def _span(old: Shown | None, new: Shown, seconds: float) -> float:
    """Between the times at which two rows of a rank were true."""
    ages = [0.0 if row is None else row["age_s"] for row in (old, new)]
    return seconds if None in ages else seconds + (ages[0] or 0.0) - (ages[1] or 0.0)


def _rank(old: Shown | None, new: Shown, seconds: float, others: int) -> Shown:
    span = _span(old, new, seconds)
    process, before = new["process"], (old or {}).get("process")
    keys = _rate(old, new, "keys", span)
    known = new["age_s"] is not None
    row: Shown = {key: new[key] for key in KEPT}
    row["state"] = _state(new)
    if row["state"] != "waiting" and row["state"] != "stopped":
        row["waits_for"] = row["waits_s"] = None
    late = _rate(old, new, "awaited_s", seconds) / max(1, others)
    row |= {
        "operations_per_s": _rate(old, new, "operations", span) if known else None,
        "bytes_per_s": _rate(old, new, "bytes", span) if known else None,
        "wait_share": min(1.0, _rate(old, new, "waited_s", span)) if known else None,
        "late_share": min(1.0, late),
        "cpu": None
        if process is None or before is None or seconds <= 0
        else max(0.0, process["cpu"] - before["cpu"]) / seconds,
        "rss_bytes": None if process is None else process["rss"],
        "keys_per_s": keys if known else None,
        "local_share": _share(keys - _rate(old, new, "keys_away", span), keys),
        "copies": new["copies"] if known else None,
        "stale_s": new["stale_s"] if known else None,
    }
    return row


def _things(shown: Shown | None, what: str) -> dict[Any, dict[int, Shown]]:
    """Regions or stores: id -> rank -> what that rank shows of it."""
    found: dict[Any, dict[int, Shown]] = {}
    for rank in () if shown is None else shown["ranks"]:
        for thing in rank[what]:
            found.setdefault(thing["id"], {})[rank["rank"]] = thing
    return found


def _rates(
    old: dict[int, Shown], new: dict[int, Shown], keys: Iterable[str], seconds: float
) -> dict[str, float]:
    """Of all ranks that show it together. Where counting began anew meanwhile, what came since."""

    def rate(before: Shown | None, now: Shown, key: str) -> float:
        began_anew = before is not None and now[key] < before[key]
        return _rate({key: 0} if began_anew else before, now, key, seconds)

    return {key: sum(rate(old.get(rank), part, key) for rank, part in new.items()) for key in keys}


def _region(old: dict[int, Shown], new: dict[int, Shown], seconds: float) -> Shown:
    one = next(iter(new.values()))
    keys = ("gathers", "scatters", "rows_own", "rows_node", "rows_remote", "bytes_remote")
    rate = _rates(old, new, keys, seconds)
    rows = rate["rows_own"] + rate["rows_node"] + rate["rows_remote"]
    return {
        **{key: one[key] for key in ("id", "kind", "type", "shape", "ranks", "bytes")},
        "bytes_of_rank": {str(rank): part["own_bytes"] for rank, part in new.items()},
        "gathers_per_s": rate["gathers"],
        "scatters_per_s": rate["scatters"],
        "rows_per_s": rows,
        "remote_share": _share(rate["rows_remote"], rows),
        "remote_bytes_per_s": rate["bytes_remote"],
    }


def _hot(parts: Iterable[Shown]) -> list[Shown]:
    """The keys that were met most, of all ranks' samples."""
    met: dict[int, int] = {}
    samples = 0
    for part in parts:
        samples += part["samples"]
        for key, count in part["hot"]:
            met[key] = met.get(key, 0) + count
    best = sorted(met.items(), key=lambda item: (-item[1], item[0]))[:10]
    return [{"key": key, "share": min(1.0, count / max(1, samples))} for key, count in best]


def _store(old: dict[int, Shown], new: dict[int, Shown], seconds: float) -> Shown:
    one = next(iter(new.values()))
    keys = ("pulls", "pushes", "away_pulls", "away_pushes", "messages", "bytes", "rounds")
    rate = _rates(old, new, keys, seconds)
    used = rate["pulls"] + rate["pushes"]
    away = rate["away_pulls"] + rate["away_pushes"]
    pulls, gone = (
        sum(part[a] + part[b] for part in new.values())
        for a, b in (("pulls", "pushes"), ("away_pulls", "away_pushes"))
    )
    hosts = {part["host"]: part for part in new.values()}
    return {
        **{key: one[key] for key in ("id", "keys", "length", "type", "hosts")},
        "pulls_per_s": rate["pulls"],
        "pushes_per_s": rate["pushes"],
        "local_share": _share(used - away, used),
        "local_share_in_all": _share(pulls - gone, pulls),
        "pulls": sum(part["pulls"] for part in new.values()),
        "pushes": sum(part["pushes"] for part in new.values()),
        "owned_of_host": {str(host): part["owned"] for host, part in hosts.items()},
        "copies_of_host": {str(host): part["copies"] for host, part in hosts.items()},
        "stale_s": max(part["stale_s"] for part in new.values()),
        "messages_per_s": rate["messages"],
        "bytes_per_s": rate["bytes"],
        "rounds_per_s": rate["rounds"],
        "hot": _hot(new.values()),
        "unseen_workers": sum(part["unseen_workers"] for part in new.values()),
    }


def _slow(ranks: list[Shown]) -> Shown | None:
    worst = max(ranks, key=lambda row: row["late_share"])
    if worst["late_share"] < SLOW:
        return None
    return {"rank": worst["rank"], "late_share": worst["late_share"]}


def _unknown(new: Shown) -> list[str]:
    """What this host cannot tell."""
    told = []
    silent = [r["rank"] for r in new["ranks"] if r["age_s"] is None and r["state"] == "here"]
    if silent:
        told.append(f"nothing is known yet of ranks {', '.join(map(str, silent))} on other hosts")
    if not all(rank["here"] for rank in new["ranks"]):
        told.append("regions and stores are those of ranks of this host")
    return told


def between(old: Shown | None, new: Shown) -> Shown:
    """What --json prints, of two looks; of the first one alone there are no rates."""
    seconds = 0.0 if old is None else new["now"] - old["now"]
    before = {} if old is None else {rank["rank"]: rank for rank in old["ranks"]}
    others = sum(rank["state"] == "here" for rank in new["ranks"]) - 1
    ranks = [_rank(before.get(r["rank"]), r, seconds, others) for r in new["ranks"]]
    things = {
        what: [
            make(_things(old, what).get(key, {}), parts, seconds)
            for key, parts in _things(new, what).items()
        ]
        for what, make in (("regions", _region), ("stores", _store))
    }
    return {
        "version": VERSION,
        "job": {
            "id": new["job"],
            "name": new["name"],
            "program": new["program"],
            "age_s": max(0.0, time.time() - new["began"]),
            "hosts": new["nodes"],
            "size": len(ranks),
            "ended": has_ended(new),
        },
        "interval_s": seconds,
        "slow_rank": _slow(ranks) if ranks else None,
        "ranks": ranks,
        **things,
        "unknown": _unknown(new),
    }
