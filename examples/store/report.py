# SPDX-License-Identifier: Apache-2.0
"""The table and the plots of `compare.py`: quality, and what it costs."""

import collections
import statistics
from typing import NamedTuple

from weft.bench import plots


class Application(NamedTuple):
    """How the quality of an application is called, and what else is drawn beside it."""

    title: str
    quality: str
    better: str
    bound: str | None  # the measure that no model can be better than


APPLICATIONS = {
    "kge": Application("Knowledge-graph embeddings", "MRR", "higher", "MRR of the plant"),
    "word2vec": Application("Word vectors", "purity", "higher", None),
    "mf": Application("Matrix factorisation", "RMSE", "lower", "RMSE of the noise"),
}
SAME = 0.02  # how far from plain torch's the quality of a way may be, in the mean of all seeds
HITS = ("Hits@1", "Hits@3", "Hits@10")  # measures of knowledge-graph embeddings
WAYS = {"without intent": "#d95f02", "with intent": "#1b9e77"}


class Way(NamedTuple):
    """One way to train: on how many hosts, or with plain torch, which has none."""

    hosts: int
    name: str


PLAIN = Way(0, "plain torch")


def _way(row):
    if row["system"] == "torch":
        return PLAIN
    return Way(row["hosts"], "with intent" if row["intent"] else "without intent")


def _by_way(rows):
    found = collections.defaultdict(list)
    for row in rows:
        found[_way(row)].append(row)
    return dict(sorted(found.items()))


def _megabytes(row):
    count = row.get("cable_bytes")
    return (row["store_bytes"] if count is None else count) / 1e6


def _numbers(rows, of):
    found = [of(row) for row in rows]
    return statistics.mean(found), min(found), max(found)


def _text(numbers, form):
    mean, low, high = (form.format(number) for number in numbers)
    return mean if low == high else f"{mean} ({low}-{high})"


def _of_torch(ways, found):
    """The quality of some rows over that of plain torch; None if it was not measured."""
    plain = ways.get(PLAIN)
    if plain is None:
        return None
    quality, of_plain = (_numbers(some, lambda row: row["quality"]) for some in (found, plain))
    return quality[0] / of_plain[0]


def _hits(found):
    measures = [row["measures"] for row in found]
    if not all(name in each for each in measures for name in HITS):
        return "-"
    return " ".join(f"{statistics.mean(each[name] for each in measures):.3f}" for name in HITS)


def verdicts(rows):
    """A line for each application and way: is it as good as torch, in the mean of all seeds?"""
    for name in APPLICATIONS:
        ways = _by_way([row for row in rows if row["application"] == name])
        for way, found in ways.items():
            share = _of_torch(ways, found)
            if share is None or way == PLAIN:
                continue
            seeds = f"{len(found)} seed{'s' * (len(found) > 1)}"
            where = f"{way.hosts} host{'s' * (way.hosts > 1)}, {way.name}, {seeds}"
            same = "within" if abs(share - 1) <= SAME else "NOT within"
            yield f"{name} on {where}: {share:.1%} of torch's quality, {same} {SAME:.0%}"


def table(rows):
    """Markdown: a line for each application and way, the mean of all seeds (least-most)."""
    lines = [
        "| | hosts | | quality | of torch's | Hits@1, 3, 10 | epoch, s | local | MB an epoch |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, about in APPLICATIONS.items():
        ways = _by_way([row for row in rows if row["application"] == name])
        for way, found in ways.items():
            quality = _numbers(found, lambda row: row["quality"])
            cells = [name, str(way.hosts or "-"), way.name]
            cells.append(f"{about.quality} {_text(quality, '{:.4f}')}")
            of_torch = _of_torch(ways, found)
            cells.append(f"{of_torch:.1%}" if of_torch else "-")
            cells.append(_hits(found))
            cells.append(_text(_numbers(found, lambda row: row["seconds"]), "{:.2f}"))
            if way.hosts:
                cells.append(_text(_numbers(found, lambda row: row["local_share"]), "{:.1%}"))
                cells.append(_text(_numbers(found, _megabytes), "{:.1f}"))
            else:
                cells += ["-", "-"]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _bars(axes, ways, of):
    """Bars side by side for each number of hosts, from the least to the most of all seeds."""
    hosts = sorted({way.hosts for way in ways if way.hosts})
    for number, (name, color) in enumerate(WAYS.items()):
        present = [place for place, n in enumerate(hosts) if Way(n, name) in ways]
        found = [_numbers(ways[Way(hosts[place], name)], of) for place in present]
        axes.bar(
            [place + 0.38 * (number - 0.5) for place in present],
            [mean for mean, _, _ in found],
            0.36,
            yerr=[[m - low for m, low, _ in found], [high - m for m, _, high in found]],
            error_kw={"elinewidth": 0.8, "ecolor": "#555555"},
            color=color,
            label=name,
        )
    axes.set_xticks(range(len(hosts)), [str(n) for n in hosts])
    axes.set_xlabel("hosts")
    axes.grid(axis="y", alpha=0.3)


def _across(axes, value, label, style):
    axes.axhline(value, color="#444444", linestyle=style, linewidth=1.2, label=label)


def _page(pyplot, about, ways):
    page, grid = pyplot.subplots(2, 2, figsize=(10, 7), layout="constrained")
    quality, seconds, local, sent = grid.flat
    _bars(quality, ways, lambda row: row["quality"])
    _bars(seconds, ways, lambda row: row["seconds"])
    _bars(local, ways, lambda row: 100 * row["local_share"])
    _bars(sent, ways, _megabytes)
    plain = ways.get(PLAIN)
    if plain:
        _across(quality, _numbers(plain, lambda row: row["quality"])[0], "plain torch", "--")
        _across(seconds, _numbers(plain, lambda row: row["seconds"])[0], "plain torch", "--")
    if about.bound:
        some = [row for found in ways.values() for row in found]
        bound = _numbers(some, lambda row: row["measures"][about.bound])[0]
        _across(quality, bound, about.bound, ":")
    quality.set(title=f"{about.quality} ({about.better} is better)")
    seconds.set(title="epoch, s")
    local.set(title="accesses that were local, %")
    sent.set(title="between hosts, MB an epoch")
    page.suptitle(about.title)
    handles, labels = quality.get_legend_handles_labels()
    page.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=9)
    return page


def draw(rows, folder):
    """A page of plots for each application; the files that were written."""
    if (why := plots.unavailable()) is not None:
        print(f"not drawn: {why}")
        return
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    for name, about in APPLICATIONS.items():
        ways = _by_way([row for row in rows if row["application"] == name])
        if not any(way.hosts for way in ways):
            continue
        # So that the same figures give the same file.
        with matplotlib.rc_context({"svg.hashsalt": name, "svg.fonttype": "path"}):
            page = _page(pyplot, about, ways)
            path = folder / f"{name}.svg"
            page.savefig(path, format="svg", metadata={"Date": None})
            pyplot.close(page)
        yield path
