# SPDX-License-Identifier: Apache-2.0
"""The backend "sml": weft's, with allreduce through a switch in the network.

Where the switch is, the options say, or WEFT_SWITCH, or a switchml.cfg, if a program
imports torch_switchml.
"""

import copy
from collections.abc import Callable
from typing import Any

from weft import _core
from weft._core import InvalidError
from weft.torch import _group

# Settings out of a file, by rank and size in the job; weft.compat.torch_switchml sets it.
configured: Callable[[int, int], dict[str, object]] | None = None


def _from_environment(name: str) -> str:
    return next(row[1] for row in _core.settings() if row[0] == name)


def _given(options: Any, rank: int, size: int) -> dict[str, object]:
    """What is to be added to the options."""
    names = [word.partition("=")[0] for word in options.settings.split()]
    more: dict[str, object] = {} if "ENGINE" in names else {"engine": "switch"}
    if "SWITCH" in names or _from_environment("WEFT_SWITCH"):
        return more
    if configured is None:
        raise InvalidError(
            'the backend "sml" needs a switch: pg_options=weft.torch.Options(switch="host:port", '
            "switch_key=FILE), or WEFT_SWITCH and WEFT_SWITCH_KEY; or import torch_switchml, "
            "which reads switchml.cfg"
        )
    return {**configured(rank, size), **more}


def create(dist_options: Any, options: Any) -> Any:
    """Make the backend of a new process group; torch calls it."""
    options = copy.deepcopy(options) if options is not None else _group.Options()
    if hasattr(options, "settings"):
        more = _given(options, dist_options.group_rank, dist_options.group_size)
        _group.check_settings(more)
        options.settings += "".join(f" {name.upper()}={value}" for name, value in more.items())
    return _group.create(dist_options, options, "sml")
