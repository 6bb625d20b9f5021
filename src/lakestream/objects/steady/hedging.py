"""Which reads are late, and how many of them may be sent a second time.

Late is what takes longer than nearly all recent reads of about the same size took. A second request costs money, and
helps nobody if the whole store is slow: so only a small share of reads gets one.
"""

import math
from collections import deque
from typing import Final

QUANTILE: Final = 0.95
RECENT: Final = 256
LEAST: Final = 32
"""Reads of a kind before anything is known of it."""
LEAST_WAIT_S: Final = 0.02
SHARE: Final = 0.05
"""Second requests by first ones, in the long run."""
MOST_SAVED: Final = 8.0
"""Second requests that a calm time may save up."""
_UPDATE_EVERY: Final = 32


class Hedging:
    """Used from several threads: what a race may lose is one sample or a part of a request."""

    def __init__(self) -> None:
        self._kinds: dict[int, _Kind] = {}
        self._saved = 1.0

    def begin(self, length: int) -> float | None:
        """A read of so many bytes begins: after how many seconds it is late, None while that is not known."""
        self._saved = min(MOST_SAVED, self._saved + SHARE)
        kind = self._kinds.get(_size_class(length))
        return None if kind is None or math.isinf(kind.late_s) else kind.late_s

    def may_repeat(self) -> bool:
        """Whether there is a second request to spare; it is spent then."""
        if self._saved < 1:
            return False
        self._saved -= 1
        return True

    def took(self, length: int, seconds: float) -> None:
        self._kinds.setdefault(_size_class(length), _Kind()).add(seconds)


class _Kind:
    def __init__(self) -> None:
        self.late_s = math.inf
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._new = 0

    def add(self, seconds: float) -> None:
        self._recent.append(seconds)
        self._new += 1
        if self._new >= _UPDATE_EVERY and len(self._recent) >= LEAST:
            self._new = 0
            ordered = sorted(self._recent)
            self.late_s = max(LEAST_WAIT_S, ordered[int(QUANTILE * (len(ordered) - 1))])


def _size_class(length: int) -> int:
    """Sizes within a factor of sixteen."""
    return length.bit_length() // 4
