"""Topics that take values of their subject only, through the Kafka door, with our own registry beside it."""

import asyncio
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from support.clients.batches import batch
from support.clients.wire import Client, span, with_door
from support.fakes.streams import FakeStreams
from support.schemas.avro import framed, written
from support.schemas.door import RegistryDoor, record

from lakestream.errors import Unavailable
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.runtime import system
from lakestream.stream.appending import schemas

BY_ID = {"lakestream.schema.validation": "id"}
SUBJECT = "orders-value"


class CountingStore(MemoryStore):
    """Counts what it is asked about subjects; `is_away`: it does not answer that."""

    def __init__(self) -> None:
        super().__init__(system())
        self.asked = 0
        self.is_away = False

    async def get(self, addresses: Any) -> Any:
        if any(each.key.startswith("subject/") for each in addresses):
            self.asked += 1
            await asyncio.sleep(0.01)
            if self.is_away:
                raise Unavailable("the store is away")
        return await super().get(addresses)


def produce(*runs: tuple[str, int, bytes]) -> dict[str, Any]:
    data = [{"name": topic, "partition_data": [{"index": index, "records": run}]} for topic, index, run in runs]
    return {"transactional_id": None, "acks": -1, "timeout": span(30_000), "topic_data": data}


async def sent(client: Client, run: bytes, topic: str = "orders") -> Any:
    return (await client.ask(0, 9, produce((topic, 0, run)))).responses[0].partition_responses[0]


def named(*ids: int | None) -> bytes:
    return batch(*(None if each is None else framed(each, b"v") for each in ids))


def test_what_is_registered_is_taken_at_once_and_never_asked_for_again() -> None:
    store = CountingStore()

    async def test(streams: FakeStreams, client: Client) -> None:
        door = RegistryDoor(streams.store)
        await streams.topics.create("orders", 1, BY_ID)
        first = await door.register(SUBJECT, record("id"))
        store.asked = 0
        for _ in range(5):
            assert (await sent(client, named(first, None, first))).error_code is ErrorCode.none
        assert store.asked == 1
        second = await door.register(SUBJECT, record("id", ("n", "int", 0)))
        assert (await sent(client, named(first, second))).error_code is ErrorCode.none, "at once"

    with_door(test, store=store)


def test_records_are_refused_one_by_one_with_a_reason() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        door = RegistryDoor(streams.store)
        await streams.topics.create("orders", 1, BY_ID)
        known = await door.register(SUBJECT, record("id"))
        other = await door.register("other-value", record("x"))
        values = (framed(known, b""), framed(other, b""), b'{"id":"1"}', None, framed(99, b""))
        for compression in (0, 1, 4):
            answer = await sent(client, batch(*values, compression=compression))
            assert answer.error_code is ErrorCode.invalid_record
            told = {each.batch_index: each.batch_index_error_message for each in answer.record_errors}
            assert list(told) == [1, 2, 4]
            assert told[1] == (
                f"the value names schema {other}, which is no version of the subject orders-value (has {known}):"
                " register it there first"
            )
            assert told[2].startswith("the value does not begin with the id of its schema")
            assert "3 of its records are at fault, the first is number 1" in answer.error_message
        assert not streams.logs

    with_door(test)


def test_others_in_the_request_are_taken() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        door = RegistryDoor(streams.store)
        for topic in ("orders", "items"):
            await streams.topics.create(topic, 2, BY_ID)
        await streams.topics.create("plain", 1, {})
        known = await door.register(SUBJECT, record("id"))
        await door.register("items-value", record("item"))
        runs = [
            ("orders", 0, named(known)),
            ("orders", 1, named(7)),
            ("items", 0, named(known)),
            ("items", 1, named(known + 1)),
            ("plain", 0, batch(b"anything")),
        ]
        answer = await client.ask(0, 9, produce(*runs))
        codes = [part.error_code.name for topic in answer.responses for part in topic.partition_responses]
        assert codes == ["none", "invalid_record", "invalid_record", "none", "none"]

    with_door(test)


def test_hidden_versions_count_and_those_that_are_gone_for_good_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "REFRESH_S", 0.05)

    async def test(streams: FakeStreams, client: Client) -> None:
        door = RegistryDoor(streams.store)
        await streams.topics.create("orders", 1, BY_ID)
        known = await door.register(SUBJECT, record("id"))
        await door.ask("DELETE", f"/subjects/{SUBJECT}")
        assert (await sent(client, named(known))).error_code is ErrorCode.none
        await door.ask("DELETE", f"/subjects/{SUBJECT}?permanent=true")
        async with asyncio.timeout(10):
            while (await sent(client, named(known))).error_code is ErrorCode.none:
                await asyncio.sleep(0.02)

    with_door(test)


def test_an_unknown_id_is_asked_for_once_in_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "MISSED_S", 0.3)
    store = CountingStore()

    async def test(streams: FakeStreams, client: Client) -> None:
        door = RegistryDoor(streams.store)
        await streams.topics.create("orders", 1, BY_ID)
        await door.register("other", record("x"))
        store.asked = 0
        for _ in range(20):
            assert (await sent(client, named(2))).error_code is ErrorCode.invalid_record
        assert store.asked <= 3
        assert await door.register(SUBJECT, record("id")) == 2
        async with asyncio.timeout(10):
            while (await sent(client, named(2))).error_code is not ErrorCode.none:
                await asyncio.sleep(0.05)

    with_door(test, store=store)


