# SPDX-License-Identifier: Apache-2.0
"""The one way in which the package starts a thread of its own."""

import signal
import threading
from collections.abc import Callable
from typing import Any


def start(run: Callable[..., object], *args: Any, name: str | None = None) -> None:
    """Have a thread run `run(*args)` that does not keep the interpreter from ending.

    Signals are for the program's own threads: one that comes to a thread of ours would not
    interrupt what the main thread waits in, so that its handler would run late.
    """
    faults = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - faults)
    try:
        threading.Thread(target=run, args=args, name=name, daemon=True).start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
