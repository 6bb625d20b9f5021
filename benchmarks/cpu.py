"""CPU time of everything that a measurement starts."""

from contextlib import suppress

import psutil


def cpu_s() -> float:
    """Of this process and all below it."""
    me = psutil.Process()
    total = 0.0
    for process in (me, *me.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total
