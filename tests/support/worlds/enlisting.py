"""Who may append to a transaction, from a list: for tests of logs, which do not care who keeps it."""

from collections.abc import Mapping, Sequence

from lakestream.errors import Unavailable
from lakestream.metadata.log.enlistment import NOT_ENLISTED, Answer, Enlisted, NotEnlisted
from lakestream.model import StreamPartition


class ListedTransactions:
    """`open`: the number of each transactional id's open transaction; None: it has none. `enlisted`: the partitions of
    each."""

    def __init__(self) -> None:
        self.open: dict[str, int | None] = {"t": 0}
        self.enlisted: dict[tuple[str, int], list[StreamPartition]] = {}
        self.asked: list[tuple[str, int, int, tuple[StreamPartition, ...], bool]] = []
        self.silent = False

    async def enlist(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Sequence[StreamPartition],
        *,
        implicit: bool,
    ) -> Mapping[StreamPartition, Answer]:
        self.asked.append((transactional_id, producer_id, epoch, tuple(partitions), implicit))
        if self.silent:
            raise Unavailable("no answer")
        number = self.open.get(transactional_id)
        if number is None:
            return {each: NotEnlisted(NOT_ENLISTED) for each in partitions}
        self.enlisted.setdefault((transactional_id, number), []).extend(partitions)
        return {each: Enlisted(number) for each in partitions}
