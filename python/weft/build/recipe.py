# SPDX-License-Identifier: Apache-2.0
"""What a package is built with: its steps, each a command that can be read and repeated."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from . import Refused
from .source import Source


@dataclass(frozen=True)
class Step:
    """A command of a build, or something that we do ourselves (`action`)."""

    name: str
    what: str  # "compiling", for the progress bar
    command: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str] = field(default_factory=dict)
    fresh: tuple[Path, ...] = ()  # removed first: the command would stumble over half of them
    action: Callable[[], None] | None = None  # done in place of the command, which describes it
    count: tuple[str, ...] = ()  # prints the commands that are going to run: how much there is

    def shell(self) -> str:
        """The line that does the same in a shell."""
        settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in self.env.items())
        words = shlex.join(self.command)
        folder = shlex.quote(str(self.cwd))
        made = f"mkdir -p {folder} && cd {folder}"
        return f"({made} && {settings}{' ' * bool(settings)}{words})"


@dataclass(frozen=True)
class Wanted:
    """What was asked for."""

    source: Source
    prefix: Path
    options: Mapping[str, str]
    jobs: int
    configure_only: bool = False


class Recipe(Protocol):
    """How one package is built. `check` refuses before anything is written."""

    name: str
    marks: tuple[str, ...]  # in every source tree of it
    release: str | None  # Debian's, where none is asked for
    space: int  # bytes that a build takes at least

    def options(self, given: Mapping[str, str]) -> dict[str, str]: ...

    def check(self, wanted: Wanted) -> list[str]: ...

    def steps(self, wanted: Wanted, work: Path) -> list[Step]: ...

    def version(self, tree: Path) -> str: ...


def pairs(given: list[str]) -> dict[str, str]:
    """`--option K=V` as a dictionary."""
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise Refused(f"--option {text}: write NAME=VALUE")
        found[name] = value
    return found


def compiler(variable: str, names: tuple[str, ...], package: str) -> str:
    """The compiler that the environment names, or the first of `names` that is here."""
    words = shlex.split(os.environ.get(variable, "")) or [*names]
    wanted = words[:1] if os.environ.get(variable) else words
    for name in wanted:
        if shutil.which(name):
            return os.environ.get(variable) or name
    if os.environ.get(variable):
        raise Refused(f"the compiler {wanted[0]} that {variable} names is not here")
    raise Refused(f"there is no compiler ({', '.join(names)}): apt-get install {package}")
