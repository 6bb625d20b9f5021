"""A share partition record by record: what the ranges of a row come to."""

from collections.abc import Sequence
from typing import NamedTuple

from lakestream.coordination.shares.model import LocatedBatch, ShareRules
from lakestream.coordination.shares.ranges import DONE
from lakestream.metadata.shares import Delivery, ShareState

RULES = ShareRules(lock_ms=100, most_deliveries=3, most_in_flight=20, renews=True)


class One(NamedTuple):
    state: Delivery
    deliveries: int
    member: str
    until_ms: int


def records(state: ShareState) -> dict[int, One]:
    """From the start on; what is done with counts alike, however it came to that."""
    return {
        offset: One(Delivery(each.state), each.deliveries, each.member, each.until_ms)
        for each in state.ranges
        for offset in range(each.first, each.end)
    }


def check(state: ShareState) -> None:
    """The promises that a row makes of itself."""
    at = state.start
    for number, each in enumerate(state.ranges):
        assert each.first == at < each.end, "ranges follow one another"
        assert number or each.state not in DONE, "what is done with at the front is not kept"
        assert (each.state == Delivery.ACQUIRED) == bool(each.member) == bool(each.until_ms)
        at = each.end
    for one, other in zip(state.ranges, state.ranges[1:], strict=False):
        if one.state in DONE:
            assert one.state != other.state
        else:
            kept = (one.state, one.deliveries, one.member, one.until_ms)
            assert kept != (other.state, other.deliveries, other.member, other.until_ms)


def batches(*sizes: int, first: int = 0, hidden: Sequence[int] = ()) -> list[LocatedBatch]:
    """One behind the other; a negative size is a gap. `hidden`: the numbers of those that nobody may have."""
    found: list[LocatedBatch] = []
    for size in sizes:
        if size > 0:
            number = len(found)
            found.append(LocatedBatch(first, first + size, 0, number * 100, 100, number not in hidden))
        first += abs(size)
    return found
