"""Records that were sent one by one, on their way into the log: partitioned as Kafka's own clients do it, appended in
batches, and reported one by one when they are durable."""

from collections.abc import Coroutine, Sequence
from typing import Final, NamedTuple

from lakestream.access import Principal
from lakestream.errors import InvalidRecords, LakestreamError, UnknownStream
from lakestream.http.rest.errors import Fault, fault_of
from lakestream.http.rest.producing.encoding import WantedRecord
from lakestream.metadata.topics.list import Topic
from lakestream.metadata.topics.options import batch_rules
from lakestream.metrics import RestMetrics
from lakestream.records.building import PlainRecord, batches_of, binary_of
from lakestream.records.partitioning import partitions_of_keys
from lakestream.stream import AppendOutcome, ProducedBatch, Streams

_BATCH_BYTES: Final = 512 * 1024
_STICKY_BYTES: Final = 16 * 1024
"""Of records without keys, until the next partition has its turn."""
_STICKY_TOPICS: Final = 10_000
_RECORD_BYTES: Final = 64
"""Of one that is waiting, beside its key, value and headers."""


class WrittenRecord(NamedTuple):
    partition: int
    offset: int
    timestamp_ms: int


class _Part(NamedTuple):
    """A batch that was taken in, or not, with the places of its records."""

    partition: int
    places: Sequence[int]
    outcome: AppendOutcome


