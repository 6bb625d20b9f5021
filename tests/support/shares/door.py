"""Members of share groups that speak the protocol byte by byte, to brokers in this process."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import msgspec

from lakestream.coordination.groups import GroupCoordinator
from lakestream.coordination.settings import GroupSettings
from lakestream.kafka.server import KafkaServer, listen
from lakestream.kafka.settings import KafkaSettings
from lakestream.model import StreamPartition
from lakestream.stream.engine import StreamEngine
from support.clients.batches import batch
from support.clients.wire import Client, server_of, span
from support.fakes.loops import run
from support.worlds.brokers import BrokerWorld

HEARTBEAT = 76
DESCRIBE = 77
FETCH = 78
ACKNOWLEDGE = 79
OFFSETS = 90
ALTER = 91
DELETE = 92
GROUPS = GroupSettings(share_auto_offset_reset="earliest", lease_ttl_ms=1_000)


@dataclass
class ShareDoor:
    """One broker with its door."""

    engine: StreamEngine
    server: KafkaServer
    members: "list[WireMember]" = field(default_factory=list)

    async def member(self, name: str = "m", group: str = "g") -> "WireMember":
        self.members.append(WireMember(await Client.connect(self.server.port), name, group))
        return self.members[-1]

    @property
    def coordinator(self) -> GroupCoordinator:
        return self.server._door.shares.offsets._coordinator

    async def close(self) -> None:
        for each in self.members:
            await each.client.close()
        await self.server.stop(200)


@dataclass
class WireMember:
    client: Client
    name: str
    group: str = "g"
    epoch: int = 0
    """Of its share session."""

    async def fetch(
        self,
        topic_id: UUID,
        *indexes: int,
        acks: Sequence[tuple[int, int, Sequence[int]]] = (),
        max_records: int = 500,
        wait_ms: int = 0,
        version: int = 2,
        **more: Any,
    ) -> Any:
        """The answer. What the session reads is told with the first request; `acks` are of partition 0."""
        asked = indexes or ((0,) if acks or self.epoch == 0 else ())
        request = {
            "group_id": self.group,
            "member_id": self.name,
            "share_session_epoch": self.epoch,
            "max_wait": span(wait_ms),
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": max_records,
            "batch_size": max_records,
            "share_acquire_mode": 0,
            "is_renew_ack": False,
            "topics": self._topics(topic_id, asked, acks),
            "forgotten_topics_data": (),
        }
        answer = await self.client.ask(FETCH, version, request | more)
        self.epoch += 1 if answer.error_code == 0 else 0
        return answer

    async def acknowledge(self, topic_id: UUID, *acks: tuple[int, int, Sequence[int]], **more: Any) -> Any:
        """The partition's code, or the request's if that was refused."""
        request = {
            "group_id": self.group,
            "member_id": self.name,
            "share_session_epoch": self.epoch,
            "is_renew_ack": False,
            "topics": self._topics(topic_id, (0,) if acks else (), acks),
        }
        answer = await self.client.ask(ACKNOWLEDGE, 2, request | more)
        if answer.error_code != 0:
            return answer.error_code
        self.epoch += 1
        return answer.responses[0].partitions[0].error_code if acks else answer.error_code

    async def beat(self, *topics: str, epoch: int = 0) -> Any:
        request = {
            "group_id": self.group,
            "member_id": self.name,
            "member_epoch": epoch,
            "rack_id": None,
            "subscribed_topic_names": topics or None,
        }
        return await self.client.ask(HEARTBEAT, 1, request)

    def _topics(self, topic_id: UUID, indexes: Sequence[int], acks: Sequence[tuple[int, int, Sequence[int]]]) -> Any:
        told = [{"first_offset": first, "last_offset": last, "acknowledge_types": types} for first, last, types in acks]
        partitions = [
            {"partition_index": index, "acknowledgement_batches": told if index == 0 else ()} for index in indexes
        ]
        return [{"topic_id": topic_id, "partitions": partitions}] if partitions else ()


def acquired(answer: Any, index: int = 0) -> list[tuple[int, int, int]]:
    """First offset, last offset, delivery."""
    return [
        (each.first_offset, each.last_offset, each.delivery_count)
        for topic in answer.responses
        for partition in topic.partitions
        if partition.partition_index == index
        for each in partition.acquired_records
    ]


async def fill(engine: StreamEngine, topic_id: UUID, *sizes: int, index: int = 0) -> None:
    """Batches of so many records."""
    for size in sizes:
        await engine.append(StreamPartition(topic_id, index), batch(*[b"%d" % number for number in range(size)]))


@asynccontextmanager
async def share_doors(
    count: int = 1, world: BrokerWorld | None = None, **settings: Any
) -> AsyncIterator[list[ShareDoor]]:
    groups = msgspec.structs.replace(GROUPS, **settings)
    async with (world or BrokerWorld()).brokers(count) as engines, AsyncExitStack() as stack:
        doors = []
        for engine in engines:
            server = server_of(engine, KafkaSettings(groups=groups))
            await server.start(await listen("127.0.0.1", 0))
            doors.append(ShareDoor(engine, server))
            stack.push_async_callback(doors[-1].close)
        yield doors


def with_doors(
    test: Callable[..., Awaitable[None]], count: int = 1, world: BrokerWorld | None = None, **settings: Any
) -> None:
    """`test` is given the id of a topic with two partitions, and the doors."""

    async def work() -> None:
        async with share_doors(count, world, **settings) as doors:
            topic = await doors[0].engine.create_topic("t", 2, {})
            await test(topic.topic_id, *doors)

    run(work())
