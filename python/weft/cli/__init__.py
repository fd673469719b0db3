# SPDX-License-Identifier: Apache-2.0
"""The command `weft`. Each subcommand is a module with main(argv)."""

import argparse
import errno
import importlib
import os
import signal
import sys
from collections.abc import Sequence

import weft

from . import common

COMMANDS = {
    "doctor": "what this machine, PyTorch, weft and the job are, and what cannot work",
    "top": "a live view of a running job: ranks, whom they wait for, stores, regions",
    "bench": "measure weft against what else is installed here",
    "blas": "list BLAS libraries, run a program with one of them, compare them",
    "profile": "where a program spends its time: by library, function and operator",
    "build": "build OpenBLAS and PyTorch from source into the active environment",
    "completion": "complete these commands in bash, zsh or fish",
}
DESCRIPTION = (
    "Check, measure and swap what PyTorch runs on, and what carries bytes between processes."
)
EXAMPLES = (
    ("weft doctor", "what can work here, and what cannot"),
    ("weft top", "what the ranks of a running job do"),
    ("weft bench gemm --quick", "measure something"),
    ("weft COMMAND --help", "what a command takes, with examples"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand; the arguments after its name are its own."""
    parser = common.parser("weft", DESCRIPTION, EXAMPLES)
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {text}" for name, text in COMMANDS.items()]
    parser.epilog = "\n".join(["commands:", *lines, "", parser.epilog or ""])
    parser.add_argument("--version", action="version", version=f"weft {weft.__version__}")
    names = "{" + ",".join(COMMANDS) + "}"
    parser.add_argument("command", choices=list(COMMANDS), metavar=names, help="see below")
    parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="...", help="its own; --help lists them"
    )
    words = list(sys.argv[1:] if argv is None else argv)
    # The rest is passed on as it is: argparse would take away a `--` that comes first.
    given = parser.parse_args(words[:1])
    try:
        module = importlib.import_module(f"weft.cli.{given.command}")
        code = int(module.main(words[1:]) or 0)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:  # who reads has seen enough
        _hush()
        return 128 + signal.SIGPIPE
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        print(f"weft: {error.filename or 'standard output'}: {error.strerror}", file=sys.stderr)
        _hush()
        return 1
    return code


def _hush() -> None:
    """What is still to be written would fail again when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
