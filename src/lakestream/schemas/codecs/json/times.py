"""How times are written in JSON."""

import re
from typing import Final, NamedTuple

from lakestream.schemas.codecs.kernels.json.layout import FractionStyle

_FRACTIONS: Final[dict[str, FractionStyle]] = {
    "thousands": FractionStyle.BY_THREE,
    "six": FractionStyle.SIX,
    "trimmed": FractionStyle.TRIMMED,
}
_ZONE: Final = re.compile(r"(?:[Zz]|([+-])([01][0-9]|2[0-3]):?([0-5][0-9])?)?")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d([Tt ])\d\d:\d\d:\d\d(?:\.(\d{1,9}))?(|[Zz]|[+-]\d\d(?::?\d\d)?)", re.ASCII)


class TimeForm(NamedTuple):
    """`separator` is before the hours. `fraction`: so many digits, or by the value: `thousands` none, 3 or 6, `six`
    none or 6, `trimmed` as few as tell it. `zone` as it stands there; none means UTC."""

    separator: str = "T"
    fraction: int | str = "thousands"
    zone: str = "Z"

    @property
    def fraction_style(self) -> int:
        return self.fraction if isinstance(self.fraction, int) else int(_FRACTIONS[self.fraction])

    @property
    def offset_minutes(self) -> int:
        found = _ZONE.fullmatch(self.zone)
        if found is None:
            raise ValueError(self.zone)
        if found[1] is None:
            return 0
        minutes = int(found[2]) * 60 + int(found[3] or 0)
        return -minutes if found[1] == "-" else minutes

    def check(self) -> None:
        """Raises ValueError."""
        fraction = self.fraction
        if self.separator not in ("T", "t", " ") or (
            not 0 <= fraction <= 9 if isinstance(fraction, int) else fraction not in _FRACTIONS
        ):
            raise ValueError(str(self))
        if not isinstance(self.zone, str) or self.zone.endswith(":"):
            raise ValueError(str(self))
        _ = self.offset_minutes


class TimeText(NamedTuple):
    """What there is to see of a form in a time's text."""

    separator: str
    digits: str
    zone: str

    def has(self, fraction: int | str) -> bool:
        """Whether the fraction is written like that."""
        digits = self.digits
        if isinstance(fraction, int):
            return len(digits) == fraction
        if fraction == "trimmed":
            return len(digits) <= 6 and not digits.endswith("0")
        if fraction == "thousands":
            return len(digits) == 0 or (len(digits) in (3, 6) and digits[-3:] != "000")
        return len(digits) == 0 or (len(digits) == 6 and digits != "000000")


def seen_in(text: str) -> TimeText | None:
    """None: no form has times like that."""
    found = _TIME.fullmatch(text)
    return None if found is None else TimeText(found[1], found[2] or "", found[3])
