# SPDX-License-Identifier: Apache-2.0
"""Debian's source packages, fetched through lists of our own: nothing of the system changes."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

from . import Refused

LISTS = Path("/etc/apt/sources.list.d")
LIST = Path("/etc/apt/sources.list")


def check(package: str) -> None:
    for tool in ("apt-get", "dpkg-source"):
        if shutil.which(tool) is None:
            hint = ": apt-get install dpkg-dev" if tool == "dpkg-source" else ""
            raise Refused(
                f"there is no {tool}{hint or ' here'}; "
                f"or name a source tree of {package} with --source"
            )


def sources(release: str | None) -> str:
    """The system's package sources as sources of source packages, perhaps of another release."""
    stanzas = [*_deb822(), *_one_line()]
    if not stanzas:
        raise Refused(f"neither {LIST} nor {LISTS} names a package source; use --source")
    if release is not None:
        # A release's own archive is enough: its updates and fixes have other names.
        first = {**stanzas[0], "Suites": release, "Components": "main"}
        stanzas = [first]
    return "\n".join(_text({**stanza, "Types": "deb-src"}) for stanza in stanzas)


def prepare(release: str | None) -> tuple[str, ...]:
    """Writes the lists, and the folders that apt-get asks for, into the current folder."""
    folders = "mkdir -p parts lists/partial cache/archives/partial"
    return (
        "sh",
        "-c",
        f"{folders} && printf %s {shlex.quote(sources(release))} >parts/weft.sources",
    )


def command(folder: Path) -> list[str]:
    """apt-get with our lists."""
    options = {
        "Dir::Etc::SourceList": "/dev/null",
        "Dir::Etc::SourceParts": str(folder / "parts"),
        "Dir::State::Lists": str(folder / "lists"),
        "Dir::Cache": str(folder / "cache"),
        # As root apt-get would fetch as a user who may not write here.
        "APT::Sandbox::User": "root",
        "Acquire::Retries": "3",
    }
    words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    return ["apt-get", "-q", *words]


def _text(stanza: dict[str, str]) -> str:
    return "".join(f"{name}: {value}\n" for name, value in stanza.items())


def _deb822() -> Iterator[dict[str, str]]:
    for file in sorted(LISTS.glob("*.sources")):
        for block in re.split(r"\n\s*\n", _read(file)):
            plain = "\n".join(line for line in block.splitlines() if not line.startswith("#"))
            # A value goes on in lines that begin with a space: a key written out, say.
            fields = re.findall(r"^([A-Za-z-]+):[ \t]*(.*(?:\n[ \t].*)*)", plain, re.MULTILINE)
            stanza = dict(fields)
            if "deb" in stanza.get("Types", "").split() and {"URIs", "Suites"} <= stanza.keys():
                yield stanza


def _one_line() -> Iterator[dict[str, str]]:
    for file in (LIST, *sorted(LISTS.glob("*.list"))):
        for line in _read(file).splitlines():
            found = re.match(r"deb\s+(?:\[(.*?)\]\s+)?(\S+)\s+(\S+)\s*(.*)$", line)
            if found:
                options, uri, suite, components = found.groups()
                signed = re.search(r"signed-by=(\S+)", options or "")
                extra = {"Signed-By": signed[1]} if signed else {}
                yield {"URIs": uri, "Suites": suite, "Components": components or "main"} | extra


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
