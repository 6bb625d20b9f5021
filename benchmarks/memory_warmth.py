"""Memory that the machine really has.

A virtual machine gets memory from its host when it is first touched, and may give it back when idle. Whoever touches it
first pays with system time, which would be charged to the broker under measurement: so much of it that ratios swing by
a factor of two. Touching beforehand as much page cache as the rounds will fill takes that out, for both sides.
"""

import os
import tempfile

STEP_BYTES = 1024 * 1024
SHARE_OF_FREE = 0.4
MOST_BYTES = 8 * 1024**3


def touch() -> None:
    """Fills a file in the page cache and deletes it: its pages are the next that anybody gets."""
    free_bytes = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    count = int(min(free_bytes * SHARE_OF_FREE, MOST_BYTES)) // STEP_BYTES
    step = bytes(STEP_BYTES)
    with tempfile.TemporaryFile() as file:
        for _ in range(count):
            file.write(step)
