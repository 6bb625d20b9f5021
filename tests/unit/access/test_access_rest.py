"""No endpoint of the REST door gets past the authorizer. The cases come from the door: one without fails."""

from typing import Any

import pytest
from support.fakes.authorizers import DenyAll, OnlyTopics
from support.worlds.rest import rest_world

from lakestream.metadata.groups import CommittedOffset, GroupRows, GroupState, lease_address
from lakestream.metadata.store import Entry, Store
from lakestream.model import StreamPartition

BODIES: dict[str, Any] = {
    "rest_create_topic": {"topic_name": "new"},
    "rest_grow_topic": {"partitions_count": 5},
    "rest_set_config": {"value": "1"},
    "rest_alter": {"data": []},
    "rest_produce": {"value": {"type": "JSON", "data": 1}},
    "v2_produce": {"records": [{"value": "AA=="}]},
    "v2_produce_partition": {"records": [{"value": "AA=="}]},
    "v2_make": {},
    "v2_subscribe": {"topics": ["orders"]},
    "v2_assign": {"partitions": []},
    "v2_seek": {"offsets": []},
    "v2_seek_beginning": {"partitions": []},
    "v2_seek_end": {"partitions": []},
    "v2_committed": {"partitions": []},
}
EMPTY = {"rest_topics": "data", "rest_all_configs": "data", "rest_groups": "data", "v2_topics": None}
"""Answered with a list, which is empty."""
EXEMPT = {"/v3/openapi.json", "/v3/openapi"}
"""Say which calls there are, and nothing of what is stored."""


async def rows(store: Store) -> dict[str, list[Entry]]:
    shards = await store.shards("", "\U0010ffff")
    return {shard: await store.range(shard, "", "\U0010ffff") for shard in shards}


@pytest.mark.parametrize("topic", ["orders", "nothing"])
async def test_nothing_gets_past_who_denies_everything(topic: str) -> None:
    """The answer is the same whether a topic or a group is there or not."""
    async with rest_world() as place:
        made = await place.engine.create_topic("orders", 1, {})
        lease = await place.world.store.acquire_lease(lease_address("g"), "somebody", ttl_ms=60_000)
        group = GroupRows(place.world.store, "g", lease.token)
        await group.load()
        await group.save(GroupState(1, "consumer", "EMPTY"))
        await group.commit({StreamPartition(made.topic_id, 0): CommittedOffset(0, 0, "secret", 0)})
        door, before = place.door(DenyAll()), await rows(place.world.store)
        asked = 0
        async with place.client(door) as client:
            for endpoint in door.endpoints:
                for prefix in ("", "/kafka"):
                    path = endpoint.path.format(
                        cluster_id=place.engine.cluster_id,
                        topic_name=topic,
                        name="retention.ms",
                        partition_id=0,
                        broker_id=1,
                        consumer_group_id="g",
                        consumer_id="c",
                        group_name="g",
                        instance="i",
                    )
                    handler = endpoint.handler.__name__
                    answer = await client.request(endpoint.method, prefix + path, json=BODIES.get(handler))
                    where, asked = f"{endpoint.method} {prefix}{path}", asked + 1
                    assert b"secret" not in answer.content, where
                    if handler in EMPTY:
                        field = EMPTY[handler]
                        assert (answer.json() if field is None else answer.json()[field]) == [], where
                        continue
                    assert (answer.status_code, answer.json()["error_code"]) == (403, 40301), where
            for route in door.routes():
                path = getattr(route, "path", "")
                assert path in {*EXEMPT, "/kafka"} or path in {each.route().path for each in door.endpoints}
        assert asked > 80
        after = await rows(place.world.store)
        assert {shard: kept for shard, kept in after.items() if shard != "brokers"} == {
            shard: kept for shard, kept in before.items() if shard != "brokers"
        }


async def test_topics_that_may_not_be_described_are_left_out() -> None:
    async with rest_world() as place:
        for name in ("mine", "theirs"):
            await place.engine.create_topic(name, 1, {})
        door, base = place.door(OnlyTopics("mine")), f"/v3/clusters/{place.engine.cluster_id}"
        async with place.client(door) as client:
            assert (await client.get("/topics")).json() == ["mine"]
            told = (await client.get(f"{base}/topics")).json()["data"]
            assert [each["topic_name"] for each in told] == ["mine"]
            configs = (await client.get(f"{base}/topics/-/configs")).json()["data"]
            assert {each["topic_name"] for each in configs} == {"mine"}
            record = {"value": {"type": "STRING", "data": "x"}}
            for name, status in (("mine", 200), ("theirs", 403), ("nothing", 403)):
                assert (await client.post(f"{base}/topics/{name}/records", json=record)).status_code == status
                assert (await client.get(f"{base}/topics/{name}/records")).status_code == status
            assert (await client.get(f"{base}/brokers")).status_code == 403
