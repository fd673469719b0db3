# SPDX-License-Identifier: Apache-2.0
"""Install weft and `torch_switchml` the way SwitchML's plugin was installed.

    [VARIABLE=value ...] python setup.py install [--prefix DIR] [--dry-run]

pip does the work: weft from the folder two above, its old names from the one above, then the part
that is compiled against torch. DEBUG=1 and BUILDDIR=folder are heeded; the other build variables of
the plugin are named if they are set, with what there is instead.
"""

import argparse
import os
import pathlib
import shlex
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
COMPAT, ROOT = HERE.parent, HERE.parents[1]

_UDP = "packets go through the kernel, over any network: there is nothing to choose"
_NONE = "nothing else has to be installed: weft brings all that it needs"
INSTEAD = {
    "DPDK": _UDP,
    "MLX5": _UDP,
    "MLX4": _UDP,
    "RDMA": f"{_UDP}; weft's own messages use RDMA by UCX where it is there",
    "SWITCHML_HOME": _NONE,
    "GRPC_HOME": f"{_NONE}; ranks register with weft-switch over TCP",
    "DPDK_HOME": _NONE,
}


def is_set(name: str) -> bool:
    return os.environ.get(name, "").lower() not in ("", "0", "no", "off", "false")


def commands(prefix: str | None) -> list[list[str]]:
    """What is run, one after the other."""
    pip = [sys.executable, "-m", "pip", "install"]
    place = ["--prefix", prefix] if prefix else []
    options = []
    if is_set("DEBUG"):
        options.append("--config-settings=cmake.build-type=Debug")
    if os.environ.get("BUILDDIR"):
        options.append(f"--config-settings=build-dir={os.environ['BUILDDIR']}")
    return [
        [*pip, *place, *options, str(ROOT)],
        [*pip, *place, "--no-deps", str(COMPAT)],
        [sys.executable, "-m", "weft.torch.build"],
    ]


def environment(prefix: str | None) -> dict[str, str]:
    """For the last command, which has to find what was installed."""
    if not prefix:
        return dict(os.environ)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    place = pathlib.Path(prefix).resolve() / "lib" / version / "site-packages"
    path = [str(place), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Installs weft and torch_switchml with pip.",
        epilog="Build variables: DEBUG=1, BUILDDIR=folder. The guide is docs/guide/switch.md.",
    )
    parser.add_argument("command", choices=["install"])
    parser.add_argument("--prefix", help="install there instead of into this environment")
    parser.add_argument("--dry-run", action="store_true", help="print the commands and do nothing")
    arguments = parser.parse_args()
    for name, instead in INSTEAD.items():
        if is_set(name):
            print(f"setup.py: {name} is ignored: {instead}", file=sys.stderr)
    for command in commands(arguments.prefix):
        print("$", shlex.join(command), flush=True)
        if arguments.dry_run:
            continue
        done = subprocess.run(command, env=environment(arguments.prefix), check=False)
        if done.returncode != 0:
            print(f"setup.py: this failed: {shlex.join(command)}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
