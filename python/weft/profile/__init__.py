# SPDX-License-Identifier: Apache-2.0
"""Where does a program spend its time? By shared library, by function, by operator of PyTorch.

perf.py      samples with their call stacks, from Linux's perf
ldprofile.py one library, from glibc's LD_PROFILE: time and calls from other libraries
operators.py operators, from torch.profiler, and weft's own operations; hook/ goes into the program
samples.py   what all of them are counted into
report.py, page.py, trace.py   the table, the page with the flame graph, the trace for Perfetto
run.py       puts them together; weft.cli.profile is its command line
"""


class ProfileError(Exception):
    """The profile cannot be taken, or has nothing in it; the text says why and what to do."""
