# SPDX-License-Identifier: Apache-2.0
"""What is needed of a shared library's file: its name, how it is bound, its functions."""

from __future__ import annotations

import bisect
import contextlib
import mmap
import os
import shutil
import stat
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

_DYNAMIC, _SYMTAB, _DYNSYM = 6, 2, 11  # types of sections
_SONAME, _JMPREL, _BIND_NOW, _FLAGS, _FLAGS_1 = 14, 23, 24, 30, 0x6FFFFFFB
_FLAG_NOW, _FLAG_1_NOW = 8, 1
_FUNCTION, _INDIRECT = 2, 10  # types of symbols


class NotElf(ValueError):
    """The file is no 64-bit little-endian ELF file, or is broken off."""


class _Section(NamedTuple):
    kind: int
    address: int
    offset: int
    size: int
    link: int


@dataclass(frozen=True)
class Object:
    """A shared library."""

    file: str
    soname: str | None
    bound_at_load: bool
    lazy_calls: bool  # does it call others in the way that can be bound late?
    stripped: bool  # has it only the names that others may call?
    addresses: tuple[int, ...]  # of functions, rising
    names: tuple[str, ...]
    ends: tuple[int, ...]

    def function(self, address: int) -> str | None:
        """The function that holds an address of the file."""
        i = bisect.bisect_right(self.addresses, address) - 1
        return self.names[i] if i >= 0 and address < self.ends[i] else None


@contextlib.contextmanager
def _opened(file: str) -> Iterator[mmap.mmap]:
    """The content of an ELF file; what cannot be taken out of it is NotElf, too."""
    with open(file, "rb") as opened:
        if os.fstat(opened.fileno()).st_size < 64:
            raise NotElf(f"{file} is no shared library")
        with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if data[:6] != b"\x7fELF\x02\x01":
                raise NotElf(f"{file} is no 64-bit shared library")
            try:
                yield data
            except (struct.error, IndexError, ValueError, OverflowError) as error:
                raise NotElf(f"{file} is broken: {error}") from error


def read(file: str) -> Object:
    """Read a library's file; NotElf if it is none, OSError if it cannot be read."""
    with _opened(file) as data:
        return _parse(file, data)


def soname(file: str) -> str | None:
    """The name that the loader knows a library by; None if it has none or is no library."""
    # Not a device, which is mapped, too. A name with a null byte is a ValueError, as is NotElf.
    with contextlib.suppress(ValueError, OSError):
        if stat.S_ISREG(os.stat(file).st_mode):
            with _opened(file) as data:
                sections = _sections(data)
                dynamic = [section for section in sections if section.kind == _DYNAMIC]
                return _dynamic(data, dynamic[0], sections)[0] if dynamic else None
    return None


def _sections(data: mmap.mmap) -> list[_Section]:
    start, size, count = (
        struct.unpack_from("<Q", data, 40)[0],
        struct.unpack_from("<H", data, 58)[0],
        struct.unpack_from("<H", data, 60)[0],
    )
    found = []
    for i in range(count):
        words = struct.unpack_from("<IIQQQQIIQQ", data, start + i * size)
        found.append(_Section(words[1], words[3], words[4], words[5], words[6]))
    return found


def _text(data: mmap.mmap, at: int) -> str:
    end = data.find(b"\0", at)
    return data[at : end if end >= 0 else at].decode(errors="replace")


def _parse(file: str, data: mmap.mmap) -> Object:
    sections = _sections(data)
    soname, now, lazy = None, False, False
    for section in sections:
        if section.kind == _DYNAMIC:
            soname, now, lazy = _dynamic(data, section, sections)
    tables = [s for s in sections if s.kind == _SYMTAB]
    functions: dict[int, tuple[str, int]] = {}  # name and end by address
    for table in tables or [s for s in sections if s.kind == _DYNSYM]:
        for address, end, name in _functions(data, table, sections):
            functions.setdefault(address, (name, end))
    addresses = tuple(sorted(functions))
    following = [*addresses[1:], 1 << 62]
    return Object(
        file,
        soname,
        now,
        lazy,
        not tables,
        addresses,
        tuple(functions[a][0] for a in addresses),
        tuple(min(functions[a][1], after) for a, after in zip(addresses, following, strict=True)),
    )


def _dynamic(
    data: mmap.mmap, section: _Section, sections: list[_Section]
) -> tuple[str | None, bool, bool]:
    """The library's own name, whether it is bound at load time, whether it has lazy calls."""
    soname, now, lazy = None, False, False
    for at in range(section.offset, section.offset + section.size, 16):
        tag, value = struct.unpack_from("<QQ", data, at)
        if tag == 0:
            break
        if tag == _SONAME:
            soname = _text(data, sections[section.link].offset + value)
        now |= tag == _BIND_NOW
        now |= tag == _FLAGS and bool(value & _FLAG_NOW)
        now |= tag == _FLAGS_1 and bool(value & _FLAG_1_NOW)
        lazy |= tag == _JMPREL
    return soname, now, lazy


def _functions(
    data: mmap.mmap, table: _Section, sections: list[_Section]
) -> Iterator[tuple[int, int, str]]:
    strings = sections[table.link].offset
    symbols = data[table.offset : table.offset + table.size // 24 * 24]
    for name, info, _, index, address, size in struct.iter_unpack("<IBBHQQ", symbols):
        if 0 < index < len(sections) and address and info & 15 in (_FUNCTION, _INDIRECT):
            # One written in assembly has often no size: it goes on, at most to its section's end.
            section = sections[index]
            end = address + size if size else section.address + section.size
            yield address, end, _text(data, strings + name)


def readable(names: list[str]) -> dict[str, str]:
    """C++ names as a person writes them, where there is c++filt."""
    tool = shutil.which("c++filt")
    mangled = [name for name in names if name.startswith("_Z")]
    if tool is None or not mangled:
        return {name: name for name in names}
    try:
        done = subprocess.run(
            [tool], input="\n".join(mangled), capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return {name: name for name in names}
    plain = done.stdout.splitlines()
    same = {name: name for name in names}
    return {**same, **dict(zip(mangled, plain, strict=False))}
