"""Typed values beside raw ones, of the same records in the same process: WAL bytes to a Parquet file and back to record
batches, in megabytes of values per CPU second, the check that columns give the same bytes included; and the bytes that
both take, beside the batches that a Kafka log keeps.

Flat orders have ten fields (about 200 B in Avro), nested ones a struct, a list and a map more.
"""

import asyncio
import base64
import io
import json
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import fastavro
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from benchmarks.records import BATCH_BYTES
from benchmarks.result import QUICK, Result, at_most_of, versus
from benchmarks.settled import settled
from lakestream.kafka.allocator import keep_freed_memory
from lakestream.model import DataFile
from lakestream.objects import LocalObjects
from lakestream.records import Arena, Run, decode, warm_up
from lakestream.schemas.codecs import install
from lakestream.schemas.codecs import warm_up as warm_up_codecs
from lakestream.schemas.descriptors import compiled_descriptors
from lakestream.schemas.growing import BY_ID, grown
from lakestream.table.allocator import keep_decoded_memory
from lakestream.table.parquet.seal import sealed_name
from lakestream.table.parquet.writer import StreamFileWriter
from lakestream.table.reading.history import HistoryReader
from lakestream.table.shape import RAW, TableShape, ValueSchema
from lakestream.table.view import View

TOTAL_BYTES = 8_000_000 if QUICK else 64_000_000
ROUNDS = 2 if QUICK else 4
FETCH_BYTES = 1024 * 1024
CACHE_BYTES = 64 * 1024 * 1024
FRAME = b"\0\0\0\0\1"
FLAT = [
    {"name": "id", "type": "long"},
    {"name": "customer", "type": "string"},
    {"name": "item", "type": "string"},
    {"name": "quantity", "type": "int"},
    {"name": "amount", "type": "double"},
    {"name": "city", "type": "string"},
    {"name": "is_paid", "type": "boolean"},
    {"name": "ordered_at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "coupon", "type": ["null", "string"]},
    {"name": "note", "type": "string"},
]
NESTED = [
    *FLAT,
    {
        "name": "place",
        "type": {
            "type": "record",
            "name": "Place",
            "fields": [{"name": "street", "type": "string"}, {"name": "number", "type": "int"}],
        },
    },
    {"name": "tags", "type": {"type": "array", "items": "string"}},
    {"name": "counts", "type": {"type": "map", "values": "int"}},
]
PROTO = """
syntax = "proto3";
message Order {
  int64 id = 1; string customer = 2; string item = 3; int32 quantity = 4; double amount = 5; string city = 6;
  bool is_paid = 7; int64 ordered_at = 8; optional string coupon = 9; string note = 10;%s
}
"""
PROTO_NESTED = """
  Place place = 11; repeated string tags = 12; map<string, int32> counts = 13;
  message Place { string street = 1; int32 number = 2; }"""
JSON_TYPES = {"long": "integer", "int": "integer", "double": "number", "string": "string", "boolean": "boolean"}


@dataclass(frozen=True, slots=True)
class Kind:
    """`targets`: of the pipeline and of replay, beside raw."""

    name: str
    schema: ValueSchema
    write: Callable[[dict[str, Any]], bytes]
    is_nested: bool
    targets: tuple[float, float]


def run() -> list[Result]:
    install()
    warm_up()
    warm_up_codecs()
    keep_freed_memory()
    keep_decoded_memory()
    with settled():
        return [result for kind in kinds() for result in _measure(kind)]


def kinds() -> Sequence[Kind]:
    """What is measured, Avro first."""

    def avro(fields: Sequence[dict[str, Any]]) -> tuple[ValueSchema, Callable[[dict[str, Any]], bytes]]:
        tree = {"type": "record", "name": "Order", "fields": fields}
        text = json.dumps(tree)
        parsed = fastavro.parse_schema(tree)

        def write(value: dict[str, Any]) -> bytes:
            sink = io.BytesIO()
            fastavro.schemaless_writer(sink, parsed, value)
            return sink.getvalue()

        return ValueSchema(1, text), write

    properties: dict[str, Any] = {
        field["name"]: {"type": JSON_TYPES.get(field["type"], "integer")}
        for field in FLAT
        if isinstance(field["type"], str)
    }
    properties |= {"ordered_at": {"type": "integer"}, "coupon": {"type": ["null", "string"]}}
    text = json.dumps({"type": "object", "title": "Order", "properties": properties})
    return (
        Kind("Avro flat", *avro(FLAT), False, (0.6, 0.6)),
        Kind("Avro nested", *avro(NESTED), True, (0.35, 0.35)),
        Kind("Protobuf flat", *_protobuf(PROTO % ""), False, (0.6, 0.6)),
        Kind("Protobuf nested", *_protobuf(PROTO % PROTO_NESTED), True, (0.35, 0.35)),
        Kind(
            "JSON flat",
            ValueSchema(1, text, format="JSON"),
            lambda value: json.dumps(value).encode(),
            False,
            (0.5, 0.6),
        ),
    )


def _protobuf(text: str) -> tuple[ValueSchema, Callable[[dict[str, Any]], bytes]]:
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(base64.b64decode(compiled_descriptors(text, ()))).file:
        pool.Add(file)
        name = file.name
    message = GetMessageClass(pool.FindFileByName(name).message_types_by_name["Order"])
    return ValueSchema(1, text, format="PROTOBUF"), lambda value: b"\0" + message(**value).SerializeToString()


def _order(dice: random.Random, number: int, *, is_nested: bool) -> dict[str, Any]:
    order: dict[str, Any] = {
        "id": number,
        "customer": f"customer-{dice.randrange(50_000):06d}",
        "item": dice.choice(("lamp", "table", "chair", "desk", "shelf", "mirror", "carpet", "curtain")),
        "quantity": dice.randint(1, 9),
        "amount": dice.randrange(99_999) / 100,
        "city": dice.choice(("Lisbon", "Berlin", "Nairobi", "Osaka", "Toronto", "Lima")),
        "is_paid": dice.random() < 0.8,
        "ordered_at": 1_700_000_000_000 + number * 37,
        "coupon": f"C{dice.getrandbits(32):08x}" if dice.random() < 0.2 else None,
        "note": " ".join(dice.choices(("please", "ring", "twice", "leave", "at", "door", "thank", "you"), k=22)),
    }
    if is_nested:
        order["place"] = {"street": f"{dice.choice('ABCDEFGH')} street", "number": dice.randint(1, 200)}
        order["tags"] = dice.choices(("new", "gift", "bulk", "rush"), k=dice.randrange(4))
        order["counts"] = {name: dice.randint(0, 99) for name in ("seen", "kept")[: dice.randrange(3)]}
    return order


def _measure(kind: Kind) -> list[Result]:
    runs, value_bytes = runs_of(kind)
    shape = grown(RAW, [kind.schema], BY_ID, RAW.columns[-1].field_id, frozenset())
    with tempfile.TemporaryDirectory() as folder:
        store = LocalObjects(folder)
        typed, raw = (asyncio.run(_both(store, runs, value_bytes, each)) for each in (shape, RAW))
    log_bytes = sum(len(each.data) for each in runs)
    pipeline, replay = kind.targets
    return [
        versus(f"typed, {kind.name}: WAL to table, to raw", typed[0], raw[0], "MB/s", at_least=pipeline),
        versus(f"typed, {kind.name}: replay, to raw", typed[1], raw[1], "MB/s", at_least=replay),
        at_most_of(f"typed, {kind.name}: stored, to raw", typed[2] / 1e6, raw[2] / 1e6, "MB", at_most=1.0),
        at_most_of(f"typed, {kind.name}: stored, to Kafka's log", typed[2] / 1e6, log_bytes / 1e6, "MB", at_most=0.35),
    ]


def runs_of(kind: Kind) -> tuple[list[Run], int]:
    """Batches of one partition, and how many bytes their values are."""
    dice = random.Random(5)
    per_batch = BATCH_BYTES // len(kind.write(_order(dice, 0, is_nested=kind.is_nested)))
    runs, total, offset = [], 0, 0
    while total < TOTAL_BYTES:
        builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 30)
        for index in range(per_batch):
            value = FRAME + kind.write(_order(dice, offset + index, is_nested=kind.is_nested))
            total += len(value)
            builder.append(index, 1_700_000_000_000 + offset + index, b"c%d" % dice.randrange(50_000), value, [])
        runs.append(Run(0, offset, bytes(builder.build())))
        offset += per_batch
    return runs, total


