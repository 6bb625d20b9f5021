"""The same requests of share groups, one after the other, to a broker of ours and to a real Kafka: codes, records,
delivery counts, offsets and lags are the same."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from support.clients.batches import batch
from support.clients.wire import Client, span
from support.fakes.loops import run
from support.servers.apache_kafka import apache_kafka
from support.shares.door import ALTER, DELETE, OFFSETS, WireMember, acquired, share_doors

pytestmark = [pytest.mark.java, pytest.mark.slow]

ONE, TWO = "A" * 21 + "A", "A" * 21 + "Q"
"""Ids of members, as Java's client makes them."""


class Script:
    """What is asked of a broker, and what it said."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.said: list[tuple[str, Any]] = []
        self.topic = UUID(int=0)

    def member(self, name: str, group: str = "g") -> WireMember:
        return WireMember(self.client, name, group)

    def note(self, what: str, said: Any) -> None:
        self.said.append((what, said))

    async def until(self, ask: Callable[[], Any], what: str) -> None:
        for _ in range(100):
            if await ask():
                return
            await asyncio.sleep(0.2)
        raise AssertionError(what)

    async def run(self) -> list[tuple[str, Any]]:
        await self._prepare()
        await self._members()
        member = self.member(ONE)
        await self._sessions(member)
        await self._records(member)
        await self._operators()
        return self.said

    async def _prepare(self) -> None:
        topic = {"name": "t", "num_partitions": 2, "replication_factor": 1, "assignments": (), "configs": ()}
        await self.client.ask(19, 7, {"topics": [topic], "timeout": span(5_000), "validate_only": False})

        async def has_leaders() -> bool:
            wanted = {"topics": [{"topic_id": None, "name": "t"}], "allow_auto_topic_creation": False}
            answer = await self.client.ask(3, 12, wanted | {"include_topic_authorized_operations": False})
            self.topic = answer.topics[0].topic_id
            return not any(each.error_code for each in (answer.topics[0], *answer.topics[0].partitions))

        async def has_coordinator() -> bool:
            answer = await self.client.ask(10, 4, {"key_type": 0, "coordinator_keys": ["g"]})
            return not answer.coordinators[0].error_code

        await self.until(has_leaders, "a topic")
        await self.until(has_coordinator, "a coordinator")
        config = {"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}
        group = {"resource_type": 32, "resource_name": "g", "configs": [config]}
        await self.client.ask(44, 1, {"resources": [group], "validate_only": False})
        await self._produce(4, 4)

    async def _produce(self, *sizes: int) -> None:
        for size in sizes:
            data = [{"index": 0, "records": batch(*[b"v"] * size)}]
            request = {"acks": -1, "timeout": span(5_000), "transactional_id": None}
            await self.client.ask(0, 9, request | {"topic_data": [{"name": "t", "partition_data": data}]})

    async def _members(self) -> None:
        for name, epoch, topics in (
            (ONE, 3, ()),
            ("", 0, ("t",)),
            ("x" * 40, 0, ("t",)),
            (ONE, 0, ()),
            (ONE, -2, ()),
            (ONE, -1, ()),
        ):
            beaten = await self.member(name).beat(*topics, epoch=epoch)
            self.note(f"heartbeat of {name!r} in {epoch}", beaten.error_code)
        self.note("no group", (await self.member(ONE, "").beat("t")).error_code)
        joined = await self.member(ONE).beat("t")
        self.note("joins", joined.error_code)
        epoch = joined.member_epoch

        async def is_assigned() -> bool:
            nonlocal epoch
            beaten = await self.member(ONE).beat("t", epoch=epoch)
            epoch = beaten.member_epoch
            return any(each.partitions for each in beaten.assignment.topic_partitions)

        await self.until(is_assigned, "an assignment")
        self.note("a later epoch", (await self.member(ONE).beat(epoch=epoch + 5)).error_code)

    async def _sessions(self, member: WireMember) -> None:
        for epoch in (4, -1):
            member.epoch = epoch
            self.note(f"fetch in {epoch}", _fetched(await member.fetch(self.topic, 0)))
        for epoch in (0, 2):
            member.epoch = epoch
            self.note(f"acknowledge in {epoch}", await member.acknowledge(self.topic, (0, 0, (1,))))
        member.epoch = 0
        self.note("begins with acks", _fetched(await member.fetch(self.topic, acks=[(0, 0, (1,))])))

        async def is_given() -> bool:
            member.epoch = 0
            answer = await member.fetch(self.topic, 0, wait_ms=300, max_records=3)
            if acquired(answer):
                self.note("first", _fetched(answer))
            return bool(acquired(answer))

        await self.until(is_given, "records")
        self.note("the rest", _fetched(await member.fetch(self.topic, wait_ms=300)))
        self.note("nothing", _fetched(await member.fetch(self.topic, wait_ms=100)))
        epoch, member.epoch = member.epoch, member.epoch + 3
        self.note("fetch in a wrong epoch", _fetched(await member.fetch(self.topic)))
        self.note("acknowledge in a wrong epoch", await member.acknowledge(self.topic))
        member.epoch = epoch

    async def _records(self, member: WireMember) -> None:
        for acks in (
            [(3, 1, (1,))],
            [(0, 2, (1,)), (1, 3, (1,))],
            [(0, 2, (1,)), (2, 3, (1,))],
            [(0, 1, ())],
            [(0, 2, (1, 1))],
            [(0, 0, (5,))],
            [(0, 0, (4,))],
            [(100, 101, (1,))],
            [(6, 12, (1,))],
        ):
            self.note(f"acks {acks}", await member.acknowledge(self.topic, *acks))
        self.note("renews", await member.acknowledge(self.topic, (0, 0, (4,)), is_renew_ack=True))
        other = self.member(TWO)
        self.note("another's session", _fetched(await other.fetch(self.topic, 0, wait_ms=100)))
        self.note("another's records", await other.acknowledge(self.topic, (0, 0, (1,))))
        for acks in ([(0, 3, (1, 2, 3, 0))], [(0, 0, (1,))], [(2, 2, (1,))]):
            self.note(f"acks {acks}", await member.acknowledge(self.topic, *acks))
        self.note("released", _fetched(await member.fetch(self.topic, wait_ms=300)))
        self.note("piggyback", _fetched(await member.fetch(self.topic, acks=[(4, 7, (1,)), (1, 1, (1,))], wait_ms=200)))
        self.note("no such partition", _fetched(await member.fetch(self.topic, 9, wait_ms=100)))
        await self._produce(3)
        forgotten = [{"topic_id": self.topic, "partitions": [9]}]
        new = await member.fetch(self.topic, forgotten_topics_data=forgotten, wait_ms=500)
        self.note("new", _fetched(new))
        epoch, member.epoch = member.epoch, -1
        self.note("ends", await member.acknowledge(self.topic, (8, 8, (1,))))
        member.epoch = epoch
        self.note("after the end", _fetched(await member.fetch(self.topic)))
        self.note("what it had", _fetched(await other.fetch(self.topic, wait_ms=500)))

    async def _operators(self) -> None:
        await self._describe("all", None)
        await self._describe(
            "some", [{"topic_name": "t", "partitions": [0, 7]}, {"topic_name": "no", "partitions": [0]}]
        )
        for _ in range(2):
            await self._alter("t", 0)
            await self._delete("t")
            gone = await self.client.ask(42, 2, {"groups_names": ["g"]})
            self.note("DeleteGroups", gone.results[0].error_code)
            await self.member(ONE).beat(epoch=-1)
        for topic, index in (("t", 0), ("t", 9), ("no", 0)):
            await self._alter(topic, index)
        await self._describe("altered", [{"topic_name": "t", "partitions": [0]}])

    async def _describe(self, what: str, topics: Any) -> None:
        [group] = (await self.client.ask(OFFSETS, 1, {"groups": [{"group_id": "g", "topics": topics}]})).groups
        rows = [
            (topic.topic_name, each.partition_index, each.start_offset, each.lag, each.error_code)
            for topic in group.topics
            for each in topic.partitions
        ]
        self.note(what, (group.error_code, sorted(rows)))

    async def _alter(self, topic: str, index: int) -> None:
        partitions = [{"partition_index": index, "start_offset": 1}]
        request = {"group_id": "g", "topics": [{"topic_name": topic, "partitions": partitions}]}
        answer = await self.client.ask(ALTER, 0, request)
        codes = [each.error_code for topic in answer.responses for each in topic.partitions]
        self.note(f"alter {topic}-{index}", (answer.error_code, codes))

    async def _delete(self, topic: str) -> None:
        answer = await self.client.ask(DELETE, 0, {"group_id": "g", "topics": [{"topic_name": topic}]})
        self.note(f"delete {topic}", (answer.error_code, [each.error_code for each in answer.responses]))


def _fetched(answer: Any) -> Any:
    partitions = [each for topic in answer.responses for each in topic.partitions]
    told = [
        (each.partition_index, each.error_code, each.acknowledge_error_code, acquired(answer, each.partition_index))
        for each in partitions
    ]
    return answer.error_code, sorted(told)


def test_codes_records_counts_and_offsets_are_kafkas(java: str, kafka_libs: str, tmp_path: Path) -> None:
    async def ask(port: int) -> list[tuple[str, Any]]:
        client = await Client.connect(port)
        try:
            return await Script(client).run()
        finally:
            await client.close()

    async def ask_ours() -> list[tuple[str, Any]]:
        async with share_doors(1, share_auto_offset_reset="latest") as doors:
            return await ask(doors[0].server.port)

    ours = run(ask_ours())
    with apache_kafka(tmp_path, java, kafka_libs) as (_, port):
        theirs = run(ask(port))
    assert ours == theirs
