# SPDX-License-Identifier: Apache-2.0
"""Goes into the programs that `weft profile` runs, by PYTHONPATH; imports nothing of weft's.

Python imports a module of this name as it starts. Once the program imports torch its operators are
recorded until the process ends, and once it imports weft so are weft's own operations; a program
that does neither is left alone. What goes wrong here is written down and never the program's
trouble. The program's Python may be another one than that of `weft profile`.
"""

import atexit
import importlib
import importlib.util
import json
import os
import sys
import threading
import time

_SETTINGS = "_WEFT_PROFILE"  # a name of weft's settings would be warned about


class _Recording:
    """What this process records, and where to."""

    def __init__(self, folder, seconds):
        self.folder, self.seconds, self.pid = folder, seconds, os.getpid()
        self.profiler, self.ended, self.begun = None, False, time.time()
        self.calls = []
        self.cut = False

    def path(self, what):
        return os.path.join(self.folder, f"{what}-{self.pid}.json")

    def note(self, error):
        with open(os.path.join(self.folder, f"error-{self.pid}.txt"), "a") as file:
            print(f"{type(error).__name__}: {error}", file=file)

    def guarded(self, start):
        """The same function, whose exceptions are written down."""

        def guard(module):
            try:
                start(module)
            except Exception as error:
                self.note(error)

        return guard

    def start_torch(self, _module):
        from torch.profiler import profile

        self.profiler = profile(record_shapes=True)
        self.profiler.start()
        self.begun = time.time()
        if self.seconds:
            timer = threading.Timer(self.seconds, self._ask_to_stop)
            timer.daemon = True
            timer.start()

    def start_weft(self, _module):
        from weft.profile import ranges

        ranges.start(lambda *call: self.calls.append(call))

    def _ask_to_stop(self):
        # Only the thread that started torch's profiler may stop it: this has it done there.
        import ctypes

        def stop(_unused):
            self.cut = True
            self.stop_torch()
            return 0

        self._stop = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(stop)
        ctypes.pythonapi.Py_AddPendingCall(self._stop, None)

    def stop_torch(self):
        profiler, self.profiler = self.profiler, None
        if profiler is not None:
            try:
                profiler.stop()
                profiler.export_chrome_trace(self.path("torch"))
            except Exception as error:
                self.note(error)

    def end(self):
        if self.ended or os.getpid() != self.pid:  # a process that was forked has its parent's
            return
        self.ended = True
        self.stop_torch()
        names = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
        about = {
            "argv": [*sys.argv],
            "environment": {name: os.environ[name] for name in names if name in os.environ},
            "cut": self.cut,
            "calls": self.calls,
        }
        with open(self.path("process"), "w") as file:
            json.dump(about, file)


class _Finder:
    """Has something done as soon as a module has been imported."""

    def __init__(self, what):
        self.what = what  # module -> what to do, with the module

    def find_spec(self, name, path=None, target=None):
        then = self.what.pop(name, None)
        if then is None:
            return None
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            then(module)

        vars(spec.loader)["exec_module"] = exec_module
        return spec


def _others():
    """The module of this name that the program would have had without us."""
    here = os.path.dirname(os.path.abspath(__file__))
    kept = [*sys.path]
    sys.path[:] = [path for path in kept if os.path.abspath(path or ".") != here]
    own = sys.modules.pop("sitecustomize", None)
    try:
        importlib.import_module("sitecustomize")
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
        if own is not None:
            sys.modules["sitecustomize"] = own


def _begin():
    recording = _Recording(**json.loads(os.environ[_SETTINGS]))
    starts = {"torch": recording.start_torch, "weft": recording.start_weft}
    watched = {name: recording.guarded(start) for name, start in starts.items()}
    sys.meta_path.insert(0, _Finder(watched))
    atexit.register(recording.end)


if _SETTINGS in os.environ:
    try:
        _begin()
    except Exception as error:
        print(f"weft profile: {error}", file=sys.stderr)
_others()
