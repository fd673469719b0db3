# SPDX-License-Identifier: Apache-2.0
"""A program in a terminal: what stands on its screen, and the keys that are pressed.

    with terminal.Terminal(["weft", "top"], 24, 80, os.environ) as screen:
        screen.until(lambda text: "weft top" in text[0], "a title")
        screen.press("q")

It is a vt100, of which just those sequences are known that its entry of terminfo has.
"""

import codecs
import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

SECONDS = 60.0
KEYS = {"up": "\x1bOA", "down": "\x1bOB", "right": "\x1bOC", "left": "\x1bOD"}
SEQUENCE = re.compile(r"\x1b(?:\[(\?)?([\d;]*)([A-Za-z])|[()][A-Z0-9]|([=>78M]))")


class Terminal:
    def __init__(self, command, rows, columns, env):
        self._fd, there = pty.openpty()
        self._left, self._decoder = "", codecs.getincrementaldecoder("utf-8")("replace")
        self._clear(rows, columns)
        self._set_size(there)
        self.process = subprocess.Popen(
            command,
            stdin=there,
            stdout=there,
            stderr=there,
            env={
                **{k: v for k, v in env.items() if k not in ("LINES", "COLUMNS")},
                "TERM": "vt100",
            },
            start_new_session=True,
        )
        os.close(there)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.process.kill()
        self.process.wait()
        os.close(self._fd)

    def _clear(self, rows, columns):
        self.rows, self.columns = rows, columns
        self._cells = [[" "] * columns for _ in range(rows)]
        self._row = self._column = 0
        self._first, self._last = 0, rows - 1  # what scrolls

    def _set_size(self, fd):
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("4H", self.rows, self.columns, 0, 0))

    def resize(self, rows, columns):
        """What stands there is gone; the program is told to draw it again."""
        self.read(0)
        self._clear(rows, columns)
        self._set_size(self._fd)
        self.process.send_signal(signal.SIGWINCH)

    def press(self, *keys):
        os.write(self._fd, "".join(KEYS.get(key, key) for key in keys).encode())

    def text(self):
        return ["".join(cells).rstrip() for cells in self._cells]

    def until(self, holds, what):
        """Read until the screen is so; returns its lines."""
        end = time.monotonic() + SECONDS
        while not holds(self.text()):
            shown = "\n".join(self.text())
            assert time.monotonic() < end and self.read(0.1), f"never {what}:\n{shown}"
        return self.text()

    def wait(self):
        """The exit status of the program, which goes on writing meanwhile."""
        end = time.monotonic() + SECONDS
        while self.process.poll() is None:
            assert time.monotonic() < end, "the program does not end"
            self.read(0.05)
        return self.process.returncode

    def read(self, seconds):
        """Take what the program has written; False if it has ended."""
        while select.select([self._fd], [], [], seconds)[0]:
            data = b""
            with contextlib.suppress(OSError):  # nobody has it open any more
                data = os.read(self._fd, 1 << 16)
            if not data:
                return False
            self._write(self._left + self._decoder.decode(data))
            seconds = 0
        return True

    def _write(self, text):
        at = 0
        while at < len(text):
            match = SEQUENCE.match(text, at)
            if match is not None:
                self._do(*match.groups())
                at = match.end()
            elif text[at] == "\x1b" and len(text) - at < 16:
                break  # the rest of it is still to come
            else:
                self._put(text[at])
                at += 1
        self._left = text[at:]

    def _put(self, letter):
        if letter == "\n":
            self._down()
        elif letter == "\r":
            self._column = 0
        elif letter == "\b":
            self._column = max(0, self._column - 1)
        elif letter == "\t":
            self._column = min(self.columns - 1, self._column // 8 * 8 + 8)
        elif letter >= " ":
            if self._column < self.columns:
                self._cells[self._row][self._column] = letter
            self._column += 1

    def _down(self):
        if self._row == self._last:
            del self._cells[self._first]
            self._cells.insert(self._last, [" "] * self.columns)
        else:
            self._row = min(self.rows - 1, self._row + 1)

    def _do(self, private, numbers, letter, alone):
        given = [int(number or 0) for number in (numbers or "").split(";")]
        many = max(1, given[0])
        if alone == "M":
            letter = "A"
        if private or letter is None:
            return  # a mode of the terminal, or its letters
        if letter == "H":
            self._row = min(self.rows, many) - 1
            self._column = min(self.columns, max(1, given[1] if len(given) > 1 else 1)) - 1
        elif letter in "AB":
            self._row = max(0, min(self.rows - 1, self._row + (many if letter == "B" else -many)))
        elif letter in "CD":
            last = self.columns - 1
            self._column = max(0, min(last, self._column + (many if letter == "C" else -many)))
        elif letter == "K":
            self._erase(self._row, given[0])
        elif letter == "J":
            self._erase(self._row, given[0])
            below = given[0] != 1
            for row in range(self.rows):
                if given[0] == 2 or (row > self._row if below else row < self._row):
                    self._erase(row, 2)
        elif letter == "r":
            self._first, self._last = many - 1, (given[1] if len(given) > 1 else self.rows) - 1
            self._row = self._column = 0
        else:
            assert letter == "m", f"a vt100 has no sequence that ends with {letter}"

    def _erase(self, row, how):
        """From the cursor on, until it, or all of the row."""
        at = min(self._column, self.columns)
        first, end = {0: (at, self.columns), 1: (0, at + 1), 2: (0, self.columns)}[how]
        self._cells[row][first:end] = [" "] * (min(end, self.columns) - first)
