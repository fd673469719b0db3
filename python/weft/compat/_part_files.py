# SPDX-License-Identifier: Apache-2.0
"""Files of nothing but rows, in numbered parts that are read as one."""

import glob
import os
import re
from collections.abc import Iterator

import torch

from weft._core import InvalidError


def find(prefix: str) -> list[str]:
    """The files `<prefix>_part_<i>_of_<n>` in their order, or the one file `prefix`."""
    found = {}
    for path in glob.glob(glob.escape(prefix) + "_part_*_of_*"):
        named = re.fullmatch(r"_part_(\d+)_of_(\d+)", path[len(prefix) :])
        if named:
            found[int(named[1]), int(named[2])] = path
    if not found and os.path.isfile(prefix):
        return [prefix]
    numbers = {of for _, of in found}
    if len(numbers) != 1 or sorted(part for part, _ in found) != list(range(*numbers)):
        raise InvalidError(f"no complete set of files {prefix}_part_0_of_N and so on exists")
    return [found[key] for key in sorted(found)]


def read_rows(
    files: list[str], dtype: torch.dtype, width: int, first: int, after: int
) -> Iterator[tuple[int, torch.Tensor]]:
    """Rows from `first` up to `after` of files that are read as one, with their numbers."""
    row_bytes = width * dtype.itemsize
    at = 0
    for file in files:
        size = os.path.getsize(file)
        if size % row_bytes:
            raise InvalidError(f"{file} has {size} bytes, not a multiple of a row's {row_bytes}")
        rows = size // row_bytes
        begin, end = max(first, at), min(after, at + rows)
        if begin < end:
            source = torch.from_file(file, size=rows * width, dtype=dtype).reshape(rows, width)
            yield begin, source[begin - at : end - at]
        at += rows
