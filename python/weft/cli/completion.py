# SPDX-License-Identifier: Apache-2.0
"""`weft completion`: a script that makes a shell complete the commands of `weft`.

The script is made from the parsers that parse, so it knows what they know. It is printed, and not
installed anywhere.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from . import common

PROG = "weft completion"
EXAMPLES = (
    ("source <(weft completion bash)", "in this bash; in ~/.bashrc for all"),
    ("weft completion zsh > ~/.zfunc/_weft", "in a folder of zsh's $fpath"),
    ("weft completion fish > ~/.config/fish/completions/weft.fish", "for fish"),
)
FILE, ANY = "file", "any"  # values of which only so much is known


@dataclass
class Command:
    """What can follow some words.

    options: each with its help, and its values: None if it takes none, FILE, ANY, or their list
    words:   what can stand without a dash, each with its help
    """

    path: tuple[str, ...]
    options: dict[str, tuple[str, str | list[str] | None]] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    runs: bool = False  # a program follows after --


def _values(action: argparse.Action) -> str | list[str] | None:
    if action.nargs == 0:
        return None
    if action.choices is not None:
        return [str(choice) for choice in action.choices]
    paths = ("FILE", "DIR", "PATH", "OLD", "LIB", "ENV")
    metavar = action.metavar if isinstance(action.metavar, str) else (action.metavar or ("",))[0]
    return FILE if action.type is Path or metavar in paths else ANY


def _help(action: argparse.Action) -> str:
    """The first part of it, in one line."""
    if action.help in (None, argparse.SUPPRESS):
        return ""
    text = " ".join(str(action.help).split()).replace("%%", "%")
    return text.split("; ")[0].split(" (default")[0]


def describe(path: tuple[str, ...], parser: argparse.ArgumentParser) -> Command:
    """What a parser takes."""
    found = Command(path, runs=" -- " in (parser.usage or ""))
    for action in parser._actions:
        if action.help == argparse.SUPPRESS:
            continue
        for flag in action.option_strings:
            found.options[flag] = (_help(action), _values(action))
        if not action.option_strings and action.choices is not None:
            found.words |= dict.fromkeys(map(str, action.choices), "")
    return found


def commands() -> Iterator[Command]:
    """Every command with its subcommands, the shorter path first."""
    from . import COMMANDS
    from . import main as weft

    top = common.parser_of(weft, "weft")
    assert top is not None
    first = describe(("weft",), top)
    first.words = dict(COMMANDS)
    yield first
    for name in COMMANDS:
        yield from _below(name)


def _below(name: str) -> Iterator[Command]:
    """A command, and those of its words that have a parser of their own."""
    main = importlib.import_module(f"weft.cli.{name}").main
    parser = common.parser_of(main, f"weft {name}")
    if parser is None:
        return
    found = describe(("weft", name), parser)
    yield found
    rest = any(action.nargs == argparse.REMAINDER for action in parser._actions)
    for word in found.words if rest else ():
        inner = common.parser_of(main, f"weft {name} {word}", [word])
        if inner is not None:
            yield describe((*found.path, word), inner)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


BASH = r"""# weft for bash: source <(weft completion bash)
_weft() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} path=weft words= i
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        if [[ ${COMP_WORDS[i]} == -- ]]; then
            compopt -o filenames 2>/dev/null
            if ((i + 1 == COMP_CWORD)); then
                mapfile -t COMPREPLY < <(compgen -c -- "$cur"; compgen -f -- "$cur")
            else
                mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            fi
            return
        fi
        case "$path ${COMP_WORDS[i]}" in
        @PATHS@) path="$path ${COMP_WORDS[i]}" ;;
        esac
    done
    case "$path $prev" in
@VALUES@
    esac
    case "$path" in
