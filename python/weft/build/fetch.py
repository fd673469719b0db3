# SPDX-License-Identifier: Apache-2.0
"""The first steps of every build: its tree."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from . import Failed, apt
from .recipe import Step
from .source import Source


def source_steps(package: str, source: Source, work: Path) -> list[Step]:
    """Copy a tree, or fetch and unpack Debian's source package, with Debian's patches."""
    tree = work / "source"
    if source.folder is not None:
        command = ("cp", "-a", "--reflink=auto", str(source.folder), str(tree))
        return [Step("copy", "copying the source", command, work, fresh=(tree,))]
    lists, download = work / "apt", work / "download"
    get = apt.command(lists)
    unpack = "dpkg-source --no-check -x *.dsc ../source"
    return [
        Step("sources", "naming package sources", apt.prepare(source.release), lists),
        Step("lists", "reading Debian's lists", (*get, "update"), work),
        Step("download", "fetching the source", (*get, "source", "-d", package), download),
        Step("unpack", "unpacking the source", ("sh", "-c", unpack), download, fresh=(tree,)),
    ]


def check_tree(tree: Path, marks: tuple[str, ...], package: str) -> None:
    missing = [mark for mark in marks if not (tree / mark).exists()]
    if missing:
        raise Failed(f"what was unpacked is not {package}: it has no {missing[0]}")


def is_empty(folder: Path) -> bool:
    """Whether a folder holds nothing, as that of a submodule that was not fetched."""
    try:
        return not stat.S_ISDIR(folder.stat().st_mode) or not os.listdir(folder)
    except OSError:
        return True