async def _both(store: LocalObjects, runs: list[Run], value_bytes: int, shape: TableShape) -> tuple[float, float, int]:
    """MB/s of CPU into the table and out of it, the best of several rounds, and the bytes stored."""
    arena = Arena()
    written = [await write_file(store, runs, shape, arena) for _ in range(ROUNDS)]
    file, _ = written[-1]
    read_s = [await _replay(store, file, shape) for _ in range(ROUNDS)]
    return value_bytes / min(took for _, took in written) / 1e6, value_bytes / min(read_s) / 1e6, file.size_bytes


async def write_file(store: LocalObjects, runs: list[Run], shape: TableShape, arena: Arena) -> tuple[DataFile, float]:
    """And the CPU seconds that it takes."""
    start_s = time.process_time()
    sink = io.BytesIO()
    writer = StreamFileWriter(sink, shape)
    for columns in decode(iter(runs), arena):
        writer.write(columns)
    stats = writer.close()
    took_s = time.process_time() - start_s
    name = sealed_name(f"{UUID(int=random.getrandbits(128))}.parquet", stats.footer_checksum)
    await store.put(name, [sink.getbuffer()])
    places = (stats.partition_min, stats.partition_max, stats.offset_min, stats.offset_max)
    return DataFile(
        f"{store.url}/{name}", stats.record_count, stats.size_bytes, *places, stats.timestamp_max_ms
    ), took_s


async def _replay(store: LocalObjects, file: DataFile, shape: TableShape) -> float:
    """Nothing is cached at first."""
    reader = HistoryReader(store, cache_bytes=CACHE_BYTES)
    view = View(UUID(int=1), "t", "", "", None, (), (file,), (), shape)
    end_offset, offset = (file.offset_max or 0) + 1, 0
    start_s = time.process_time()
    while offset < end_offset:
        found = await reader.read(view, partition=0, offset=offset, end_offset=end_offset, max_bytes=FETCH_BYTES)
        offset = found.next_offset
    return time.process_time() - start_s
