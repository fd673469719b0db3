# SPDX-License-Identifier: Apache-2.0
"""Run a function of a test module on ranks of several hosts, as `ranks` does on this one.

    def body(greeting): ...                        # runs in every rank
    host_ranks.run(bed, body, "hello", each=2)     # ranks 0 and 1 are on host 0
    with host_ranks.Job(bed, body, each=[1, 3]) as job: job.kill(2)

Ranks meet in a directory of the bed.
"""

import tempfile

import ranks


class Job(ranks.Job):
    """Ranks of all hosts of a bed; `each` is how many a host has, or a list of that."""

    def __init__(self, bed, body, *args, each=1, environment=None):
        self._bed = bed
        counts = [each] * len(bed) if isinstance(each, int) else each
        self._places = [host for host, count in enumerate(counts) for _ in range(count)]
        super().__init__(len(self._places), body, *args, environment=environment)

    def _shared_environment(self):
        return {"WEFT_BOOT_DIR": tempfile.mkdtemp(prefix="boot-", dir=self._bed.shared)}

    def _start(self, number, size, command, **more):
        return self._bed.popen(self._places[number], command, inherit=False, **more)


def run(bed, body, *args, each=1, environment=None, seconds=ranks.DEADLINE):
    """Run `body(*args)` on ranks of all hosts; all must end well. Returns what each printed."""
    with Job(bed, body, *args, each=each, environment=environment) as job:
        return job.finish(seconds=seconds)
