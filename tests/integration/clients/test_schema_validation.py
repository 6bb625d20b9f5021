"""Topics that take values of their subject only, as real clients meet them: what each application is told, and what is
in the log afterwards."""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import UnknownError
from confluent_kafka import KafkaError, Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from support.clients.producers import VerifiableProducer, stored
from support.worlds.files import FileWorld, file_world

ORDER = json.dumps(
    {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}, {"name": "n", "type": "int"}]}
)
INVALID_DIFFERENT_RECORD = -138
"""librdkafka's own code for records of a refused batch that were not to blame."""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FileWorld]:
    with file_world(tmp_path_factory.mktemp("data")) as opened:
        yield opened


@pytest.fixture(scope="module")
def registry(house: FileWorld) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": house.catalog.replace("/iceberg", "/registry")}) as client:
        yield client


@pytest.fixture
def topic() -> str:
    return f"t_{uuid4().hex[:8]}"


def _serialized(registry: SchemaRegistryClient, topic: str, *numbers: int) -> list[bytes]:
    serialize = AvroSerializer(registry, ORDER)
    context = SerializationContext(topic, MessageField.VALUE)
    return [serialize({"id": f"o{number}", "n": number}, context) for number in numbers]


def _send(house: FileWorld, topic: str, values: list[bytes | None], **config: Any) -> list[int | None]:
    """The error code of each, in the order in which they were sent."""
    told: dict[int, int | None] = {}
    producer = Producer(
        {"bootstrap.servers": house.bootstrap, "linger.ms": 200, "error_cb": lambda error: None} | config
    )
    for number, value in enumerate(values):
        producer.produce(
            topic,
            value,
            key=b"k",
            partition=0,
            on_delivery=lambda error, _, number=number: told.__setitem__(number, error and error.code()),
        )
    assert producer.flush(30) == 0
    return [told[number] for number in range(len(values))]


@pytest.mark.parametrize("validation", ["id", "full"])
def test_confluents_serializers_register_and_produce(
    house: FileWorld, registry: SchemaRegistryClient, topic: str, validation: str
) -> None:
    house.create(topic, lakestream_schema_validation=validation)
    values: list[bytes | None] = [*_serialized(registry, topic, *range(50)), None]
    for compression in ("none", "zstd"):
        assert _send(house, topic, values, **{"compression.type": compression}) == [None] * 51
    assert len(stored(house, topic)) == 102
    raw = _send(house, topic, [b'{"id": "o1"}', values[0], b"\0\0\0\x7f\xff"])
    assert raw == [KafkaError.INVALID_RECORD, INVALID_DIFFERENT_RECORD, KafkaError.INVALID_RECORD]
    assert stored(house, topic) == values * 2


def test_full_validation_refuses_what_does_not_decode(
    house: FileWorld, registry: SchemaRegistryClient, topic: str
) -> None:
    house.create(topic, lakestream_schema_validation="full")
    good = _serialized(registry, topic, 1, 2)
    codes = _send(house, topic, [good[0], good[0][:-1], None, good[1], good[1][:-1]])
    assert [code == KafkaError.INVALID_RECORD for code in codes] == [False, True, False, False, True]
    assert set(codes) == {KafkaError.INVALID_RECORD, INVALID_DIFFERENT_RECORD}
    # Of a batch with one record to blame librdkafka says that of all.
    assert _send(house, topic, [good[0], good[0][:-1], None]) == [KafkaError.INVALID_RECORD] * 3
    assert _send(house, topic, [*good]) == [None, None]


@pytest.mark.parametrize("in_flight", [1, 5])
def test_an_idempotent_producer_goes_on_after_a_refusal(
    house: FileWorld, registry: SchemaRegistryClient, topic: str, in_flight: int
) -> None:
    """Whatever was acknowledged is in the log, once and in order; what was refused is not."""
    house.create(topic, lakestream_schema_validation="id")
    good = _serialized(registry, topic, *range(200))
    values: list[bytes | None] = [b"bad" if number % 17 == 5 else value for number, value in enumerate(good)]
    config = {"enable.idempotence": True, "linger.ms": 0, "batch.num.messages": 3}
    codes = _send(house, topic, values, **config, **{"max.in.flight": in_flight})
    assert {code for code, value in zip(codes, values, strict=True) if value == b"bad"} == {KafkaError.INVALID_RECORD}
    acked = [value for code, value in zip(codes, values, strict=True) if code is None]
    assert len(acked) > 100
    assert stored(house, topic) == acked


async def test_aiokafka_is_told_too(house: FileWorld, registry: SchemaRegistryClient, topic: str) -> None:
    await asyncio.to_thread(house.create, topic, lakestream_schema_validation="id")
    [good] = await asyncio.to_thread(_serialized, registry, topic, 1)
    async with AIOKafkaProducer(bootstrap_servers=house.bootstrap, request_timeout_ms=10_000) as producer:
        assert (await producer.send_and_wait(topic, good)).offset == 0
        # It does not know INVALID_RECORD, and tells the application so.
        with pytest.raises(UnknownError):
            await producer.send_and_wait(topic, b"bad")
        assert (await producer.send_and_wait(topic, good)).offset == 1


def test_a_schema_of_another_subject_is_refused_until_it_is_registered_here(
    house: FileWorld, registry: SchemaRegistryClient, topic: str
) -> None:
    house.create(topic, lakestream_schema_validation="id")
    values: list[bytes | None] = [*_serialized(registry, f"{topic}-elsewhere", 1)]
    assert _send(house, topic, values) == [KafkaError.INVALID_RECORD]
    registry.register_schema(f"{topic}-value", Schema(ORDER, "AVRO"))
    codes: list[int | None] = [KafkaError.INVALID_RECORD]
    for _ in range(50):
        codes = _send(house, topic, values)
        if codes == [None]:
            break
        time.sleep(0.1)
    assert codes == [None]


@pytest.mark.java
def test_java_tells_the_application_in_words(
    house: FileWorld, topic: str, java: str, kafka_libs: str, tmp_path: Path
) -> None:
    house.create(topic, lakestream_schema_validation="id")
    producer = VerifiableProducer(java, kafka_libs, tmp_path, house.bootstrap, topic, 3)
    try:
        producer.finish()
        errors = producer.named("producer_send_error")
    finally:
        producer.close()
    assert len(errors) == 3
    assert {each["exception"] for each in errors} == {"class org.apache.kafka.common.InvalidRecordException"}
    assert all(
        each["message"].startswith("the value does not begin with the id of its schema (a zero byte and four bytes)")
        for each in errors
    ), errors
    assert stored(house, topic) == []
