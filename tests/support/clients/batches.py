"""Record batches made by an independent implementation (aiokafka's)."""

from aiokafka.record.default_records import DefaultRecordBatchBuilder


def batch(
    *values: bytes | None,
    timestamp_ms: int = 1_700_000_000_000,
    producer: tuple[int, int, int] = (-1, -1, -1),
    compression: int = 0,
    key: bytes | None = None,
    headers: list[tuple[str, bytes | None]] | None = None,
    transactional: bool = False,
) -> bytes:
    """One magic 2 batch; `producer` is id, epoch, base sequence."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=compression,
        is_transactional=transactional,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        batch_size=1 << 30,
    )
    for index, value in enumerate(values):
        builder.append(index, timestamp_ms + index, key, value, headers or [])
    return bytes(builder.build())


def keyed(*pairs: tuple[bytes | None, bytes | None]) -> bytes:
    """One batch of records, each with a key and a value."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 30)
    for index, (key, value) in enumerate(pairs):
        builder.append(index, 1_700_000_000_000 + index, key, value, [])
    return bytes(builder.build())
