# SPDX-License-Identifier: Apache-2.0
"""Build the shim: python -m weft.torch.build

The shim is the C++ class that torch.distributed calls. torch promises no stable
interface for it, so it is built against the torch that is installed, into a file
whose name says for which torch, which Python and which sources it is good. It
goes next to this file, and into the list of the package's files, so that pip
uninstall removes it; or, if that folder cannot be written, into the user's cache.
"""

import argparse
import contextlib
import hashlib
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile

PACKAGE = pathlib.Path(__file__).resolve().parents[1]
SOURCES = pathlib.Path(__file__).resolve().parent / "source"
COMMAND = f"{sys.executable} -m weft.torch.build"


class BuildError(RuntimeError):
    """The shim cannot be built; the text says why and what to do."""


def torch_version() -> str:
    """The installed torch, as "2.13.0+cpu"; without importing it all."""
    import torch.version

    return torch.version.__version__


def identity() -> str:
    """What a build is good for: torch, Python, and what it came from."""
    digest = hashlib.sha256()
    headers = (PACKAGE / "include" / "weft").glob("*.h")
    sources = SOURCES.rglob("*.[ch]pp")
    for path in [pathlib.Path(__file__), *sorted(sources), *sorted(headers)]:
        digest.update(path.name.encode() + path.read_bytes())
    torch = torch_version().replace("+", "_").replace(".", "_")
    python = sysconfig.get_config_var("SOABI").replace("-", "_")
    return f"_shim_{torch}_{python}_{digest.hexdigest()[:12]}"


def folders() -> list[pathlib.Path]:
    """Where a build may lie, best first."""
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return [pathlib.Path(__file__).resolve().parent, pathlib.Path(cache) / "weft"]


def find() -> pathlib.Path | None:
    """The build for what is installed, if there is one."""
    name = identity() + ".so"
    return next((f / name for f in folders() if (f / name).is_file()), None)


def build(verbose: bool = False) -> pathlib.Path:
    """Build the shim for the installed torch and return the file."""
    target = _writable() / (identity() + ".so")
    # One compilation, because nearly all of its time goes into torch's headers.
    compile_library(sorted(SOURCES.rglob("*.cpp")), target, verbose)
    for other in target.parent.glob(target.stem.rpartition("_")[0] + "_*.so"):
        if other != target:
            other.unlink()  # of sources that are not installed any more
    _record(target)
    return target


def compile_library(sources: list[pathlib.Path], target: pathlib.Path, verbose: bool) -> None:
    """Compile sources that may include the shim's and torch's headers."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        raise BuildError("there is no C++ compiler: install g++, or name one in CXX")
    units = "".join(f'#include "{path}"\n' for path in sources)
    with tempfile.TemporaryDirectory() as scratch:
        output = pathlib.Path(scratch, target.name)
        options = [*_options(), *shlex.split(os.environ.get("CXXFLAGS", ""))]
        command = [*shlex.split(compiler), *options, "-x", "c++", "-", "-x", "none"]
        command += [*_libraries(), "-o", str(output)]
        if verbose:
            print(" ".join(command))
        try:
            result = subprocess.run(
                command, input=units, text=True, capture_output=not verbose, check=False
            )
        except OSError as error:
            raise BuildError(f"the compiler {compiler!r} cannot be started: {error}") from None
        if result.returncode != 0:
            raise BuildError(f"the compiler failed:\n{result.stderr or ''}")
        # Ranks that start meanwhile find the old file or the new one.
        shutil.copy(output, target.with_suffix(".part"))
        os.replace(target.with_suffix(".part"), target)


def _record(target: pathlib.Path) -> None:
    """Name the shims that lie beside `target` in the list of what pip has installed."""
    site = PACKAGE.parent
    record = next(iter(sorted(site.glob("weft-*.dist-info/RECORD"))), None)
    if record is None or not target.is_relative_to(site):
        return
    folder = target.parent.relative_to(site)
    ours = f"{folder}/_shim_"
    lines = record.read_text().splitlines()
    if not any(line.startswith(f"{folder}/build.py,") for line in lines):
        return  # of another installation, an editable one say
    kept = [line for line in lines if not line.startswith(ours)]
    # Hash and size may be left out.
    kept += [f"{folder}/{path.name},," for path in sorted(target.parent.glob("_shim_*.so"))]
    part = record.with_suffix(".part")
    with contextlib.suppress(OSError):  # it can be used all the same
        part.write_text("".join(f"{line}\n" for line in kept))
        os.replace(part, record)


def _writable() -> pathlib.Path:
    for folder in folders():
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    raise BuildError(f"none of these can be written: {', '.join(map(str, folders()))}")


def _options() -> list[str]:
    import torch
    from torch.utils import cpp_extension

    includes = [*cpp_extension.include_paths(), sysconfig.get_path("include")]
    return [
        "-std=c++20" if _at_least(2, 13) else "-std=c++17",
        "-O2",
        "-fPIC",
        "-shared",
        "-s",
        "-fvisibility=hidden",
        "-Wall",
        "-Wno-deprecated-declarations",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        f"-DWEFT_SHIM_NAME={identity()}",
        f"-I{SOURCES}",
        f"-I{PACKAGE / 'include'}",
        *(f"-isystem{path}" for path in includes),
    ]


def _libraries() -> list[str]:
    """libweft by its own name, which is already loaded when the shim is."""
    from torch.utils import cpp_extension

    library = next(PACKAGE.glob("libweft.so*"))
    torch = [f"-L{path}" for path in cpp_extension.library_paths()]
    return [
        *torch,
        "-lc10",
        "-ltorch_cpu",
        "-ltorch_python",
        str(library),
        *_standard_library(),
        "-ldl",
        "-Wl,-rpath,$ORIGIN/..",
    ]


def _standard_library() -> list[str]:
    """The C++ library that torch runs on, as a file.

    Some compilers link their own into the shim. Streams then pass between two of
    them, and the first number that is written into an error message crashes.
    """
    import torch  # noqa: F401  loads it

    maps = pathlib.Path("/proc/self/maps").read_text()
    files = {line.split()[-1] for line in maps.splitlines()}
    return sorted(name for name in files if re.search(r"/libstdc\+\+\.so[.0-9]*$", name))


def _at_least(*wanted: int) -> bool:
    return tuple(map(int, torch_version().split(".")[:2])) >= wanted


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m weft.torch.build", description=__doc__)
    parser.add_argument("--force", action="store_true", help="also if there is one")
    parser.add_argument("--verbose", action="store_true", help="show the compiler's command")
    options = parser.parse_args()
    try:
        found = None if options.force else find()
        if found is not None:
            _record(found)  # the package may have been installed anew since
        else:
            print(f"building the shim for torch {torch_version()}; half a minute or so", flush=True)
            found = build(options.verbose)
    except ModuleNotFoundError as error:
        print(f"weft.torch.build: {error}", file=sys.stderr)
        return 1
    except BuildError as error:
        print(f"weft.torch.build: {error}", file=sys.stderr)
        return 1
    print(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
