"""Record batches of orders, as a shop's producers send them."""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from lakestream.metadata.log.commit import Batch
from lakestream.records import crc32c, walk


@dataclass(frozen=True, slots=True)
class Payload:
    """A section's batch, ready to be stored many times."""

    data: bytes
    batches: Sequence[Batch]
    records: int
    checksum: int


def payload(dice: random.Random, count: int, value_bytes: int) -> Payload:
    """One batch of so many orders."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 30,
    )
    now_ms = 1_760_000_000_000
    for index, (key, value) in zip(range(count), orders(dice, value_bytes), strict=False):
        builder.append(index, now_ms + index // 10, key, value, [])
    data = bytes(builder.build())
    batches = [
        Batch(info.position, info.length, info.record_count, info.max_timestamp_ms, -1, -1, -1) for info in walk(data)
    ]
    return Payload(data, batches, count, crc32c(data))


def orders(dice: random.Random, value_bytes: int) -> Iterator[tuple[bytes, bytes]]:
    """Customers and their orders in JSON, cut to size."""
    while True:
        items: list[dict[str, object]] = []
        while True:
            items.append(
                {"sku": f"{dice.getrandbits(48):012x}", "quantity": dice.randint(1, 9), "price": dice.random()}
            )
            order = {"id": str(dice.getrandbits(63)), "status": dice.choice(("new", "paid", "sent")), "items": items}
            text = json.dumps(order).encode()
            if len(text) >= value_bytes:
                yield b"customer-%06d" % dice.randrange(10**6), text[:value_bytes]
                break
