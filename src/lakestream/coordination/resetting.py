"""Where a share group may be told to begin, as its setting says it."""

import re
from typing import Final

BY_DURATION: Final = "by_duration:"
_DURATION: Final = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{1,9})?)S)?)?",
    re.IGNORECASE,
)
_LONGEST_DIGITS: Final = 12


def duration_ms(text: str) -> int | None:
    """Of a duration as ISO 8601 writes it, without years, months and signs; None: it is none."""
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()) or len(text) > 4 * _LONGEST_DIGITS:
        return None
    days, hours, minutes = (int(found[name] or 0) for name in ("days", "hours", "minutes"))
    return ((days * 24 + hours) * 60 + minutes) * 60_000 + int(float(found["seconds"] or 0) * 1000)


def is_reset(text: str) -> bool:
    """Whether that says where a group is to begin."""
    if text.startswith(BY_DURATION):
        return duration_ms(text.removeprefix(BY_DURATION)) is not None
    return text in ("earliest", "latest")
