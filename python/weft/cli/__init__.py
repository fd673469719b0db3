# SPDX-License-Identifier: Apache-2.0
"""The command `weft`. Each subcommand is a module with main(argv)."""

import argparse
import importlib
import sys
from collections.abc import Sequence

import weft

COMMANDS = {
    "doctor": "what this machine, PyTorch, weft and the job are, and what cannot work",
    "bench": "measure weft against what else is installed here",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand; the arguments after its name are its own."""
    parser = argparse.ArgumentParser(
        prog="weft",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="commands:\n" + "\n".join(f"  {name:8} {text}" for name, text in COMMANDS.items()),
    )
    parser.add_argument("--version", action="version", version=f"weft {weft.__version__}")
    names = "{" + ",".join(COMMANDS) + "}"
    parser.add_argument("command", choices=list(COMMANDS), metavar=names, help="see below")
    parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="...", help="its own; --help lists them"
    )
    given = parser.parse_args(argv)
    module = importlib.import_module(f"weft.cli.{given.command}")
    return int(module.main(given.arguments) or 0)


if __name__ == "__main__":
    sys.exit(main())
