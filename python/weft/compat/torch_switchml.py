# SPDX-License-Identifier: Apache-2.0
"""SwitchML's PyTorch plugin on weft: `import torch_switchml`, then the backend "sml".

    import torch_switchml
    dist.init_process_group(backend="sml", ...)

The switch is what a switchml.cfg names as its controller: a weft-switch. The file is read when a
process group is made, from /etc, the current directory, or there under the host's own name
(switchml-HOST.cfg); the first that there is counts. Its key, which SwitchML has none of, is in the
file that WEFT_SWITCH_KEY names.
"""

import pathlib
import socket
import warnings
from typing import NamedTuple

import torch.distributed as dist

from weft._core import InvalidError

__all__ = ["Config", "find_config", "read_config"]

_QUANTISER = "cpu_exponent_quantizer"

# Keys that are read, and those that mean nothing here: what is said of them.
_READ = {
    *("general.rank", "general.num_workers", "general.max_outstanding_packets"),
    *("general.packet_numel", "general.controller_ip", "general.controller_port"),
}
_ADAPTS = "timeouts follow the measured round trips"
_NO_MEANING = {
    "general.num_worker_threads": "a rank needs one thread",
    "general.backend": "packets are UDP of the kernel, on any network",
    "general.scheduler": "calls are served in their order",
    "general.prepostprocessor": "f32 is sent in fixed point, other types as they are",
    "general.instant_job_completion": "calls communicate",
    "general.timeout": _ADAPTS,
    "general.timeout_threshold": _ADAPTS,
    "general.timeout_threshold_increment": _ADAPTS,
    **{f"backend.dummy.{key}": "there is no dummy" for key in ("bandwidth", "process_packets")},
    **{
        f"backend.dpdk.{key}": "there is no DPDK"
        for key in (
            *("worker_port", "worker_ip", "cores", "extra_eal_options", "port_id", "pool_size"),
            *("pool_cache_size", "burst_rx", "burst_tx", "bulk_drain_tx_us"),
        )
    },
    **{
        f"backend.rdma.{key}": "there is no RDMA"
        for key in ("msg_numel", "device_name", "device_port_id", "gid_index")
    },
}


class Config(NamedTuple):
    """What a switchml.cfg says that means something here; None: it says nothing."""

    file: str
    rank: int | None = None
    num_workers: int | None = None
    max_outstanding_packets: int | None = None
    packet_numel: int | None = None
    controller_ip: str = "127.0.0.1"
    controller_port: int | None = None  # as weft-switch has it


def _parsed(file: pathlib.Path) -> dict[str, str]:
    """Keys and values; a key of a section has its name in front."""
    found = {}
    section = ""
    for number, line in enumerate(file.read_text().splitlines(), 1):
        text = line.partition("#")[0].strip()
        key, equals, value = (part.strip() for part in text.partition("="))
        if text.startswith("[") and text.endswith("]"):
            section = text[1:-1].strip() + "."
        elif equals and key:
            found[section + key] = value
        elif text:
            raise InvalidError(
                f"{file}, line {number}: {text!r} is neither [section] nor key=value"
            )
    return found


def _number(file: pathlib.Path, key: str, text: str, least: int, most: int) -> int:
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
        raise InvalidError(f"{file}: {key} is {text!r}; it must be from {least} to {most}")
    return int(text)


def read_config(file: str | pathlib.Path) -> Config:
    """Read one. Unknown keys are an error; those without a meaning here are warned about."""
    file = pathlib.Path(file)
    found = _parsed(file)
    unknown = sorted(found.keys() - _READ - _NO_MEANING.keys())
    if unknown:
        raise InvalidError(f"{file}: unknown key {unknown[0]}")
    for key in sorted(found.keys() & _NO_MEANING.keys()):
        default = {"general.prepostprocessor": _QUANTISER, "general.scheduler": "fifo"}.get(key)
        if found[key] != default:
            warnings.warn(f"{file}: {key} is ignored: {_NO_MEANING[key]}", stacklevel=2)
    limits = {
        **{"rank": (0, 255), "num_workers": (1, 256)},
        **{"max_outstanding_packets": (1, 4096), "packet_numel": (64, 2112)},
        "controller_port": (1, 65535),
    }
    values: dict[str, int | str] = {
        name: _number(file, f"general.{name}", found[f"general.{name}"], *limit)
        for name, limit in limits.items()
        if f"general.{name}" in found
    }
    if "general.controller_ip" in found:
        values["controller_ip"] = found["general.controller_ip"]
    return Config(file=str(file), **values)  # type: ignore[arg-type]


def find_config() -> pathlib.Path:
    """The file that counts here."""
    names = (
        *("/etc/switchml.cfg", "switchml.cfg"),
        f"switchml-{socket.gethostname()}.cfg",
    )
    for name in names:
        if pathlib.Path(name).is_file():
            return pathlib.Path(name)
    raise InvalidError(
        f"there is no configuration: none of {', '.join(names)}; nor is WEFT_SWITCH set"
    )


def _payload(numel: int) -> int:
    """Bytes of a packet for so many floats in fixed point, in lines of 64."""
    bytes_ = 4 * numel + 2 * -(-numel // 64)
    return -(-bytes_ // 64) * 64


def settings(rank: int, size: int) -> dict[str, object]:
    """weft's settings out of the file, for this rank of a process group."""
    config = read_config(find_config())
    # The file speaks of the job, whose group is the first.
    of_job = not dist.is_initialized()
    for what, ours, theirs in (
        ("rank", rank, config.rank),
        ("num_workers", size, config.num_workers),
    ):
        if of_job and theirs is not None and theirs != ours:
            raise InvalidError(
                f"{config.file}: general.{what} is {theirs}, but torch says {ours}; correct the "
                "file, or leave the line out"
            )
    port = "" if config.controller_port is None else f":{config.controller_port}"
    hosts = (host.strip() for host in config.controller_ip.split(","))
    places = (f"[{host}]{port}" if ":" in host else host + port for host in hosts)
    given: dict[str, object] = {"switch": ",".join(places)}
    if config.max_outstanding_packets is not None:
        given["switch_slots"] = config.max_outstanding_packets
    if config.packet_numel is not None:
        given["switch_payload"] = _payload(config.packet_numel)
    return given


def _register() -> None:
    import weft.torch
    from weft.torch import _sml

    weft.torch.register()
    _sml.configured = settings


_register()
