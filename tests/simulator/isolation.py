"""Readers of what is committed, who find out what that is as Kafka's consumers do."""

import asyncio
import struct
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from lakestream.errors import OffsetOutOfRange, RequestError, RetryableError
from lakestream.metadata.log.transactions import AbortedRange
from lakestream.model import StreamPartition
from lakestream.stream import Fetched, FetchPartition
from lakestream.stream.engine import StreamEngine
from simulator.batches import Row, rows

if TYPE_CHECKING:
    from simulator.actors import BrokerActor
    from simulator.history import History

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_CONTROL: Final = 0x20
_TRANSACTIONAL: Final = 0x10


class CommittedReader:
    """Reads every partition from its start, and sees what is committed, as Kafka's consumers find out what that is."""

    def __init__(self, history: "History", number: int) -> None:
        self._history = history
        self._name = f"committed reader {number}"
        self._positions: dict[StreamPartition, int] = {}

    async def live(self) -> None:
        random = self._history.world.random
        while True:
            await self._poll(random.choice(self._history.partitions()))
            await asyncio.sleep(random.uniform(0.0, 0.3))

    async def _poll(self, partition: StreamPartition) -> None:
        history, position = self._history, self._positions.get(partition, 0)
        try:
            fetched = await history.broker().call(lambda streams: fetch_committed(streams, partition, position))
        except RetryableError:
            return
        if fetched.error is None:
            self._positions[partition] = judge(history, fetched, position, self._name)
        elif isinstance(fetched.error, OffsetOutOfRange) and position < history.watcher.log_start(partition):
            self._positions[partition] = history.watcher.log_start(partition)
        elif not isinstance(fetched.error, RetryableError | RequestError) or isinstance(
            fetched.error, OffsetOutOfRange
        ):
            history.auditor.fail(f"I4: {self._name} at {partition.index}/{position}: {fetched.error}")


def judge(history: "History", fetched: Fetched, position: int, who: str) -> int:
    """Where the reader goes on."""
    assert history.ledger is not None
    found, end = committed_rows(fetched, position)
    history.ledger.read(fetched.partition, found, fetched.last_stable_offset, who)
    history.auditor.read(fetched.partition, position, found, end, who)
    if fetched.parts and end <= position:
        history.auditor.fail(f"I4: {who}: a fetch at {position} below the end did not advance")
    return end


async def fetch_committed(streams: StreamEngine, partition: StreamPartition, position: int) -> Fetched:
    [fetched] = await streams.fetch(
        [FetchPartition(partition, position, 1000, committed=True)], min_bytes=1, max_bytes=1000, max_wait_ms=0
    )
    return fetched


async def read_committed(
    history: "History", broker: "BrokerActor", partition: StreamPartition, start: int, end: int
) -> None:
    """All from the log's start to its end, which is stable."""
    position = start
    while position < end:
        try:
            fetched = await broker.call(partial(_committed_from, partition, position))
        except RetryableError:
            continue
        if isinstance(fetched.error, RetryableError):
            continue
        if fetched.error is not None or not fetched.parts:
            history.auditor.fail(f"I3: broker {broker.number} has nothing committed at {position}: {fetched.error}")
        position = judge(history, fetched, position, f"broker {broker.number}, of what is committed,")


async def _committed_from(partition: StreamPartition, position: int, streams: StreamEngine) -> Fetched:
    return await fetch_committed(streams, partition, position)


def committed_rows(fetched: Fetched, position: int) -> tuple[list[Row], int]:
    """What a client hands out of an answer: it knows of the aborted transactions by their first offsets, each until
    its producer's next marker."""
    waiting = sorted(fetched.aborted, key=lambda each: each.first_offset)
    return _visible(b"".join(fetched.parts), fetched.partition.index, waiting, position)


def _visible(data: bytes, index: int, waiting: Sequence[AbortedRange], position: int) -> tuple[list[Row], int]:
    left, aborted = list(waiting), set[int]()
    found: list[Row] = []
    end = position
    for base, after, attributes, producer_id, one in _batches(data):
        while left and left[0].first_offset < after:
            aborted.add(left.pop(0).producer_id)
        end = max(end, after)
        if attributes & _CONTROL:
            aborted.discard(producer_id)
        elif not (attributes & _TRANSACTIONAL and producer_id in aborted):
            found += [row for row in rows(one, index, base) if row.offset >= position]
    return found, end


def _batches(data: bytes) -> Iterator[tuple[int, int, int, int, bytes]]:
    """Base offset, the offset after it, attributes, producer and bytes of each."""
    at = 0
    while at < len(data):
        base, length, _, _, _, attributes, last_delta, _, _, producer_id, *_ = _HEADER.unpack_from(data, at)
        yield base, base + last_delta + 1, attributes, producer_id, data[at : at + length + 12]
        at += length + 12
