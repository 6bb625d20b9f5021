"""One line of the table of ratios."""

import os
from typing import TypedDict

QUICK = os.environ.get("QUICK", "") not in ("", "0")
"""Fewer and shorter rounds: to see that everything runs, not to quote."""


class Result(TypedDict):
    """`ratio` is ours to the peer's, or to the target figure where there is no peer."""

    name: str
    ours: float
    peer: float | None
    unit: str
    ratio: float
    target: float
    met: bool


def versus(name: str, ours: float, peer: float, unit: str, *, at_least: float) -> Result:
    """Ours beside a peer's, both measured in this run: the ratio must reach the target."""
    ratio = round(ours / peer, 3)
    met = ratio >= at_least
    return Result(name=name, ours=round(ours, 1), peer=round(peer, 1), unit=unit, ratio=ratio, target=at_least, met=met)


def at_most_of(name: str, ours: float, peer: float, unit: str, *, at_most: float) -> Result:
    """Ours beside a peer's, both measured in this run: the ratio must not pass the target."""
    ratio = round(ours / peer, 3)
    met = ratio <= at_most
    return Result(name=name, ours=round(ours, 1), peer=round(peer, 1), unit=unit, ratio=ratio, target=at_most, met=met)


def reaches(name: str, ours: float, unit: str, *, at_least: float) -> Result:
    """Ours beside a fixed figure that must be reached."""
    return _fixed(name, ours, unit, at_least, met=ours >= at_least)


def stays_under(name: str, ours: float, unit: str, *, at_most: float) -> Result:
    """Ours beside a fixed figure that must not be passed."""
    return _fixed(name, ours, unit, at_most, met=ours <= at_most)


def _fixed(name: str, ours: float, unit: str, bound: float, *, met: bool) -> Result:
    ratio = round(ours / bound, 3)
    return Result(name=name, ours=round(ours, 2), peer=None, unit=unit, ratio=ratio, target=bound, met=met)
