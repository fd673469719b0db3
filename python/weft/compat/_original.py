# SPDX-License-Identifier: Apache-2.0
"""Is the library that an old name stands for installed as well?"""

import importlib.metadata
import pathlib
import sys

OURS = "weft-compat"


def refuse_to_shadow(name: str, file: str) -> None:
    """Raise ImportError if another package called `name` is installed, or lies in the path."""
    for maker in importlib.metadata.packages_distributions().get(name, []):
        if maker.lower().replace("_", "-") != OURS:
            raise ImportError(_text(name, f"the distribution {maker}"))
    ours = pathlib.Path(file).read_bytes()
    for entry in sys.path:
        found = pathlib.Path(entry or ".") / name / "__init__.py"
        if found.is_file() and found.read_bytes() != ours:
            raise ImportError(_text(name, str(found.parent)))


def _text(name: str, original: str) -> str:
    return (
        f"there is an original {name!r} ({original}), which that of {OURS} would hide: uninstall "
        f"one of them, or import weft.compat.{name} by its own name"
    )
