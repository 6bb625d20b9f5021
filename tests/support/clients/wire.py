"""A Kafka door in this process, and a client that speaks the protocol byte by byte."""

import asyncio
import dataclasses
import datetime as dt
import struct
import types
import typing
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Self, TypeVar

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from lakestream.access import ALLOW_ALL, Authorizer
from lakestream.coordination.groups import GroupCoordinator, Groups
from lakestream.coordination.settings import GroupSettings, TransactionSettings
from lakestream.coordination.shares import ShareGroups
from lakestream.coordination.transactions import Enlister, TransactionCoordinator, Transactions
from lakestream.kafka.server import KafkaServer, listen
from lakestream.kafka.settings import KafkaSettings
from lakestream.schemas.checking import check_values
from lakestream.schemas.registry.source import RegistrySource
from lakestream.stream import Streams
from lakestream.stream.appending.schemas import TopicSchemas, ValueCheck
from lakestream.stream.engine import StreamEngine
from support.fakes.loops import run
from support.fakes.streams import FakeStreams

T = TypeVar("T")

SETTINGS = KafkaSettings(groups=GroupSettings(initial_rebalance_delay_ms=5, min_session_timeout_ms=50))


async def until(holds: Callable[[], object]) -> None:
    """Waits for something that nobody announces."""
    while not holds():
        await asyncio.sleep(0.001)


def span(milliseconds: int) -> dt.timedelta:
    return dt.timedelta(milliseconds=milliseconds)


def compose(kind: Any, fields: Mapping[str, Any]) -> Any:
    """kio's entity from plain mappings and lists; fields that this version lacks are left out."""
    hints = typing.get_type_hints(kind)
    return kind(
        **{
            field.name: _value(hints[field.name], fields[field.name])
            for field in dataclasses.fields(kind)
            if field.name in fields
        }
    )


def _value(hint: Any, value: Any) -> Any:
    arguments = [argument for argument in typing.get_args(hint) if argument not in (types.NoneType, ...)]
    if value is None:
        return None
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return _value(arguments[0], value)
    if typing.get_origin(hint) is tuple:
        return tuple(_value(arguments[0], each) for each in value)
    return compose(hint, value) if dataclasses.is_dataclass(hint) else value


class Wire:
    """Bytes that kio wrote, gathered."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: bytes) -> None:
        self.data += data


def frame(key: int, version: int, fields: Mapping[str, Any], *, correlation_id: int = 1, client_id: str = "t") -> bytes:
    """One request, size included."""
    schema = load_request_schema(key, version)
    wire = Wire()
    header = {
        "request_api_key": key,
        "request_api_version": version,
        "correlation_id": correlation_id,
        "client_id": client_id,
    }
    entity_writer(schema.__header_schema__)(wire, compose(schema.__header_schema__, header))  # type: ignore[arg-type]
    entity_writer(schema)(wire, compose(schema, fields))  # type: ignore[arg-type]
    return struct.pack(">i", len(wire.data)) + wire.data


class Client:
    """Answers are expected in the order of requests; each must be used up to its last byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.client_id = "t"
        self._asked: list[tuple[int, int, int]] = []
        self._correlation_id = 0

    @classmethod
    async def connect(cls, port: int) -> Self:
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 26))

    def send(self, key: int, version: int, fields: Mapping[str, Any], *, answered: bool = True) -> None:
        self._correlation_id += 1
        if answered:
            self._asked.append((key, version, self._correlation_id))
        self.writer.write(frame(key, version, fields, correlation_id=self._correlation_id, client_id=self.client_id))

    async def receive(self) -> Any:
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        data = await self.reader.readexactly(size)
        key, version, correlation_id = self._asked.pop(0)
        schema = load_response_schema(key, version)
        header, position = entity_reader(schema.__header_schema__)(data, 0)
        assert header.correlation_id == correlation_id
        response, used = entity_reader(schema)(data, position)
        assert position + used == size, "bytes are left over"
        return response

    async def ask(self, key: int, version: int, fields: Mapping[str, Any]) -> Any:
        self.send(key, version, fields)
        return await self.receive()

    async def is_closed(self) -> bool:
        """Waits for the server to close; false if it answers instead."""
        try:
            return await self.reader.read(1) == b""
        except ConnectionError:
            return True

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            return


def server_of(engine: StreamEngine, settings: KafkaSettings, authorizer: Authorizer = ALLOW_ALL) -> KafkaServer:
    coordinator = GroupCoordinator(engine, settings.groups)
    groups = Groups(coordinator, authorizer, engine.runtime.clock)
    schemas = TopicSchemas(RegistrySource(engine.store), _value_check)
    return KafkaServer(
        Streams(engine, authorizer, schemas),
        groups,
        transactions_of(engine, settings.transactions, authorizer),
        ShareGroups(engine, authorizer, coordinator),
        settings,
    )


def transactions_of(
    engine: StreamEngine, settings: TransactionSettings, authorizer: Authorizer = ALLOW_ALL
) -> Transactions:
    clock = engine.runtime.clock
    enlister = Enlister(engine.store, clock)
    coordinator = TransactionCoordinator(engine.store, clock, settings, enlister, engine.new_producer_id)
    return Transactions(engine, coordinator, authorizer, settings)


async def _value_check() -> ValueCheck:
    return check_values


@asynccontextmanager
async def door(
    streams: FakeStreams | None = None, settings: KafkaSettings = SETTINGS, authorizer: Authorizer = ALLOW_ALL
) -> AsyncIterator[tuple[FakeStreams, KafkaServer]]:
    """A server on a free port, over streams in memory."""
    fake = streams or FakeStreams()
    server = server_of(fake.as_engine(), settings, authorizer)
    await server.start(await listen("127.0.0.1", 0))
    fake.broker = type(fake.broker)(
        fake.broker.broker_id, "127.0.0.1", server.port, fake.broker.zone, fake.broker.session
    )
    await fake.brokers.register(fake.broker)
    try:
        yield fake, server
    finally:
        await server.stop(1_000)


def with_door(
    test: Callable[[FakeStreams, Client], Awaitable[None]],
    *,
    settings: KafkaSettings = SETTINGS,
    authorizer: Authorizer = ALLOW_ALL,
    **fake: Any,
) -> None:
    """Runs the test with one client; afterwards every byte of the budget must be back."""

    async def work() -> None:
        async with door(FakeStreams(**fake), settings, authorizer) as (streams, server):
            client = await Client.connect(server.port)
            await test(streams, client)
            await client.close()
        await until(lambda: streams.budget.used_bytes == 0)

    run(work())
