"""Reading record batches back with an independent implementation (aiokafka's)."""

from collections.abc import Iterable
from typing import NamedTuple

from aiokafka.record.memory_records import MemoryRecords


class Record(NamedTuple):
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def parse(parts: Iterable[bytes | bytearray | memoryview]) -> list[Record]:
    """The data records of the batches; control batches have none. CRCs are checked."""
    records = []
    batches = MemoryRecords(b"".join(parts))
    while batches.has_next():
        batch = batches.next_batch()
        assert batch is not None
        assert batch.validate_crc()
        if batch.is_control_batch:
            continue
        records += [
            Record(record.offset, record.timestamp, record.key, record.value, tuple(record.headers)) for record in batch
        ]
    return records
