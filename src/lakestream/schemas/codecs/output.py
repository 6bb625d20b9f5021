"""What a kernel writes: values one behind the other, in memory that grows until all of them are in it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from lakestream.records import Binary
from lakestream.records.native import address
from lakestream.schemas.codecs.layout import ValueStatus


def addresses(*arrays: npt.NDArray[Any]) -> list[int]:
    """They are kept by whoever asks for as long as a kernel works on them."""
    return [int(address(array)) for array in arrays]


def written(write: Callable[..., int], count: int, limit_bytes: int, slack_bytes: int) -> Binary:
    """`count` values by the kernel `write`, all of whose arguments are bound but the last five: the address of the
    memory, its limit, and the addresses of the offsets, of what is valid, and of the cursor at which it goes on when it
    gets more. It may write `slack_bytes` behind the limit."""
    offsets = np.zeros(count + 1, np.int32)
    valid = np.zeros(count, np.uint8)
    cursor = np.zeros(3, np.int64)
    out = np.empty(limit_bytes + slack_bytes, np.uint8)
    while True:
        if write(address(out), limit_bytes, *addresses(offsets, valid, cursor)) == ValueStatus.DONE:
            return Binary(offsets, out[: int(offsets[-1])], valid)
        limit_bytes *= 2
        grown = np.empty(limit_bytes + slack_bytes, np.uint8)
        grown[: len(out)] = out
        out = grown
