"""Producers and consumers."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakestream.errors import OffsetOutOfRange, RetryableError, UnknownStream
from lakestream.model import StreamPartition
from lakestream.stream import Fetched, FetchPartition
from lakestream.stream.engine import StreamEngine
from simulator.batches import Row, batch, end_of, rows
from simulator.pipelined import Pipeline, append

if TYPE_CHECKING:
    from simulator.history import History


class ProducerActor:
    """Sends its values in order, each batch to any broker until it is acknowledged or given up; now and then to both
    partitions at once. An idempotent one has several batches of a partition in flight."""

    def __init__(self, history: "History", number: int, *, idempotent: bool, batches: int) -> None:
        self._history = history
        self._number = number
        self._batches = batches
        self._pipelines: dict[int, Pipeline] | None = {} if idempotent else None

    async def live(self) -> None:
        history, random = self._history, self._history.world.random
        rest_most_s = random.choice((0.0, 0.2))
        for number in range(self._batches):
            await asyncio.sleep(random.uniform(0.0, rest_most_s))
            chosen = history.partitions()
            if random.random() < 0.6:
                chosen = [random.choice(chosen)]
            sends = [self._send(partition, number, random.choice((1, 1, 2, 3))) for partition in chosen]
            await asyncio.gather(*sends)
        if self._pipelines is not None:
            await asyncio.gather(*(pipeline.finish() for pipeline in self._pipelines.values()))

    async def _send(self, partition: StreamPartition, number: int, count: int) -> None:
        values = [f"p{self._number}.{partition.index}.{number}.{index}".encode() for index in range(count)]
        if self._pipelines is None:
            await self._send_alone(partition, values)
            return
        pipeline = self._pipelines.get(partition.index)
        if pipeline is None:
            pipeline = self._pipelines[partition.index] = Pipeline(self._history, f"producer {self._number}")
        await pipeline.send(partition, number, values)

    async def _send_alone(self, partition: StreamPartition, values: Sequence[bytes]) -> None:
        history, data = self._history, batch(values)
        for copies in range(1, history.scene.sends_most + 1):
            if partition not in history.partitions():
                return
            history.auditor.sending(partition, values, copies, ordered=False)
            try:
                base = await history.broker().call(lambda streams: append(history, streams, partition, data))
            except RetryableError:
                continue
            except UnknownStream:
                return
            history.auditor.acknowledged(partition, base, values)
            return


class ConsumerActor:
    """Reads every partition from the start, each fetch from any broker."""

    def __init__(self, history: "History", number: int) -> None:
        self._history = history
        self._name = f"consumer{number}"
        self._positions: dict[StreamPartition, int] = {}

    async def live(self) -> None:
        history, random = self._history, self._history.world.random
        rest_s = 0.4
        while True:
            partition = random.choice(history.partitions())
            found = await self._poll(partition, wait_ms=random.choice((0, 200)))
            rest_s = 0.4 if found else min(rest_s * 2, 3.2)
            await asyncio.sleep(random.uniform(0.0, rest_s))

    async def _poll(self, partition: StreamPartition, wait_ms: int) -> bool:
        """Whether there was anything."""
        history = self._history
        position = self._positions.get(partition, 0)
        try:
            fetched = await history.broker().call(lambda streams: fetch(streams, partition, position, wait_ms))
        except RetryableError:
            return False
        if partition.topic_id in history.auditor.gone:
            return False
        if fetched.error is None:
            found, end = rows_of(fetched, position)
            history.auditor.read(partition, position, found, end, self._name)
            self._positions[partition] = end
            if fetched.parts and end <= position:
                history.auditor.fail(f"I4: {self._name}: a fetch at {position} below the end did not advance")
        elif isinstance(fetched.error, OffsetOutOfRange) and position < history.watcher.log_start(partition):
            self._positions[partition] = history.watcher.log_start(partition)
        elif isinstance(fetched.error, OffsetOutOfRange):
            history.auditor.fail(f"I3: {self._name} is told out of range: {fetched.error}")
        elif not isinstance(fetched.error, RetryableError | UnknownStream):
            history.auditor.fail(f"I4: {self._name} at {partition.index}/{position}: {fetched.error}")
        return bool(fetched.parts)


async def fetch(streams: StreamEngine, partition: StreamPartition, position: int, wait_ms: int) -> Fetched:
    [fetched] = await streams.fetch(
        [FetchPartition(partition, position, 1000)], min_bytes=1, max_bytes=1000, max_wait_ms=wait_ms
    )
    return fetched


def rows_of(fetched: Fetched, position: int) -> tuple[Sequence[Row], int]:
    """The rows from a position on, and where to go on."""
    data = b"".join(fetched.parts)
    found = [row for row in rows(data, fetched.partition.index) if row.offset >= position]
    return found, max(position, end_of(data))
