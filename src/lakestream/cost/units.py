"""Rates and durations as people write them: 5GiB/s, 800MB/s, 7d, 36h."""

import re
from typing import Final

from lakestream.errors import RequestError

_RATE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kKMGT]?i?)B/s")
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_POWERS: Final = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4}


def parse_rate(text: str) -> float:
    """Bytes a second. Raises `RequestError`."""
    found = _RATE.fullmatch(text.strip())
    if found is None or float(found[1]) <= 0:
        raise RequestError(f"{text!r} is no rate: write it as 5GiB/s or 800MB/s")
    unit = found[2]
    base = 1024 if unit.endswith("i") else 1000
    return float(found[1]) * float(base ** _POWERS[unit.removesuffix("i")])


def parse_duration(text: str) -> float:
    """Seconds. Raises `RequestError`."""
    found = _DURATION.fullmatch(text.strip())
    if found is None or float(found[1]) <= 0:
        raise RequestError(f"{text!r} is no time: write it as 7d, 36h or 90m")
    return float(found[1]) * _SECONDS[found[2]]
