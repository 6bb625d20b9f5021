"""Record batches to measure with: orders in JSON, keyed by customer, the note as long as the size asks for."""

import random
from collections.abc import Iterator

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from lakestream.records import Run

BATCH_BYTES = 256 * 1024
ITEMS = ("lamp", "table", "chair", "desk", "shelf", "mirror", "carpet", "curtain")


def _words() -> list[str]:
    rng = random.Random(11)
    return ["".join(rng.choices("etaoinshrdlucmfw", k=rng.randrange(2, 10))) for _ in range(3000)]


def orders(value_bytes: int) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values without end."""
    rng = random.Random(value_bytes)
    note = " ".join(rng.choices(_words(), k=400_000))
    number = 0
    while True:
        customer, at = rng.randrange(50_000), rng.randrange(len(note) - value_bytes)
        item, price = rng.choice(ITEMS), rng.randrange(99999) / 100
        text = f'{{"order":{number},"customer":{customer},"item":"{item}","price":{price},"note":"'
        yield b"c%d" % customer, (text + note[at : at + value_bytes])[: value_bytes - 2].encode() + b'"}'
        number += 1


def make_runs(total_bytes: int, value_bytes: int, *, compression: int = 0) -> list[Run]:
    """Batches of one partition, densely numbered, together about `total_bytes` of values."""
    per_batch = max(1, BATCH_BYTES // value_bytes)
    source = orders(value_bytes)
    runs = []
    offset = 0
    while offset * value_bytes < total_bytes:
        builder = DefaultRecordBatchBuilder(2, compression, 0, -1, -1, -1, 1 << 30)
        for index in range(per_batch):
            builder.append(index, 1_700_000_000_000 + offset + index, *next(source), [])
        runs.append(Run(0, offset, bytes(builder.build())))
        offset += per_batch
    return runs
