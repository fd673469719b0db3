# SPDX-License-Identifier: Apache-2.0
"""`weft doctor`: one page that a person reads and a bug report can carry."""

import argparse
import sys
import textwrap
from collections.abc import Sequence

import weft
from weft import _core
from weft.cli import common
from weft.doctor import Fact, Page, job, library, machine, pytorch

WIDTH = 100
NAME = 24


EXAMPLES = (
    ("weft doctor", "the page for people"),
    ("weft doctor --json > report.json", "the same for programs, or for a bug report"),
    ("weft doctor --settings", "every setting with its value, source and help"),
    ("torchrun --no-python --nproc-per-node=2 weft doctor", "with a self test of each pair"),
)


def parser() -> argparse.ArgumentParser:
    made = common.parser(
        "weft doctor",
        "Say what this machine, PyTorch, weft, its peers and the job are. Exit status 1 when "
        "something that was asked for cannot work; the remedy is printed. Under a launcher "
        "(torchrun, mpirun, srun) every rank runs it and rank 0 reports; the others tell only what "
        "cannot work there.",
        EXAMPLES,
    )
    made.add_argument("--json", action="store_true", help="for programs")
    made.add_argument("--settings", action="store_true", help="list every setting, nothing else")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    given = parser().parse_args(argv)
    pages = [library.settings_page()] if given.settings else _pages()
    remedies = [fact.remedy for page in pages for fact in page.facts if fact.remedy]
    _, rank = _core.launcher()
    if rank == 0 and given.json:
        common.print_json(_data(pages, remedies))
    elif rank == 0:
        print(_text(pages, remedies))
    else:  # it says only what its exit status means
        for remedy in remedies:
            print(f"weft doctor: rank {rank}: {remedy}", file=sys.stderr)
    weft.finalize()
    return 1 if remedies else 0


def _pages() -> list[Page]:
    page = machine.page(library.settings())
    tested = job.page()
    torch = pytorch.page_apart()
    pages = [page, torch, library.page(page)]
    _, rank = _core.launcher()
    if rank == 0:  # nothing of it can be a problem of another rank
        pages.append(library.peers_page(torch))
    return [*pages, *([tested] if tested else [])]


def _data(pages: list[Page], remedies: list[str]) -> dict:
    content = {page.title: {fact.name: fact.data for fact in page.facts} for page in pages}
    return {**content, "problems": remedies}


def _text(pages: list[Page], remedies: list[str]) -> str:
    lines = []
    for page in pages:
        lines += [page.title, *(line for fact in page.facts for line in _fact(fact)), ""]
    if remedies:
        lines += ["cannot work", *(f"  {remedy}" for remedy in remedies)]
    else:
        lines.append("nothing that was asked for is missing")
    return "\n".join(lines)


def _fact(fact: Fact) -> list[str]:
    if "\n" in fact.text:  # a picture
        return ["", *(f"  {line}" for line in fact.text.splitlines())]
    # A path stays in one piece, so that it can be copied.
    lines = textwrap.wrap(
        fact.text, WIDTH - NAME - 3, break_long_words=False, break_on_hyphens=False
    )
    lines = lines or [""]
    mark = "!" if fact.remedy else " "
    indent = " " * (NAME + 3)
    return [f"{mark} {fact.name:{NAME}} {lines[0]}", *(indent + line for line in lines[1:])]
