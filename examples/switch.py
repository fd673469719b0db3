# SPDX-License-Identifier: Apache-2.0
"""Train on four hosts through a switch that adds, and without it.

    python examples/switch.py

The hosts are namespaces of this machine, with cables of 1 Gbit/s, which needs root; elsewhere the
four ranks share this host, and the switch is asked for by name. Both runs end with the same loss.
"""

import argparse
import contextlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from weft._switch import PROGRAM
from weft.bench.bed import Bed, missing

HOSTS = 4
TRAIN = pathlib.Path(__file__).with_name("ddp.py")
# Hosts that are namespaces do not know that they share the cores of one machine.
SHARED = {"OMP_NUM_THREADS": "1", "WEFT_SPIN": "0us", "WEFT_YIELD": "0us"}
QUIET = {"TORCH_CPP_LOG_LEVEL": "ERROR"}  # torch warns of hosts without a name server


class ThisHost:
    """What `Bed` is, without hosts: processes of this one."""

    switch_address = "127.0.0.1"

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.shared = pathlib.Path(self.folder.name)

    def popen_in_switch(self, command, **more):
        return subprocess.Popen(command, **more)

    def launch(self, command, env):
        launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(HOSTS)]
        everything = {**os.environ, **env, "WEFT_ENGINE": "switch" if "WEFT_SWITCH" in env else ""}
        return [subprocess.Popen([*launch, *command[1:]], env=everything)]

    def close(self):
        self.folder.cleanup()


@contextlib.contextmanager
def switch_on(bed):
    """A weft-switch at the place where all cables end; yields what its jobs need to know."""
    key = bed.shared / "switch.key"
    subprocess.run([PROGRAM, "key", key], check=True, stdout=subprocess.DEVNULL)
    command = [PROGRAM, "--key", key, "--port", "0", "--http", "off"]
    process = bed.popen_in_switch(command, stdout=subprocess.PIPE, text=True)
    port = re.search(r"port (\d+)", process.stdout.readline())[1]
    try:
        yield {"WEFT_SWITCH": f"{bed.switch_address}:{port}", "WEFT_SWITCH_KEY": str(key)}
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def train(bed, steps, settings):
    command = [sys.executable, str(TRAIN), "--steps", str(steps)]
    ranks = bed.launch(command, env={**SHARED, **QUIET, **settings})
    if any([rank.wait() for rank in ranks]):
        sys.exit("a rank failed")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    steps = parser.parse_args().steps
    why = missing()
    if why is not None:
        print(f"all ranks on this host: {why}")
    with contextlib.closing(Bed(HOSTS, rate="1gbit") if why is None else ThisHost()) as bed:
        print("without a switch:", flush=True)
        train(bed, steps, {})
        with switch_on(bed) as settings:
            print("through a switch:", flush=True)
            train(bed, steps, settings)


if __name__ == "__main__":
    main()
