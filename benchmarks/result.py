"""One line of the table of ratios, and the curve behind it where there is one."""

import os
from collections.abc import Iterable
from typing import Literal, NotRequired, TypedDict

QUICK = os.environ.get("QUICK", "") not in ("", "0")
"""Fewer and shorter rounds: to see that everything runs, not to quote."""


class Curve(TypedDict):
    """What `benchmarks.plots` draws into docs/plots/`name`.svg. `limit`, if there is one, is a figure of the y axis."""

    name: str
    title: str
    x: str
    y: str
    points: list[tuple[float, float]]
    limit: float | None


class Result(TypedDict):
    """`ratio` is ours to the peer's, or to the target figure where there is no peer. `bound`: whether what the target
    stands beside must be at least or at most that. `quick`: of a quick run, not to quote."""

    name: str
    ours: float
    peer: float | None
    unit: str
    ratio: float
    target: float
    bound: Literal["least", "most"]
    met: bool
    curve: NotRequired[Curve]
    quick: NotRequired[bool]


def versus(name: str, ours: float, peer: float, unit: str, *, at_least: float) -> Result:
    """Ours beside a peer's, both measured in this run: the ratio must reach the target."""
    return _beside(name, ours, peer, unit, at_least, "least")


def at_most_of(name: str, ours: float, peer: float, unit: str, *, at_most: float) -> Result:
    """Ours beside a peer's, both measured in this run: the ratio must not pass the target."""
    return _beside(name, ours, peer, unit, at_most, "most")


def reaches(name: str, ours: float, unit: str, *, at_least: float) -> Result:
    """Ours beside a fixed figure that must be reached."""
    return _fixed(name, ours, unit, at_least, "least")


def stays_under(name: str, ours: float, unit: str, *, at_most: float) -> Result:
    """Ours beside a fixed figure that must not be passed."""
    return _fixed(name, ours, unit, at_most, "most")


def with_curve(
    result: Result,
    name: str,
    title: str,
    *,
    x: str,
    y: str,
    points: Iterable[tuple[float, float]],
    limit: float | None = None,
) -> Result:
    """The same result with the curve that it is a point or a sum of."""
    rounded = [(round(across, 4), round(up, 4)) for across, up in points]
    return {**result, "curve": Curve(name=name, title=title, x=x, y=y, points=rounded, limit=limit)}


def _beside(name: str, ours: float, peer: float, unit: str, target: float, bound: Literal["least", "most"]) -> Result:
    ratio = round(ours / peer, 3)
    return Result(
        name=name,
        ours=round(ours, 1),
        peer=round(peer, 1),
        unit=unit,
        ratio=ratio,
        target=target,
        bound=bound,
        met=ratio >= target if bound == "least" else ratio <= target,
    )


def _fixed(name: str, ours: float, unit: str, target: float, bound: Literal["least", "most"]) -> Result:
    return Result(
        name=name,
        ours=round(ours, 2),
        peer=None,
        unit=unit,
        ratio=round(ours / target, 3),
        target=target,
        bound=bound,
        met=ours >= target if bound == "least" else ours <= target,
    )
