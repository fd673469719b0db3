#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torch's own tests of torch.distributed, from the installed wheel, run on weft.

usage: torch_suite.py [--ranks N] [--as gloo|weft|alltoall|peer] [--counts FILE] [NAME ...]

The tests choose what to run by the literal name of the backend. So weft is
presented in three ways:

  gloo      under gloo's name: everything that gloo runs
  weft      under its own name, with the tests that gloo runs
  alltoall  under its own name, with the all_to_all tests, which torch itself
            runs on MPI and NCCL only
  peer      gloo itself, to see what the suite makes of it here

With WT_HOSTS=2 the ranks are spread over two hosts, with WT_PRETEND=1 beside it over two nodes of
this one, with WT_MPI=openmpi they are started by its mpirun, anew for each test (tests/support/
on_hosts.py); with WT_SHARE_ALL=1 all their tensors lie in the arena (weft.torch.share_all).

Exits with 0 if all passed, 77 if the suite cannot run here.
"""

import argparse
import itertools
import json
import multiprocessing
import os
import pathlib
import re
import sys
import tempfile
import time
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

import on_hosts
import processes

try:
    import torch
except ModuleNotFoundError:
    torch = None

DEADLINE = 120.0  # seconds for one test of ranks that mpirun starts
# In these tests torch looks at the name "gloo" itself and refuses any other.
NAME_CHECKED = {
    "test_monitored_barrier_gloo",
    "test_monitored_barrier_gloo_rank_0_timeout",
    "test_monitored_barrier_gloo_subgroup",
    "test_monitored_barrier_failure_order",
    "test_monitored_barrier_wait_all_ranks",
    "test_get_backend",
    "test_Backend_enum_class",
}
# This one expects fields that DDP's logger reads from torch's own class.
CLASS_CHECKED = {"test_ddp_logging_data_cpu"}
# Decorators of tests that need what is not here.
NEEDS_DEVICE = re.compile(r"gpu|cuda|nccl|rocm|multigpu", re.IGNORECASE)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=4)
    choices = ["gloo", "weft", "alltoall", "peer"]
    parser.add_argument("--as", dest="variant", choices=choices, default="gloo")
    parser.add_argument("--list", action="store_true", help="only print the tests' names")
    parser.add_argument("--counts", type=pathlib.Path, help="JSON file for how many tests did what")
    parser.add_argument("names", nargs="*", metavar="NAME")
    return parser.parse_args()


def prepare(options, folder):
    """What the suite reads from the environment when it is imported."""
    for name in ("barrier", "test_dir", "init_dir"):
        (folder / name).mkdir(exist_ok=True)
    # The decorators are evaluated with this name; see also present_as_weft.
    os.environ["BACKEND"] = "mpi" if options.variant == "alltoall" else "gloo"
    os.environ.update(
        CUDA_VISIBLE_DEVICES="",
        OMP_NUM_THREADS="1",
        WORLD_SIZE=str(options.ranks),
        TEMP_DIR=str(folder),
        INIT_METHOD=f"file://{folder}/init_dir/file",
        MASTER_ADDR="127.0.0.1",
    )
    os.environ.setdefault("DISTRIBUTED_TESTS_DEFAULT_TIMEOUT", "300")
    try:
        import expecttest  # noqa: F401
    except ModuleNotFoundError:
        # The suite imports it, but these tests use nothing of it.
        stand_in = types.ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase
        sys.modules["expecttest"] = stand_in


def present_as_gloo():
    """Have torch make a weft backend wherever it makes one of gloo."""
    import torch.distributed.distributed_c10d as c10d
    from weft.torch import _group

    gloo = c10d.ProcessGroupGloo

    class Kind(type):
        def __instancecheck__(cls, instance):
            return isinstance(instance, (gloo, _group.Backend))

    class AsGloo(metaclass=Kind):
        def __new__(cls, store, rank, size, timeout):
            options = _group.Options(timeout)
            return _group.backend_at(store, rank, size, options, name="gloo")

    c10d.ProcessGroupGloo = AsGloo
    as_plugin(c10d.ProcessGroup)


def share_tensors():
    """Have every rank share its tensors from its first group on."""
    import weft.torch
    from weft.torch import _group

    make = _group.backend_at

    def share_and_make(*args, **more):
        weft.torch.share_all(minimum=1)
        return make(*args, **more)

    _group.backend_at = share_and_make


def as_plugin(group_class):
    """Have groups hold weft as what it is: DDP's logger casts what is held as
    gloo to torch's own class and reads its fields."""
    kinds = group_class.BackendType
    hold, make_default = group_class._register_backend, group_class._set_default_backend

    def kind_of(kind):
        return kinds.CUSTOM if kind == kinds.GLOO else kind

    group_class._register_backend = lambda self, device, kind, backend: hold(
        self, device, kind_of(kind), backend
    )
    group_class._set_default_backend = lambda self, kind: make_default(self, kind_of(kind))


def present_as_weft(suite):
    """The decorators have seen another name by now; the ranks will see ours."""
    import weft.torch  # noqa: F401

    suite.BACKEND = "weft"
    suite.PROFILING_SUPPORTED_BACKENDS.append("weft")