@WORDS@
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}
complete -F _weft weft
"""


def bash(known: list[Command]) -> str:
    paths = "|".join(f'"{" ".join(one.path)}"' for one in known if len(one.path) > 1)
    values, words = [], []
    for one in known:
        path = " ".join(one.path)
        for flag, (_, value) in one.options.items():
            if value is None:
                continue
            if value == FILE:
                what = "compopt -o filenames 2>/dev/null; "
                what += 'mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return'
            elif value == ANY:
                what = "return"
            else:
                what = f'mapfile -t COMPREPLY < <(compgen -W "{" ".join(value)}" -- "$cur"); return'
            values.append(f'    "{path} {flag}") {what} ;;')
        mine = " ".join([*one.words, *one.options, *(["--"] if one.runs else [])])
        words.append(f'    "{path}") words="{mine}" ;;')
    text = BASH.replace("@PATHS@", paths).replace("@VALUES@", "\n".join(values))
    return text.replace("@WORDS@", "\n".join(words))


ZSH = r"""#compdef weft
# weft for zsh: a file _weft in a folder of $fpath
_weft() {
    local path_=weft prev=${words[CURRENT-1]} i
    local -a known
    for ((i = 2; i < CURRENT; i++)); do
        if [[ ${words[i]} == -- ]]; then
            if ((i + 1 == CURRENT)); then _command_names -e; fi
            _files
            return
        fi
        case "$path_ ${words[i]}" in
        (@PATHS@) path_="$path_ ${words[i]}" ;;
        esac
    done
    case "$path_ $prev" in
@VALUES@
    esac
    case "$path_" in
@WORDS@
    esac
    _describe -o 'weft' known
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _weft "$@"; else compdef _weft weft; fi
"""


def zsh(known: list[Command]) -> str:
    def entry(word: str, text: str) -> str:
        # A colon parts the word from what is said about it.
        shown = word.replace(":", r"\:")
        return _quoted(f"{shown}:{text}" if text else shown)

    paths = "|".join(f'"{" ".join(one.path)}"' for one in known if len(one.path) > 1)
    values, words = [], []
    for one in known:
        path = " ".join(one.path)
        for flag, (_, value) in one.options.items():
            if value is None:
                continue
            if isinstance(value, list):
                what = f"compadd -- {' '.join(map(_quoted, value))}; return"
            else:
                what = "_files; return" if value == FILE else "return"
            values.append(f'    ("{path} {flag}") {what} ;;')
        entries = [entry(word, text) for word, text in one.words.items()]
        entries += [entry(flag, text) for flag, (text, _) in one.options.items()]
        entries += [entry("--", "the program")] if one.runs else []
        words.append(f'    ("{path}") known=({" ".join(entries)}) ;;')
    text = ZSH.replace("@PATHS@", paths).replace("@VALUES@", "\n".join(values))
    return text.replace("@WORDS@", "\n".join(words))


FISH = r"""# weft for fish: ~/.config/fish/completions/weft.fish
function __weft_at
    set -l path weft
    for word in (commandline -opc)[2..-1]
        if test "$word" = --
            set path program
            break
        end
        if contains -- "$path $word" @PATHS@
            set path "$path $word"
        end
    end
    test "$path" = "$argv"
end
complete -c weft -f
complete -c weft -n "__weft_at program" -F
@LINES@
"""


def fish(known: list[Command]) -> str:
    paths = " ".join(_quoted(" ".join(one.path)) for one in known if len(one.path) > 1)
    lines = []
    for one in known:
        start = f'complete -c weft -n "__weft_at {" ".join(one.path)}"'
        for word, text in one.words.items():
            lines.append(f"{start} -a {_quoted(word)}" + (f" -d {_quoted(text)}" if text else ""))
        for flag, (text, value) in one.options.items():
            # -s and -l for a short and a long one.
            kind = f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"
            said = f" -d {_quoted(text)}" if text else ""
            if isinstance(value, list):
                takes = f" -x -a {_quoted(' '.join(value))}"
            else:
                takes = {None: "", FILE: " -r -F", ANY: " -x"}[value]
            lines.append(f"{start} {kind}{takes}{said}")
    return FISH.replace("@PATHS@", paths).replace("@LINES@", "\n".join(lines))


SHELLS = {"bash": bash, "zsh": zsh, "fish": fish}


def parser() -> argparse.ArgumentParser:
    made = common.parser(
        PROG, "Print a script that makes a shell complete the commands of weft.", EXAMPLES
    )
    made.add_argument("shell", choices=list(SHELLS), help="for which shell")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    shell = parser().parse_args(argv).shell
    print(SHELLS[shell](list(commands())), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