class Taken:
    """Records that are under way."""

    def __init__(self, writer: "RecordWriter", principal: Principal, topic: Topic, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._writer = writer
        self._principal = principal
        self._topic = topic
        self.parts: list[_Part] = []
        self.wanted: Sequence[WantedRecord | Fault] = ()

    async def outcomes(self) -> list[WrittenRecord | Fault]:
        """In the order of the records. Those that are innocent of what a batch was refused for are taken once more,
        without the others."""
        try:
            found: list[WrittenRecord | Fault | None] = [
                each if isinstance(each, Fault) else None for each in self.wanted
            ]
            again = await self._settle(self.parts, found)
            if again:
                parts = await self._writer.append(self._principal, self._topic, self.wanted, again)
                for _, places in again:
                    for place in places:
                        found[place] = None
                await self._settle(parts, found)
            return [each or Fault(50002, "nobody foresaw this: the log has the details") for each in found]
        finally:
            self._writer.release(self.size_bytes)

    async def _settle(
        self, parts: Sequence[_Part], found: list[WrittenRecord | Fault | None]
    ) -> list[tuple[int, list[int]]]:
        again = []
        for part in parts:
            try:
                if isinstance(part.outcome, LakestreamError):
                    raise part.outcome
                appended = await part.outcome
            except LakestreamError as error:
                blamed = dict(error.records) if isinstance(error, InvalidRecords) else {}
                fault = fault_of(error)
                for number, place in enumerate(part.places):
                    told = blamed.get(number)
                    found[place] = fault if told is None else Fault(fault.code, told)
                innocent = [place for number, place in enumerate(part.places) if number not in blamed]
                if blamed and innocent:
                    again.append((part.partition, innocent))
                continue
            for number, place in enumerate(part.places):
                wanted = self.wanted[place]
                assert isinstance(wanted, WantedRecord)
                time_ms = wanted.record.timestamp_ms if appended.append_time_ms is None else appended.append_time_ms
                found[place] = WrittenRecord(part.partition, appended.base_offset + number, time_ms)
        return again


class RecordWriter:
    def __init__(self, streams: Streams, metrics: RestMetrics) -> None:
        self._streams = streams
        self._metrics = metrics
        self._sticky: dict[str, tuple[int, int]] = {}
        """By topic: the partition whose turn it is, and how many bytes it has had."""

    async def topic(self, principal: Principal, name: str) -> Topic:
        """Raises `NotAuthorized`, `UnknownStream`."""
        return await self._streams.writable(principal, name)

    async def room(self) -> None:
        """Returns once there is memory for more."""
        await self._streams.budget.wait()

    def release(self, size_bytes: int) -> None:
        self._streams.budget.release(size_bytes)

    async def take(self, principal: Principal, topic: Topic, wanted: Sequence[WantedRecord | Fault]) -> Taken:
        """Takes them in, in their order within a partition: await one call before the next."""
        sizes = [_size(each.record) if isinstance(each, WantedRecord) else 0 for each in wanted]
        size_bytes = sum(sizes)
        taken = Taken(self, principal, topic, size_bytes)
        self._streams.budget.reserve(size_bytes)
        try:
            taken.wanted, placed = self._placed(topic, wanted, sizes)
            taken.parts = await self.append(principal, topic, taken.wanted, placed)
        except BaseException:
            self.release(size_bytes)
            raise
        self._metrics.produced(len(wanted), size_bytes)
        return taken

    async def append(
        self,
        principal: Principal,
        topic: Topic,
        wanted: Sequence[WantedRecord | Fault],
        placed: Sequence[tuple[int, list[int]]],
    ) -> list[_Part]:
        most_bytes = min(batch_rules(topic.configs, self._streams.topics.max_batch_bytes).max_bytes, _BATCH_BYTES)
        produced: list[ProducedBatch] = []
        shares: list[tuple[int, list[int]]] = []
        for partition, places in placed:
            records = [each.record for place in places if isinstance(each := wanted[place], WantedRecord)]
            start = 0
            for built in batches_of(records, most_bytes):
                produced.append(ProducedBatch(topic.name, partition, built.run))
                shares.append((partition, places[start : start + built.record_count]))
                start += built.record_count
        outcomes = self._streams.append(principal, produced)
        found = await outcomes if isinstance(outcomes, Coroutine) else outcomes
        return [_Part(*share, outcome) for share, outcome in zip(shares, found, strict=True)]

    def _placed(
        self, topic: Topic, wanted: Sequence[WantedRecord | Fault], sizes: Sequence[int]
    ) -> tuple[list[WantedRecord | Fault], list[tuple[int, list[int]]]]:
        """The places of the records by partition. One that names a partition which is not there becomes a fault."""
        told: list[WantedRecord | Fault] = list(wanted)
        by_partition: dict[int, list[int]] = {}
        keyed: dict[int, bytes] = {}
        for place, each in enumerate(wanted):
            if isinstance(each, Fault):
                continue
            partition, key = each.partition, each.record.key
            if partition is not None and partition >= topic.partitions:
                told[place] = fault_of(UnknownStream(f"topic {topic.name} has no partition {partition}"))
                continue
            if partition is None:
                if key is None:
                    partition = self._next_sticky(topic, sizes[place])
                else:
                    keyed[place] = key
                    continue
            by_partition.setdefault(partition, []).append(place)
        if keyed:
            hashed = partitions_of_keys(binary_of([*keyed.values()]), topic.partitions)
            for place, partition in zip(keyed, hashed.tolist(), strict=True):
                by_partition.setdefault(partition, []).append(place)
        return told, [(partition, sorted(places)) for partition, places in by_partition.items()]

    def _next_sticky(self, topic: Topic, size_bytes: int) -> int:
        if topic.partitions == 1:
            return 0
        partition, had = self._sticky.get(topic.name, (0, 0))
        if had >= _STICKY_BYTES or partition >= topic.partitions:
            partition, had = (partition + 1) % topic.partitions, 0
            if len(self._sticky) > _STICKY_TOPICS:
                self._sticky.clear()
        self._sticky[topic.name] = partition, had + size_bytes
        return partition


def _size(record: PlainRecord) -> int:
    size = len(record.key or b"") + len(record.value or b"") + _RECORD_BYTES
    return size + sum(len(name) + len(value or b"") for name, value in record.headers) if record.headers else size