def name_in_logs(suite):
    """DDP's logger gives the kind of a plugin, "custom", where the suite expects
    the name of the backend."""
    ddp = suite.DistributedDataParallel
    original = ddp._get_ddp_logging_data

    def renamed(self):
        data = original(self)
        return {k: suite.BACKEND if v == "custom" else v for k, v in data.items()}

    ddp._get_ddp_logging_data = renamed


def decorators(function):
    """The names of the functions that a test is wrapped in."""
    while function is not None:
        code = getattr(function, "__code__", None)
        yield code.co_qualname if code else ""
        function = getattr(function, "__wrapped__", None)


def selected(options, case):
    names = []
    for name in sorted(n for n in dir(case) if n.startswith("test_")):
        function = getattr(case, name)
        needs = any(NEEDS_DEVICE.search(d) for d in decorators(function) if "<locals>" in d)
        if needs or getattr(function, "__unittest_skip__", False):
            continue
        if options.variant == "alltoall" and ("all_to_all" not in name or "cuda" in name):
            continue
        part = name.endswith("_group") and "full_group" not in name
        if options.variant == "alltoall" and part and options.ranks < 3:
            continue  # they make a group of ranks 1 and 2, and have no check for it
        if options.variant == "weft" and name in NAME_CHECKED:
            continue
        if options.variant == "gloo" and name in CLASS_CHECKED:
            continue
        names.append(name)
    unknown = set(options.names) - set(names)
    if unknown:
        sys.exit(f"not among the tests that can run: {', '.join(sorted(unknown))}")
    return options.names or names


def made_here(options, folder):
    """The suite, in this process."""
    torch.set_num_threads(1)
    prepare(options, folder)
    if options.variant == "gloo":
        present_as_gloo()
    import torch.testing._internal.distributed.distributed_test as suite

    if options.variant in ("weft", "alltoall"):
        present_as_weft(suite)
    if options.variant != "peer":
        name_in_logs(suite)
        if "WT_SHARE_ALL" in os.environ:
            share_tensors()
    return suite


def meet_in(store, ranks):
    """A barrier for a suite whose own one tells ranks by their pids, which hosts have each."""
    rounds = itertools.count()

    def sync(wait_for=ranks, timeout=10):
        key = f"barrier {next(rounds)}"
        end = time.monotonic() + timeout
        store.add(key, 1)
        while store.add(key, 0) < wait_for:
            if time.monotonic() > end:
                raise RuntimeError("barrier timeout")
            time.sleep(0.01)

    return sync


def launched_rank(rank, options, folder, name, file):
    """One rank of one test, started by mpirun: how it exits, and what it has to say."""
    suite = made_here(options, folder)
    store = torch.distributed.FileStore(f"{file}.barrier", options.ranks)
    suite.Barrier.sync = meet_in(store, options.ranks)
    case = make_case(suite, options.ranks)
    ours, theirs = multiprocessing.Pipe()
    try:
        case._run(rank, name, file, theirs)
    except SystemExit as end:
        failed = end.code == case.TEST_ERROR_EXIT_CODE
        return end.code, ours.recv() if failed else ""
    return 0, ""


def make_launched_case(suite, options, folder):
    import launched
    import torch_suite  # this file, by the name that the ranks know

    skips = {skip.exit_code: skip.message for skip in suite.TEST_SKIPS.values()}

    class OnWeft(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
        def _join_processes(self, fn):
            what = (options, folder, self._testMethodName, self.file_name)
            work = torch_suite.launched_rank
            ended = launched.start(options.ranks, work, *what, deadline=DEADLINE)
            codes, said = zip(*processes.values(ended), strict=True)
            if codes[0] in skips:
                self.skipTest(skips[codes[0]])
            self.assertEqual(set(codes), {0}, "\n".join(said))

    return OnWeft


def make_case(suite, ranks):
    class Rank(torch.multiprocessing.get_context("fork").Process):
        """Forked: so it has torch loaded already, which is most of the time."""

        def run(self):
            on_hosts.enter(self._args[0], ranks)
            super().run()

    class OnWeft(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._start_processes(Rank)

    on_hosts.bed()  # made here, and not by each rank
    return OnWeft


def main():
    options = arguments()
    if torch is None:
        print("torch is not installed")
        return 77
    dist = torch.distributed
    if not dist.is_available() or not dist.is_gloo_available():
        print("this torch has no gloo")
        return 77
    from weft.torch import build

    if options.variant != "peer" and build.find() is None:
        print(f"the shim is not built: {build.COMMAND}")
        return 77
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        suite = made_here(options, folder)
        if on_hosts.MPI is None:
            case = make_case(suite, options.ranks)
        else:
            case = make_launched_case(suite, options, folder)
        names = selected(options, case)
        if options.list:
            print("\n".join(names))
            return 0
        case.setUpClass()
        tests = unittest.TestSuite(case(name) for name in names)
        start = time.monotonic()
        result = unittest.TextTestRunner(verbosity=2).run(tests)
        if options.counts is not None:
            options.counts.write_text(json.dumps(counts(result, time.monotonic() - start)))
        return 0 if result.wasSuccessful() else 1


def counts(result, seconds):
    """How many tests ran, failed and were skipped, in so many seconds."""
    skipped = len(result.skipped)
    failed = len(result.failures) + len(result.errors)
    run = result.testsRun - skipped
    return {"run": run, "failed": failed, "skipped": skipped, "seconds": seconds}


if __name__ == "__main__":
    sys.exit(main())
