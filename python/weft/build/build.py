# SPDX-License-Identifier: Apache-2.0
"""Build a package and install it; what `weft build` does, without its command line."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import Failed, Refused, apt, install, openblas, pytorch, stage, work
from .environment import NOT_PLAIN, is_plain
from .fetch import check_tree
from .manifest import INSTALLING, Manifest, load
from .recipe import Recipe, Step, Wanted
from .run import free, run

RECIPES: dict[str, Recipe] = {"openblas": openblas, "pytorch": pytorch}


@dataclass
class Plan:
    """A build that could begin: nothing has been written yet."""

    recipe: Recipe
    wanted: Wanted
    work: work.Work
    steps: list[Step]
    notes: list[str]

    def commands(self) -> list[str]:
        """What is going to run, as lines for a shell."""
        lines = [step.shell() for step in self.steps]
        if not self.wanted.configure_only:
            lines.append(f"cp -a {self.staged}/. {self.wanted.prefix}/")
        return lines

    @property
    def staged(self) -> Path:
        return Path(f"{self.work.stage}{self.wanted.prefix}")


def plan(recipe: Recipe, wanted: Wanted) -> Plan:
    """Look at everything that can be known to fail; Refused says what."""
    if wanted.source.folder is None:
        apt.check(recipe.name)
        apt.sources(wanted.source.release)
    elif Path(os.path.realpath(wanted.prefix)).is_relative_to(wanted.source.folder):
        raise Refused(f"{wanted.prefix} is inside the source tree: name another folder")
    notes = recipe.check(wanted)
    options = {"prefix": str(wanted.prefix), **wanted.options}
    if wanted.configure_only:
        options["step"] = "configure"
    name = work.key(recipe.name, wanted.source.identity(), *_built_on(recipe, wanted), **options)
    place = work.Work(recipe.name, name)
    if not is_plain(place.folder):
        raise Refused(f"{str(place.folder)!r}: {NOT_PLAIN}; XDG_CACHE_HOME names another folder")
    if free(place.folder) < recipe.space and not place.done():
        room = f"{free(place.folder) >> 20} MB free, {recipe.space >> 20} MB needed"
        raise Failed(f"no room for the build in {place.folder}: {room}; see XDG_CACHE_HOME")
    return Plan(recipe, wanted, place, recipe.steps(wanted, place.folder), notes)


def build(planned: Plan, force: bool = False, quiet: bool = False) -> dict[str, Any]:
    """Build and install; what was done, for people and programs."""
    recipe, wanted, place = planned.recipe, planned.wanted, planned.work
    begun = time.monotonic()
    about = {"package": recipe.name, "prefix": str(wanted.prefix)}
    with place.locked(about):
        ran = run(planned.steps, place, quiet)
        check_tree(place.tree, recipe.marks, recipe.name)
        done: dict[str, Any] = {
            **about,
            "version": recipe.version(place.tree),
            "steps": ran,
            "log": str(place.log),
            "work": str(place.folder),
        }
        if recipe is pytorch:
            done["chosen"] = pytorch.chosen(place.tree)
        if not wanted.configure_only:
            done["files"] = _install(planned, done["version"], force)
    return done | {"seconds": round(time.monotonic() - begun, 1)}


def uninstall(package: str, prefix: Path, force: bool = False) -> dict[str, Any]:
    """Take a package out of an environment, and remove what its builds left in the cache."""
    with install.locked(prefix):
        repaired = install.repair(prefix, package)
        # What was only configured, or broke off, is there to be cleaned all the same.
        left = repaired or work.folders_of(package, prefix)
        if left and load(prefix, package) is None:
            removed = install.Removed()
        else:
            removed = install.uninstall(prefix, package, force)
    return {
        "package": package,
        "prefix": str(prefix),
        "files": removed.files,
        "kept": removed.kept,
        "aside": removed.aside,
        "repaired": repaired,
        "cleaned": work.clean(package, prefix),
    }


def mend(prefix: Path, package: str) -> str | None:
    """End what an earlier run was killed in, before anything else is looked at; what was done."""
    with install.locked(prefix):
        return install.repair(prefix, package)


def _install(planned: Plan, version: str, force: bool) -> int:
    wanted, recipe = planned.wanted, planned.recipe
    about = {"source": wanted.source.words(), "options": dict(wanted.options)}
    entries = stage.entries(planned.staged)
    new = Manifest(recipe.name, version, INSTALLING, entries, about=about)
    with install.locked(wanted.prefix):
        install.repair(wanted.prefix, recipe.name)
        old = load(wanted.prefix, recipe.name)
        if old is None or old.entries != entries or not _whole(wanted.prefix, old):
            install.install(wanted.prefix, planned.staged, new, force)
    return len(entries)


def _whole(prefix: Path, old: Manifest) -> bool:
    return all(stage.same(prefix, entry) for entry in old.entries)


def _built_on(recipe: Recipe, wanted: Wanted) -> list[str]:
    """A PyTorch that was configured with another OpenBLAS is not gone on with."""
    if recipe is not pytorch or wanted.options["BLAS"] != "OpenBLAS":
        return []
    return [stage.digest(pytorch.openblas_home(wanted) / "lib" / "libopenblas.so")]
