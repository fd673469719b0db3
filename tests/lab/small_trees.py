# SPDX-License-Identifier: Apache-2.0
"""Source trees that look like OpenBLAS and PyTorch and are built in a moment."""

import os
import pathlib
import signal
import subprocess
import sys

MAKEFILE = """\
CC ?= cc
FILES := one two three
libs: $(FILES:=.o)
%.o: %.c
\t@if [ -e "$(SLOW)" ] && [ $@ = two.o ]; then echo waiting; : >"$(SLOW).there"; sleep 1000; fi
\t$(CC) -fPIC -c $< -o $@
\techo $@ >>$(or $(COUNT),/dev/null)
netlib:
shared: libs
\t$(CC) -shared -o libopenblas_small-r1.2.so $(FILES:=.o)
clean:
\trm -f *.o *.so
install:
\tmkdir -p $(DESTDIR)$(PREFIX)/lib/cmake/openblas $(DESTDIR)$(PREFIX)/include
\tcp libopenblas_small-r1.2.so $(DESTDIR)$(PREFIX)/lib/
\tln -s libopenblas_small-r1.2.so $(DESTDIR)$(PREFIX)/lib/libopenblas.so.0
\tln -s libopenblas_small-r1.2.so $(DESTDIR)$(PREFIX)/lib/libopenblas.so
\techo config >$(DESTDIR)$(PREFIX)/lib/cmake/openblas/OpenBLASConfig.cmake
\tcp cblas.h $(DESTDIR)$(PREFIX)/include/
\tif [ -e big ]; then cp big $(DESTDIR)$(PREFIX)/lib/zz-big; fi
"""


def openblas(folder: pathlib.Path) -> pathlib.Path:
    """COUNT and SLOW in the environment name files: what was compiled, and where to wait."""
    folder.mkdir()
    (folder / "Makefile").write_text(MAKEFILE)
    (folder / "Makefile.rule").write_text("VERSION = 1.2\n")
    (folder / "Makefile.system").write_text("")
    (folder / "cblas.h").write_text("void cblas_sgemm(void);\n")
    for name, symbol in (("one", "sgemm_"), ("two", "dgemm_"), ("three", "cblas_sgemm")):
        (folder / f"{name}.c").write_text(f"void {symbol}(void) {{}}\n")
    return folder


SETUP = """\
import os, pathlib, sys
build = pathlib.Path("build")
build.mkdir(exist_ok=True)
home = os.environ.get("FOUND", os.environ["CMAKE_PREFIX_PATH"].split(";")[0])
(build / "CMakeCache.txt").write_text(
    f"BLAS:STRING={os.environ['BLAS']}\\n"
    f"OpenBLAS_LIB:FILEPATH={home}/lib/libopenblas.so\\n"
    f"OpenBLAS_INCLUDE_DIR:PATH={home}/include\\n"
)
if "bdist_wheel" in sys.argv:
    import zipfile
    pathlib.Path("dist").mkdir()
    with zipfile.ZipFile("dist/torch-9.9-py3-none-any.whl", "w") as wheel:
        info = "torch-9.9.dist-info"
        wheel.writestr("torch/__init__.py", "answer = 42\\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: torch\\nVersion: 9.9\\n")
        kind = "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
        wheel.writestr(f"{info}/WHEEL", kind)
        wheel.writestr(f"{info}/RECORD", "")
"""


def pytorch(folder: pathlib.Path) -> pathlib.Path:
    for inner in ("torch", "aten", "third_party/onnx"):
        (folder / inner).mkdir(parents=True)
    (folder / "setup.py").write_text(SETUP)
    (folder / "torch" / "CMakeLists.txt").write_text("")
    (folder / "third_party" / "onnx" / "CMakeLists.txt").write_text("")
    (folder / "version.txt").write_text("9.9\n")
    return folder


class Box:
    """A folder with an environment, a cache and a home, so that nothing else is touched."""

    def __init__(self, root: pathlib.Path):
        self.root = root
        self.env = root / "env"
        self.env.mkdir()
        (self.env / "lib").mkdir()
        (self.env / "lib" / "other.txt").write_text("not ours")
        hidden = {"VIRTUAL_ENV", "CONDA_PREFIX", "MAKEFLAGS", "CC", "CXX", "FC"}
        self.variables = {k: v for k, v in os.environ.items() if k not in hidden} | {
            "XDG_CACHE_HOME": str(root / "cache"),
            "XDG_STATE_HOME": str(root / "state"),
            "HOME": str(root),
        }

    def command(self, *words: object) -> list[str]:
        return [sys.executable, "-m", "weft", "build", *map(str, words)]

    def run(self, *words: object, **more: object) -> subprocess.CompletedProcess:
        """`weft build` with these words, for this environment."""
        variables = self.variables | {k: str(v) for k, v in more.pop("variables", {}).items()}
        if "--prefix" not in words:
            words = (*words, "--prefix", self.env)
        return subprocess.run(
            self.command(*words),
            env=variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=more.pop("timeout", 300),
            **more,
        )

    def start(self, *words: object, variables: dict | None = None) -> subprocess.Popen:
        return subprocess.Popen(
            self.command(*words, "--prefix", self.env),
            env=self.variables | {k: str(v) for k, v in (variables or {}).items()},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Tests that run in the background of a shell inherit that it is ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        )

    def listing(self) -> dict[str, str]:
        """All that is in the environment: what a removal must restore."""
        found = {}
        for path in sorted(self.env.rglob("*")):
            if path.is_symlink():
                content = f"-> {os.readlink(path)}"
            elif path.is_dir():
                content = "folder"
            else:
                content = f"{path.stat().st_mode:o} {path.read_bytes()!r}"
            found[str(path.relative_to(self.env))] = content
        return found


def said(done, status):
    """The one line on stderr with which a command ended."""
    assert done.returncode == status, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("weft build: ")]
    assert "Traceback" not in done.stderr
    return lines[-1]
