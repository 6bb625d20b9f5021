"""How much memory there is, and what is done about it."""

import gc
from contextlib import suppress
from pathlib import Path

import psutil


def memory_limit_bytes() -> int:
    """What the processes here may use together: the machine's memory, or what its container is given of it."""
    limits = [int(psutil.virtual_memory().total)]
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        # No number: there is no limit.
        with suppress(OSError, ValueError):
            limits.append(int(Path(file).read_text()))
    return min(limits)


def settle_memory() -> None:
    """What was loaded stays: the collector of cycles need not look at it again and again, and requests make few."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
