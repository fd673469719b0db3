# SPDX-License-Identifier: Apache-2.0
"""Run a command on another host of the bed, as rsh and ssh do: for launchers.

    rsh [-l USER] [-n] HOST COMMAND...

Standard input, output and error are the command's. It ends with the command's status; whoever ends
it before that ends the command. `Bed.rsh` is the file to give to a launcher.
"""

from __future__ import annotations

import os
import re
import socket
import sys

UNREACHABLE = 255  # what ssh says, too


def _words(argv: list[str]) -> list[str]:
    """Without the options that launchers pass for the sake of ssh."""
    while argv and argv[0].startswith("-"):
        argv = argv[2:] if argv[0] == "-l" else argv[1:]
    return argv


def main() -> int:
    shared, *argv = sys.argv[1:]
    words = _words(argv)
    if len(words) < 2:
        print("usage: rsh [-l USER] [-n] HOST COMMAND...", file=sys.stderr)
        return UNREACHABLE
    host, command = words[0], " ".join(words[1:])
    if re.fullmatch(r"[\w.-]+", host) is None:
        print(f"rsh: {host!r} is not a name of a host", file=sys.stderr)
        return UNREACHABLE
    client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        client.connect(f"{shared}/{host}.sock")
        socket.send_fds(client, [os.fsencode(command)], [0, 1, 2])
        status = client.recv(64)
    except OSError as error:
        print(f"rsh: {host} cannot be reached: {error.strerror}", file=sys.stderr)
        return UNREACHABLE
    return int(status) if status else UNREACHABLE


if __name__ == "__main__":
    sys.exit(main())
