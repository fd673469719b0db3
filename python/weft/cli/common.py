# SPDX-License-Identifier: Apache-2.0
"""What the subcommands of `weft` share: help, errors, tables, and programs that they run.

Exit statuses: 0 is fine, 1 means that something did not work, 2 that the input was bad. A command
that runs somebody's program ends with that program's own status.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import shutil
import signal
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..bench.report import table

__all__ = [
    "BAD_INPUT",
    "NoProgram",
    "fail",
    "find_program",
    "parser",
    "parser_of",
    "print_json",
    "run_program",
    "split_program",
    "table",
]

BAD_INPUT = 2
_WIDTH = 100
# What a person or a launcher stops a program with; it is for the program, not for us.
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_POLL = 1.0  # seconds; only where another thread took the SIGCHLD


class _Found(BaseException):
    """Ends a command whose parser is all that is wanted of it."""

    def __init__(self, parser: argparse.ArgumentParser):
        super().__init__()
        self.parser = parser


class _Parser(argparse.ArgumentParser):
    """Parses, unless `parser_of` looks for it."""

    wanted: str | None = None

    def parse_known_args(self, args=None, namespace=None):
        if _Parser.wanted == self.prog:
            raise _Found(self)
        return super().parse_known_args(args, namespace)


def parser_of(
    main: Callable[[list[str]], int], prog: str, words: Sequence[str] = ()
) -> argparse.ArgumentParser | None:
    """The parser named `prog` that a command would parse the arguments after `words` with.

    The command is asked for help, so that it does nothing else if it has no such parser.
    """
    _Parser.wanted = prog
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            main([*words, "--help"])
    except _Found as found:
        return found.parser
    except SystemExit:
        return None
    finally:
        _Parser.wanted = None
    return None


class NoProgram(ValueError):
    """There is no program to run; the text says why."""


def parser(
    prog: str, description: str, examples: Sequence[tuple[str, str]] = ()
) -> argparse.ArgumentParser:
    """A parser whose help ends with examples: a command and what it does."""
    epilog = None
    if examples:
        width = max(len(command) for command, _ in examples)
        lines = [f"  {command:{width}}  {what}".rstrip() for command, what in examples]
        epilog = "\n".join(["examples:", *lines])
    columns = min(shutil.get_terminal_size().columns - 2, _WIDTH)
    return _Parser(
        prog=prog,
        # Filled here, as a formatter that leaves the examples alone leaves this alone, too.
        description=textwrap.fill(" ".join(description.split()), max(columns, 40)),
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def fail(prog: str, text: str) -> int:
    """Say in one line what was wrong with the input; the exit status for it."""
    print(f"{prog}: {' '.join(text.split())}", file=sys.stderr)
    return BAD_INPUT


def print_json(data: Any) -> None:
    """What `--json` prints."""
    print(json.dumps(data, indent=2))


def split_program(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments before the first `--`, which are ours, and the program after it."""
    words = list(argv)
    if "--" not in words:
        return words, []
    at = words.index("--")
    return words[:at], words[at + 1 :]


def find_program(words: Sequence[str]) -> list[str]:
    """The command that runs a program as a person wrote it; NoProgram if there is none.

    A script in Python need not be executable: it is run by the Python that runs us.
    """
    if not words or not words[0]:
        raise NoProgram("no program to run; write it after --")
    name = words[0]
    if name.endswith(".py") and os.path.isfile(name) and not os.access(name, os.X_OK):
        return [sys.executable, *words]
    path = shutil.which(name)
    if path is not None:
        return [path, *words[1:]]
    if os.path.isdir(name):
        raise NoProgram(f"{name} is a folder, not a program")
    if os.path.exists(name) and os.sep in name:
        raise NoProgram(f"{name} is not executable")
    raise NoProgram(f"there is no program {name}")


def run_program(command: Sequence[str], env: Mapping[str, str] | None = None) -> int:
    """Run a command of `find_program` and return its exit status; 128 + n if signal n ended it.

    Signals that ask us to stop are the program's to answer: they are passed on, and we end when it
    does. Those of the terminal go to all of its processes and are not passed on a second time.
    """
    watched = {*_FORWARDED, signal.SIGCHLD}
    # Blocked before the start, so that none comes between it and our waiting.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    try:
        child = os.posix_spawn(
            command[0],
            list(command),
            os.environ if env is None else env,
            setsigmask=before,
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # Python ignores them
        )
        status = _wait(child, watched)
    except OSError as error:
        raise NoProgram(f"{command[0]}: {error.strerror}") from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _wait(child: int, watched: set[signal.Signals]) -> int:
    """The wait status of a child, once it has ended; signals are passed on meanwhile."""
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        info = signal.sigtimedwait(watched, _POLL)
        # A code above 0 is the kernel's: the terminal has told the child as well.
        if info is not None and info.si_signo != signal.SIGCHLD and info.si_code <= 0:
            os.kill(child, info.si_signo)


def unwritable(path: Path) -> str | None:
    """Why a file cannot be written there, so that nobody works for nothing; None if it can."""
    folder = path.absolute().parent
    if not folder.is_dir():
        return f"{path}: there is no such folder"
    if path.is_dir():
        return f"{path}: it is a folder"
    if not os.access(path if path.exists() else folder, os.W_OK):
        return f"{path}: it may not be written"
    return None


def positive(text: str) -> int:
    """The type of an argument that is a count."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return int(text)
