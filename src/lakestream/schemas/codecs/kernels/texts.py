# mypy: ignore-errors
"""Values that are text as a whole."""

import numpy as np
from numba import njit

from lakestream.records.kernels.intrinsics import get_i32, get_u8, set_u8
from lakestream.schemas.codecs.kernels.json.scanning import is_json
from lakestream.schemas.codecs.kernels.pieces import is_text


@njit(nogil=True)
def check_texts(offsets, data, valid, stop, wants_json, states):
    """states[row]: 1 where there is a value, which is UTF-8, or JSON."""
    for row in range(stop):
        state = np.uint8(0)
        if get_u8(valid, row):
            start, end = np.int64(get_i32(offsets, row)), np.int64(get_i32(offsets, row + 1))
            state = np.uint8(is_json(data, start, end)) if wants_json else np.uint8(is_text(data, start, end))
        set_u8(states, row, state)
    return np.int64(0)
