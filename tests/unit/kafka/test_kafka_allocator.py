"""The C library really keeps the memory of requests that come and go."""

import subprocess
import sys

import pytest

from lakestream.kafka import allocator

_SCRIPT = """
import resource, runpy, sys
keep_freed_memory = runpy.run_path(sys.argv[2])["keep_freed_memory"]
if sys.argv[1] == "keep":
    assert keep_freed_memory()
for turn in range(60):
    if turn == 10:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    held = [bytearray(b"x") * 1_000_000 for _ in range(8)]
    del held
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _faults(mode: str) -> int:
    command = [sys.executable, "-c", _SCRIPT, mode, allocator.__file__]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc has the knob")
def test_buffers_are_not_fetched_from_the_kernel_again_and_again() -> None:
    assert _faults("keep") < 5_000
    assert _faults("default") > 20_000
