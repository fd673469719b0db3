# SPDX-License-Identifier: Apache-2.0
"""The live view, in a terminal."""

from __future__ import annotations

import contextlib
import curses
import time

from . import page, sample
from .find import Job

HELP = (
    "weft top: keys",
    "",
    "q          leave; the job goes on",
    "left right sort by the column before, or after",
    "up down    scroll through the ranks",
    "p, space   pause, and go on",
    "+ -        look less often, or more often",
    "h, ?       this page; any key leaves it",
    "",
    "wait  share of its time that a rank waited for others",
    "late  share of their time that the others waited for this rank, on average;",
    "      the one with the most is the slow rank, if that is 5% or more",
    "bytes are those that a rank passes in its calls; a store's local share is that",
    "of keys which were on the rank's own host",
)
STYLES = {"stopped": curses.A_REVERSE, "dead": curses.A_REVERSE, "waiting": curses.A_DIM}


class Screen:
    """What is on it, and what the keys have set."""

    def __init__(self, window: curses.window, job: Job, interval: float) -> None:
        self.window, self.job, self.interval = window, job, interval
        self.sort, self.start, self.paused, self.helps = "rank", 0, False, False
        self.old: sample.Shown | None = None
        self.new = sample.look(job)
        self.view = sample.between(None, self.new)

    def run(self) -> None:
        self.window.keypad(True)
        with contextlib.suppress(curses.error):  # a terminal without colors
            curses.use_default_colors()
        with contextlib.suppress(curses.error):  # a terminal that always shows its cursor
            curses.curs_set(0)
        due = time.monotonic() + min(self.interval, 0.25)
        while True:
            self.draw()
            self.window.timeout(max(1, int(1000 * min(0.5, max(0.0, due - time.monotonic())))))
            key = self.window.getch()
            if key != -1 and not self.press(key):
                return
            if time.monotonic() >= due:
                self.look()
                due = time.monotonic() + self.interval

    def look(self) -> None:
        if not self.paused and not self.view["job"]["ended"]:
            self.old, self.new = self.new, sample.look(self.job)
            self.view = sample.between(self.old, self.new)

    def press(self, key: int) -> bool:
        """False: leave."""
        if key == curses.KEY_RESIZE:
            return True
        if self.helps:
            self.helps = False
            return True
        sorts = list(page.SORTS)
        at = sorts.index(self.sort)
        if key in (ord("q"), 27):
            return False
        if key in (curses.KEY_LEFT, curses.KEY_RIGHT, ord("s")):
            self.sort = sorts[(at + (-1 if key == curses.KEY_LEFT else 1)) % len(sorts)]
        elif key in (curses.KEY_UP, curses.KEY_DOWN):
            step = 1 if key == curses.KEY_DOWN else -1
            height = self.window.getmaxyx()[0] - 1
            self.start = page.first(self.view, height, self.start + step)
        elif key in (ord("p"), ord(" ")):
            self.paused = not self.paused
        elif key in (ord("+"), ord("-")):
            self.interval = min(60.0, max(0.1, self.interval * (2 if key == ord("+") else 0.5)))
        elif key in (ord("h"), ord("?")):
            self.helps = True
        return True

    def draw(self) -> None:
        height, width = self.window.getmaxyx()
        state = ", paused" if self.paused else f", every {self.interval:g} s"
        note = f"{state}, by {self.sort}"
        if self.helps:
            text = [line[: width - 1] for line in HELP[:height]]
        else:
            text = page.fit(self.view, (width - 1, height - 1), self.sort, self.start, note)
        self.window.erase()
        for row, line in enumerate(text):
            self.put(row, line, self.style(row, line))
        if not self.helps:
            foot = " q leave  arrows sort, scroll  p pause  +- interval  h help "
            self.put(height - 1, foot[: width - 1], curses.A_REVERSE)
        self.window.refresh()

    def put(self, row: int, text: str, style: int) -> None:
        with contextlib.suppress(curses.error):  # it has just become smaller
            self.window.addstr(row, 0, text, style)

    def style(self, row: int, line: str) -> int:
        if row == 0 or line.lstrip().startswith(("rank ", "store ", "region ")):
            return curses.A_BOLD
        words = line.split()[:5]
        return next((style for word, style in STYLES.items() if word in words), curses.A_NORMAL)


def show(job: Job, interval: float) -> None:
    curses.wrapper(lambda window: Screen(window, job, interval).run())