def test_all_who_miss_an_id_wait_for_one_question() -> None:
    store = CountingStore()

    async def test(streams: FakeStreams, client: Client) -> None:
        door = RegistryDoor(streams.store)
        await streams.topics.create("orders", 50, BY_ID)
        known = await door.register(SUBJECT, record("id"))
        store.asked = 0
        answer = await client.ask(0, 9, produce(*(("orders", index, named(known)) for index in range(50))))
        assert {part.error_code for each in answer.responses for part in each.partition_responses} == {ErrorCode.none}
        assert store.asked <= 2

    with_door(test, store=store)


def test_without_the_registry_known_ids_go_on_and_others_are_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "PAUSE_S", 0.2)
    store = CountingStore()

    async def test(streams: FakeStreams, client: Client) -> None:
        door = RegistryDoor(streams.store)
        await streams.topics.create("orders", 1, BY_ID)
        await streams.topics.create("plain", 1, {})
        first = await door.register(SUBJECT, record("id"))
        assert (await sent(client, named(first))).error_code is ErrorCode.none
        second = await door.register(SUBJECT, record("id", ("n", "int", 0)))
        store.is_away, store.asked = True, 0
        for _ in range(10):
            answer = await sent(client, named(first, second))
            assert answer.error_code is ErrorCode.not_enough_replicas, "nothing was written, and every client retries"
            assert "registry" in answer.error_message
            assert (await sent(client, named(first))).error_code is ErrorCode.none
            assert (await sent(client, batch(b"x"), "plain")).error_code is ErrorCode.none
        assert store.asked <= 5, "it is left alone for a while"
        store.is_away = False
        async with asyncio.timeout(10):
            while (answer := await sent(client, named(first, second))).error_code is not ErrorCode.none:
                assert answer.error_code is ErrorCode.not_enough_replicas
                await asyncio.sleep(0.02)

    with_door(test, store=store)


def test_a_registry_that_does_not_answer_is_waited_for_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "WAIT_S", 0.2)

    async def never(*_: object) -> Any:
        await asyncio.sleep(3600)

    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("orders", 1, BY_ID)
        monkeypatch.setattr(schemas.TopicSchemas, "_load", never)
        monkeypatch.setattr("lakestream.schemas.registry.source.RegistrySource.versions", never)
        async with asyncio.timeout(5):
            answer = await sent(client, named(1))
        assert answer.error_code is ErrorCode.not_enough_replicas
        assert answer.error_message == "the schema registry does not answer: send the records again"

    with_door(test)


def test_pipelined_batches_keep_their_order_whoever_has_to_ask() -> None:
    """As an idempotent producer sends them; the first waits for the registry, and none overtakes it."""

    async def test(streams: FakeStreams, client: Client) -> None:
        door = RegistryDoor(streams.store)
        await streams.topics.create("orders", 1, BY_ID)
        known = await door.register(SUBJECT, record("id"))
        for number in range(5):
            run = batch(framed(known, b"%d" % number), producer=(7, 0, number))
            client.send(0, 9, produce(("orders", 0, run)))
        answers = [await client.receive() for _ in range(5)]
        assert [each.responses[0].partition_responses[0].base_offset for each in answers] == list(range(5))

    with_door(test, store=CountingStore())


def test_what_validation_may_be() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        for value in ("none", "id", "full"):
            await streams.topics.create(f"t-{value}", 1, {"lakestream.schema.validation": value})
        with pytest.raises(Exception, match=r"lakestream.schema.validation=strict cannot be: it takes one of none, id"):
            await streams.topics.create("t", 1, {"lakestream.schema.validation": "strict"})

    with_door(test)


def test_full_validation_decodes_every_value() -> None:
    order = record("id", ("n", "int"))

    async def test(streams: FakeStreams, client: Client) -> None:
        door = RegistryDoor(streams.store)
        await streams.topics.create("orders", 1, {"lakestream.schema.validation": "full"})
        first = await door.register(SUBJECT, order)
        second = await door.register(SUBJECT, record("id", ("n", "int"), ("more", "boolean", False)))
        good = framed(first, written(order, {"id": "o1", "n": 1}))
        newer = framed(second, good[5:] + b"\1")
        assert (await sent(client, batch(good, None, newer))).error_code is ErrorCode.none
        for compression in (0, 4):
            run = batch(good, good[:-1], newer, None, newer[:-1], framed(second, good[5:]), compression=compression)
            answer = await sent(client, run)
            assert answer.error_code is ErrorCode.invalid_record
            told = {each.batch_index: each.batch_index_error_message for each in answer.record_errors}
            assert list(told) == [1, 4, 5]
            assert told[1].startswith("the value does not decode: ")
        answer = await sent(client, batch(good, b"bad", framed(99, b"")))
        assert [each.batch_index for each in answer.record_errors] == [1, 2]
        assert streams.appended == 1

    with_door(test)


def test_values_of_other_topics_are_not_held_up_by_decoding() -> None:
    """A batch that is decoded is aside; the event loop goes on."""

    async def test(streams: FakeStreams, client: Client) -> None:
        door = RegistryDoor(streams.store)
        streams.max_batch_bytes = 8 << 20
        await streams.topics.create("orders", 1, {"lakestream.schema.validation": "full"})
        await streams.topics.create("plain", 1, {})
        known = await door.register(SUBJECT, record("id"))
        value = framed(known, written(record("id"), {"id": "x" * 100}))
        other = await Client.connect(client.writer.get_extra_info("peername")[1])
        client.send(0, 9, produce(("orders", 0, batch(*[value] * 20_000))))
        for _ in range(3):
            assert (await sent(other, batch(b"v"), "plain")).error_code is ErrorCode.none
        assert (await client.receive()).responses[0].partition_responses[0].error_code is ErrorCode.none
        await other.close()

    with_door(test)
