"""Share groups among transactions: who wants committed records gets no others, from the log as from the table."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kio.schema.errors import ErrorCode
from pyiceberg.catalog.rest import RestCatalog
from support.clients.records import parse
from support.clients.wire import Client
from support.shares.door import WireMember, acquired
from support.worlds.embedded import Embedded

WAIT_S = 20.0


def end(producer: Producer, *, commits: bool, value: bytes = b"v") -> None:
    producer.begin_transaction()
    producer.produce("shared", value, partition=0)
    assert producer.flush(WAIT_S) == 0
    if commits:
        producer.commit_transaction(WAIT_S)
    else:
        producer.abort_transaction(WAIT_S)


async def settle(client: Client, group: str, **settings: str) -> None:
    configs = [
        {"name": f"share.{name.replace('_', '.')}", "config_operation": 0, "value": value}
        for name, value in {"auto_offset_reset": "earliest", **settings}.items()
    ]
    request = {"resources": [{"resource_type": 32, "resource_name": group, "configs": configs}], "validate_only": False}
    answer = await client.ask(44, 1, request)
    assert answer.responses[0].error_code == ErrorCode.none


async def everything(client: Client, topic: UUID, group: str) -> list[int]:
    """The offsets of the records that a group is given. As clients do, all is acknowledged, offsets without a record as
    such: batches of the table have some."""
    member, found, idle = WireMember(client, f"m-{group}", group), list[int](), 0
    acks: Sequence[Any] = ()
    while idle < 2:
        answer = await member.fetch(topic, *(() if member.epoch else (0,)), acks=acks, wait_ms=100, version=2)
        given = acquired(answer)
        parts = [each.records for part in answer.responses for each in part.partitions if each.records]
        there = {record.offset for record in parse(parts)}
        offsets = [range(first, last + 1) for first, last, _ in given]
        found += [offset for some in offsets for offset in some if offset in there]
        acks = [(some[0], some[-1], [int(offset in there) for offset in some]) for some in offsets]
        idle = 0 if given else idle + 1
    return found


@pytest.mark.xdist_group("transactions_in_tables")
async def test_who_wants_committed_records_gets_no_others(broker: Embedded, door: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("shared", 1, 1, config={"lakestream.table.freshness.ms": "0"})])["shared"].result(10)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "shared", "log_level": 0})
    producer.init_transactions(WAIT_S)
    for commits in (True, False, True):
        end(producer, commits=commits)
    producer.begin_transaction()
    producer.produce("shared", b"open", partition=0)
    assert producer.flush(WAIT_S) == 0

    async def read(*groups: str) -> list[list[int]]:
        client = await Client.connect(int(broker.address().rpartition(":")[2]))
        topics = [{"topic_id": None, "name": "shared"}]
        asked = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
        topic = (await client.ask(3, 12, {"topics": topics, **asked})).topics[0].topic_id
        found = []
        for group in groups:
            if group.startswith("committed"):
                await settle(client, group, isolation_level="read_committed")
            else:
                await settle(client, group)
            found.append(await everything(client, topic, group))
        await client.close()
        return found

    # Each end is followed by its marker; the last transaction is open.
    assert await read("committed", "all") == [[0, 4], [0, 2, 4, 6]]
    producer.commit_transaction(WAIT_S)
    table = RestCatalog("lake", uri=f"{door}/iceberg").load_table("default.shared")
    assert table.scan().to_arrow()["_offset"].to_pylist() == [0, 4, 6]
    assert await read("committed", "committed-later", "all-later") == [[6], [0, 4, 6], [0, 4, 6]]
