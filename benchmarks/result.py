"""One line of the table of ratios."""

from typing import TypedDict


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
    rounded = {"ours": round(ours, 1), "peer": round(peer, 1)}
    return Result(name=name, **rounded, unit=unit, ratio=ratio, target=at_least, met=ratio >= at_least)


def absolute(
    name: str, ours: float, unit: str, *, at_least: float | None = None, at_most: float | None = None
) -> Result:
    """Ours beside a fixed figure; the ratio is ours to that figure."""
    if (at_least is None) == (at_most is None):
        raise ValueError("a figure has one bound")
    bound = at_least if at_least is not None else at_most
    assert bound is not None
    met = ours >= bound if at_least is not None else ours <= bound
    return Result(
        name=name, ours=round(ours, 2), peer=None, unit=unit, ratio=round(ours / bound, 3), target=bound, met=met
    )
