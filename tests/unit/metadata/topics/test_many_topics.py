"""What a topic costs does not depend on how many others there are, or come and go at the same time."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from support.clients.wire import Client, with_door
from support.fakes.streams import FakeStreams
from support.worlds.brokers import BrokerWorld, seeded

from lakestream.errors import NamespaceNotEmpty, StreamExists
from lakestream.kafka.wire import codec
from lakestream.metadata.names.pointers import Pointer, Pointers
from lakestream.metadata.names.rows import TableName
from lakestream.metadata.store import Address, Entry, Outcome, Refused, Transaction
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.stream.engine import StreamEngine

LAKE = ("default",)


class CountedStore(MemoryStore):
    """Answers a moment later, so that what is asked at the same time is under way at the same time."""

    def __init__(self) -> None:
        super().__init__(seeded())
        self.calls: Counter[str] = Counter()
        self.rows_read = 0

    async def get(self, addresses: Sequence[Address]) -> list[Entry | None]:
        self.calls["get"] += 1
        self.rows_read += len(addresses)
        await asyncio.sleep(0)
        return await super().get(addresses)

    async def range(self, shard: str, start: str, end: str, *, limit: int | None = None) -> list[Entry]:
        self.calls["range"] += 1
        await asyncio.sleep(0)
        found = await super().range(shard, start, end, limit=limit)
        self.rows_read += len(found)
        return found

    async def transact(self, transactions: Sequence[Transaction]) -> list[Outcome]:
        self.calls["transact"] += 1
        await asyncio.sleep(0)
        outcomes = await super().transact(transactions)
        self.calls["refused"] += sum(isinstance(outcome, Refused) for outcome in outcomes)
        return outcomes


async def make_tables(store: CountedStore, topic_ids: Sequence[UUID]) -> None:
    pointers = Pointers(store)
    for number, topic_id in enumerate(topic_ids):
        await pointers.add(topic_id, Pointer(f"file:///{number}", bound=True))
        await pointers.bind(topic_id, TableName(LAKE, f"t{number}"), make_namespace=True)


async def costs(count: int, *, tables: bool) -> tuple[float, float]:
    """Calls and rows read per topic, to create and delete so many at once."""
    store = CountedStore()
    async with BrokerWorld(store=store).brokers(1) as [streams]:
        store.calls.clear()
        store.rows_read = 0
        topics = await asyncio.gather(*(streams.create_topic(f"t{number}", 1, {}) for number in range(count)))
        if tables:
            await make_tables(store, [topic.topic_id for topic in topics])
        await asyncio.gather(*(streams.delete_topic(topic.topic_id) for topic in topics))
        assert store.calls["refused"] == 0
        assert await streams.topics.gone() == []
        return store.calls.total() / count, store.rows_read / count


@pytest.mark.parametrize("tables", [False, True])
async def test_a_topic_among_many_costs_what_one_costs(tables: bool) -> None:
    one, many = await costs(1, tables=tables), await costs(500, tables=tables)
    assert many[0] <= one[0] + 1
    assert many[1] <= one[1] + 1
    assert one[0] <= 25


async def test_creating_beside_many_half_deleted_topics_reads_them_once() -> None:
    store = CountedStore()
    async with BrokerWorld(store=store).brokers(1) as [streams]:
        old = await asyncio.gather(*(streams.create_topic(f"old{number}", 1, {}) for number in range(100)))
        await asyncio.gather(*(streams.topics.delete(topic.topic_id) for topic in old))
        store.rows_read = 0
        await asyncio.gather(*(streams.create_topic(f"new{number}", 1, {}) for number in range(100)))
        assert store.rows_read < 100 * 10


async def test_two_brokers_that_create_and_delete_the_same_topics_leave_nothing_behind() -> None:
    async def one_round(streams: StreamEngine, number: int) -> None:
        try:
            topic = await streams.create_topic(f"t{number}", 1, {})
        except StreamExists:
            return
        await streams.delete_topic(topic.topic_id)

    store = CountedStore()
    async with BrokerWorld(store=store).brokers(2) as (one, two):
        await asyncio.gather(*(one_round(each, number) for number in range(100) for each in (one, two)))
        assert await one.topics.list() == []
        assert await one.topics.gone() == []


def test_a_topic_is_encoded_once_for_all_metadata_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: Counter[str] = Counter()
    real = codec.write_part

    def counted(api_key: int, version: int, part: str, fields: Any) -> bytes:
        encoded[fields["name"]] += 1
        return real(api_key, version, part, fields)

    monkeypatch.setattr(codec, "write_part", counted)

    async def test(streams: FakeStreams, client: Client) -> None:
        names = [f"t{number}" for number in range(50)]
        asked = {"topics": [{"name": name, "topic_id": None} for name in names], "allow_auto_topic_creation": True}
        for _ in range(3):
            answer = await client.ask(3, 12, asked | {"include_topic_authorized_operations": False})
            assert [topic.name for topic in answer.topics] == names
        assert encoded == dict.fromkeys(names, 1)
        await streams.topics.delete((await streams.topics.by_names(["t0"]))["t0"].topic_id)
        again = await client.ask(3, 12, asked | {"include_topic_authorized_operations": False})
        assert again.topics[0].topic_id != answer.topics[0].topic_id
        assert encoded == dict.fromkeys(names, 1) | {"t0": 2}

    with_door(test)


class Pausing(MemoryStore):
    """Runs `between` after the mark that a namespace is closing was written, once."""

    def __init__(self) -> None:
        super().__init__(seeded())
        self.between: Any = None

    async def transact(self, transactions: Sequence[Transaction]) -> list[Outcome]:
        outcomes = await super().transact(transactions)
        marks = any(key.startswith("closing/") for each in transactions for key in each.puts)
        if marks and self.between is not None:
            between, self.between = self.between, None
            await between()
        return outcomes


async def test_a_namespace_that_gets_a_table_while_it_is_dropped_stays() -> None:
    store = Pausing()
    pointers = Pointers(store)
    await pointers.create_namespace(LAKE, {})
    [table_id] = [UUID(int=7)]
    await pointers.add(table_id, Pointer("file:///t"))
    store.between = lambda: pointers.bind(table_id, TableName(LAKE, "t"))
    with pytest.raises(NamespaceNotEmpty):
        await pointers.drop_namespace(LAKE)
    assert await pointers.tables(LAKE) == ["t"]
    assert await store.range("tables", "closing/", "closing0") == []


async def test_whoever_stops_while_dropping_a_namespace_leaves_it_usable() -> None:
    class Stopped(Exception): ...

    async def stop() -> None:
        raise Stopped

    store = Pausing()
    pointers = Pointers(store)
    await pointers.create_namespace(LAKE, {"kept": "yes"})
    store.between = stop
    with pytest.raises(Stopped):
        await pointers.drop_namespace(LAKE)
    for number in range(3):
        await pointers.add(UUID(int=number + 1), Pointer("file:///t"))
        await pointers.bind(UUID(int=number + 1), TableName(LAKE, f"t{number}"))
    assert await store.range("tables", "closing/", "closing0") == []
    assert await pointers.namespace(LAKE) == {"kept": "yes"}
    with pytest.raises(NamespaceNotEmpty):
        await pointers.drop_namespace(LAKE)
