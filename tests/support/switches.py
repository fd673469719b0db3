# SPDX-License-Identifier: Apache-2.0
"""What tests with a weft-switch share."""

import re
import subprocess
import urllib.request

from weft._switch import PROGRAM


def make_key(path):
    """A new key, in a file; returns its name."""
    subprocess.run([PROGRAM, "key", path], check=True, capture_output=True)
    return str(path)


def read_port(process):
    """Wait until it is ready; its port."""
    return int(re.match(r".*ready on port (\d+)", process.stdout.readline())[1])


def chunks_at(page):
    """What a switch has reduced for the jobs that it has, by its page."""
    text = urllib.request.urlopen(page + "metrics", timeout=10).read().decode()
    lines = re.findall(r"^weft_switch_job_results_total\S* (\S+)$", text, re.MULTILINE)
    return sum(map(float, lines))


class Switch:
    """A weft-switch of the test's own, on loopback."""

    def __init__(self, key, port=0, options=()):
        self.key, self.port = key, port
        command = [PROGRAM, "--key", key, "--host", "127.0.0.1", "--port", str(port)]
        self.process = subprocess.Popen(
            [*command, "--http", "127.0.0.1:0", *options], stdout=subprocess.PIPE, text=True
        )
        found = re.match(r".*ready on port (\d+), (http://\S+/)", self.process.stdout.readline())
        self.port, self.page = int(found[1]), found[2]

    def kill(self):
        self.process.kill()
        self.process.wait(30)
        self.process.stdout.close()

    def environment(self):
        return {"WEFT_SWITCH": f"127.0.0.1:{self.port}", "WEFT_SWITCH_KEY": self.key}
