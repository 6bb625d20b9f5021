"""Python runs this first in a process that has its folder in PYTHONPATH: the process's wall clock is wrong."""

import os
import time

_OFFSET_S = float(os.environ["CLOCK_OFFSET_S"])
_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + _OFFSET_S
time.time_ns = lambda: _time_ns() + int(_OFFSET_S * 1e9)
