"""Which partitions inserted rows go to, and the batches that they make."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from lakestream.errors import RequestError, TableRefused
from lakestream.metadata.inserts import InsertedBatch, InsertedObject, InsertedSection
from lakestream.model import StreamPartition
from lakestream.objects import Buffer
from lakestream.records import BatchRules
from lakestream.records.partitioning import partitions_of_keys
from lakestream.records.producing import SequencedBatch, sequenced
from lakestream.table.parquet.unplaced import NOT_GIVEN, UnplacedRows
from lakestream.wal import BuiltObject, Section

OBJECT_BYTES: Final = 8 * 1024 * 1024

Packed = dict[int, list[SequencedBatch]]
"""By partition the batches of one object, in their order."""


@dataclass(frozen=True, slots=True)
class Batching:
    """What an insert's batches follow from, beside its rows. `seed` is the same when the commit is sent again."""

    partitions: int
    seed: int
    rules: BatchRules
    now_ms: int
    rows: Sequence[UnplacedRows] = field(repr=False)

    def pack(self, producer_id: int) -> list[Packed]:
        """Objects in the order in which they are to be appended. Raises `TableRefused` for a row that the topic does
        not take."""
        columns = [each.columns for each in self.rows]
        chosen = choose(self.rows, self.partitions, self.seed)
        try:
            return list(_packed(sequenced(columns, chosen, producer_id, self.rules, self.now_ms)))
        except RequestError as error:
            raise TableRefused(f"a row cannot be a record of this stream: {error}") from error


def choose(rows: Sequence[UnplacedRows], partitions: int, seed: int) -> list[npt.NDArray[np.int32]]:
    """The partition that a row names; else its key's, as Kafka's clients choose it; else one after the other."""
    found = []
    turn = seed % partitions
    for each in rows:
        by_key = partitions_of_keys(each.columns.key, partitions)
        chosen = np.where(each.partition == NOT_GIVEN, by_key, each.partition)
        free = np.flatnonzero(chosen == NOT_GIVEN)
        chosen[free] = (turn + np.arange(len(free))) % partitions
        turn = (turn + len(free)) % partitions
        found.append(chosen.astype(np.int32))
    return found


def _packed(batches: Iterable[SequencedBatch]) -> Iterator[Packed]:
    packed: Packed = {}
    size_bytes = 0
    for batch in batches:
        if packed and size_bytes + batch.info.length > OBJECT_BYTES:
            yield packed
            packed, size_bytes = {}, 0
        packed.setdefault(batch.partition, []).append(batch)
        size_bytes += batch.info.length
    if packed:
        yield packed


def sections_of(topic_partition: dict[int, StreamPartition], packed: Packed) -> list[Section]:
    return [
        Section(
            topic_partition[partition],
            [batch.run for batch in batches],
            sum(batch.info.record_count for batch in batches),
            max(batch.info.max_timestamp_ms for batch in batches),
        )
        for partition, batches in packed.items()
    ]


def described(object_key: str, generation: int, built: BuiltObject, packed: Packed) -> InsertedObject:
    return InsertedObject(
        object_key,
        generation,
        tuple(
            InsertedSection(
                span.partition.index,
                span.position,
                span.length,
                span.checksum,
                tuple(_described(packed[span.partition.index])),
            )
            for span in built.spans
        ),
    )


def _described(batches: Sequence[SequencedBatch]) -> Iterator[InsertedBatch]:
    position = 0
    for _, _, info in batches:
        yield InsertedBatch(position, info.length, info.record_count, info.max_timestamp_ms, info.base_sequence)
        position += info.length


def copied(object_key: str, generation: int, built: BuiltObject, sections: Sequence[InsertedSection]) -> InsertedObject:
    """The same batches in another object."""
    about = {section.partition: section for section in sections}
    return InsertedObject(
        object_key,
        generation,
        tuple(
            InsertedSection(
                span.partition.index, span.position, span.length, span.checksum, about[span.partition.index].batches
            )
            for span in built.spans
        ),
    )


def section_from(partition: StreamPartition, section: InsertedSection, data: Buffer) -> Section:
    return Section(
        partition,
        [data],
        sum(batch.record_count for batch in section.batches),
        max(batch.max_timestamp_ms for batch in section.batches),
        section.checksum,
    )
