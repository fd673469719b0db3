# SPDX-License-Identifier: Apache-2.0
"""What tests with a weft-switch share."""

import re
import subprocess
import time
import urllib.request

from weft._switch import PROGRAM


def make_key(path):
    """A new key, in a file; returns its name."""
    subprocess.run([PROGRAM, "key", path], check=True, capture_output=True)
    return str(path)


def read_port(process):
    """Wait until it is ready; its port."""
    line = process.stdout.readline()
    found = re.match(r".*ready on port (\d+)", line)
    assert found, f"weft-switch is not ready: it printed {line!r}"
    return int(found[1])


def chunks_at(page):
    """What a switch has reduced for the jobs that it has, by its page."""
    text = urllib.request.urlopen(page + "metrics", timeout=10).read().decode()
    lines = re.findall(r"^weft_switch_job_results_total\S* (\S+)$", text, re.MULTILINE)
    return sum(map(float, lines))


class Switch:
    """A weft-switch of the test's own, on loopback."""

    def __init__(self, key, port=0, options=()):
        """On any port, or on one that it had before.

        That one may be somebody else's for a moment: the kernel gives it to connections.
        """
        self.key = key
        command = [PROGRAM, "--key", key, "--host", "127.0.0.1", "--port", str(port)]
        command += ["--http", "127.0.0.1:0", *options]
        for _ in range(100 if port != 0 else 1):
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            line = self.process.stdout.readline()
            found = re.match(r".*ready on port (\d+), (http://\S+/)", line)
            if found:
                self.port, self.page = int(found[1]), found[2]
                return
            self.kill()
            time.sleep(0.05)
        raise AssertionError(
            f"weft-switch is not ready: it printed {line!r} and ended with "
            f"{self.process.returncode}"
        )

    def kill(self):
        self.process.kill()
        self.process.wait(30)
        self.process.stdout.close()

    def environment(self):
        return {"WEFT_SWITCH": f"127.0.0.1:{self.port}", "WEFT_SWITCH_KEY": self.key}
