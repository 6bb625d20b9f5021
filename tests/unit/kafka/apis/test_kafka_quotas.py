"""Client quotas: kept as Apache Kafka 4.3.1 keeps them, and enforced on produce and fetch."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from support.clients.batches import batch
from support.clients.wire import Client, span, with_door
from support.fakes.streams import FakeStreams
from support.properties import examples
from support.worlds.brokers import seeded

from lakestream.metadata.quotas import Quota
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.stream.quotas import CONSUMED, PRODUCED, QuotaChange, Quotas, changed

CLIENT = "client-id"


def _alter(
    *entries: tuple[dict[str, str | None], dict[str, float | None]], validate_only: bool = False
) -> dict[str, Any]:
    return {
        "entries": [
            {
                "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
                "ops": [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in limits.items()],
            }
            for entity, limits in entries
        ],
        "validate_only": validate_only,
    }


async def _quotas(client: Client, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    asked = [{"entity_type": kind, "match_type": match, "match": name} for kind, match, name in components]
    answer = await client.ask(48, 1, {"components": asked, "strict": strict})
    if answer.error_code is not ErrorCode.none:
        return answer.error_code
    return [
        (
            [(each.entity_type, each.entity_name) for each in entry.entity],
            {each.key: each.value for each in entry.values},
        )
        for entry in answer.entries
    ]


@pytest.mark.parametrize(
    ("entity", "limits", "code"),
    [
        ({CLIENT: "a"}, {PRODUCED: 1000.0}, ErrorCode.none),
        ({CLIENT: None}, {CONSUMED: 1000.0}, ErrorCode.none),
        ({CLIENT: "a"}, {"nope": None}, ErrorCode.none),
        ({CLIENT: "a"}, {}, ErrorCode.none),
        ({CLIENT: "a"}, {PRODUCED: 0.0}, ErrorCode.invalid_request),
        ({CLIENT: "a"}, {PRODUCED: -1.0}, ErrorCode.invalid_request),
        ({CLIENT: "a"}, {PRODUCED: 1.5}, ErrorCode.invalid_request),
        ({CLIENT: "a"}, {PRODUCED: float("inf")}, ErrorCode.invalid_request),
        ({CLIENT: "a"}, {"nope": 1.0}, ErrorCode.invalid_request),
        ({CLIENT: "a"}, {"request_percentage": 50.0}, ErrorCode.invalid_request),
        ({CLIENT: ""}, {PRODUCED: 1.0}, ErrorCode.invalid_request),
        ({"bogus": "a"}, {PRODUCED: 1.0}, ErrorCode.invalid_request),
        ({"user": "a"}, {PRODUCED: 1.0}, ErrorCode.invalid_request),
        ({"ip": "1.2.3.4", CLIENT: "a"}, {PRODUCED: 1.0}, ErrorCode.invalid_request),
        ({}, {PRODUCED: 1.0}, ErrorCode.invalid_request),
    ],
)
@pytest.mark.parametrize("validate_only", [False, True])
def test_what_is_taken(
    entity: dict[str, str | None], limits: dict[str, float | None], code: ErrorCode, validate_only: bool
) -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        answer = await client.ask(49, 1, _alter((entity, limits), validate_only=validate_only))
        [entry] = answer.entries
        assert entry.error_code is code
        kept = {limit: value for limit, value in limits.items() if value is not None}
        expected = [(list(entity.items()), kept)] if code is ErrorCode.none and kept and not validate_only else []
        assert await _quotas(client) == expected

    with_door(test)


def test_whose_quotas_are_asked_for() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        own, default = ({CLIENT: "a"}, {PRODUCED: 5.0}), ({CLIENT: None}, {CONSUMED: 7.0, PRODUCED: 6.0})
        await client.ask(49, 1, _alter(own, default))
        told_own, told_default = ([(CLIENT, "a")], {PRODUCED: 5.0}), ([(CLIENT, None)], {CONSUMED: 7.0, PRODUCED: 6.0})
        assert await _quotas(client) == [told_default, told_own]
        assert await _quotas(client, (CLIENT, 2, None)) == [told_default, told_own]
        assert await _quotas(client, (CLIENT, 1, None)) == [told_default]
        assert await _quotas(client, (CLIENT, 0, "a")) == [told_own]
        assert await _quotas(client, (CLIENT, 0, "b")) == []
        assert await _quotas(client, ("user", 2, None)) == []
        assert await _quotas(client, strict=True) == []
        assert await _quotas(client, ("bogus", 2, None)) is ErrorCode.unsupported_version
        for bad in (
            ((CLIENT, 7, "a"),),
            ((CLIENT, 0, None),),
            ((CLIENT, 1, "a"),),
            ((CLIENT, 0, "a"), (CLIENT, 0, "b")),
        ):
            assert await _quotas(client, *bad) is ErrorCode.invalid_request
        await client.ask(49, 1, _alter(({CLIENT: "a"}, {PRODUCED: None}), ({CLIENT: None}, {CONSUMED: None})))
        assert await _quotas(client) == [([(CLIENT, None)], {PRODUCED: 6.0})]
        twice = await client.ask(49, 1, _alter(own, own))
        assert [entry.error_code for entry in twice.entries] == [ErrorCode.invalid_request]

    with_door(test)


def _produce(data: bytes, acks: int = -1) -> dict[str, Any]:
    topic = {"name": "t", "partition_data": [{"index": 0, "records": data}]}
    return {"acks": acks, "timeout": span(1_000), "transactional_id": None, "topic_data": [topic]}


def test_who_sends_too_much_is_told_and_not_listened_to() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("t", 1, {})
        await client.ask(49, 1, _alter(({CLIENT: "t"}, {PRODUCED: 10_000.0})))
        loop, data = asyncio.get_running_loop(), batch(b"v" * 57_500)
        within = await client.ask(0, 8, _produce(data))
        assert within.throttle_time == span(0)
        # Ten seconds' worth may come at once; this is one and a half more, less what has passed meanwhile.
        began_s = loop.time()
        beyond = await client.ask(0, 8, _produce(data))
        assert span(300) < beyond.throttle_time < span(1_600)
        muted = asyncio.create_task(client.ask(18, 0, {}))
        other = await Client.connect(client.writer.get_extra_info("peername")[1])
        other.client_id = "other"
        assert (await other.ask(0, 8, _produce(data))).throttle_time == span(0)
        assert not muted.done()
        await other.close()
        await muted
        assert span(1000) * (loop.time() - began_s) >= beyond.throttle_time

    with_door(test)


def test_who_reads_too_much_is_told_and_not_listened_to() -> None:
    async def test(streams: FakeStreams, client: Client) -> None:
        await streams.topics.create("t", 1, {})
        await client.ask(0, 8, _produce(batch(b"v" * 10_300)))
        await client.ask(49, 1, _alter(({CLIENT: None}, {CONSUMED: 1_000.0})))
        asked = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 100_000}
        fetch = {
            "replica_id": -1,
            "max_wait": span(0),
            "min_bytes": 0,
            "max_bytes": 100_000,
            "isolation_level": 0,
            "topics": [{"topic": "t", "partitions": [asked]}],
        }
        answer = await client.ask(1, 4, fetch)
        assert answer.responses[0].partitions[0].records
        assert span(100) < answer.throttle_time < span(500)
        began_s = asyncio.get_running_loop().time()
        await client.ask(18, 0, {})
        assert span(1000) * (asyncio.get_running_loop().time() - began_s) >= answer.throttle_time - span(50)

    with_door(test)


async def test_an_account_is_paid_off_at_the_rate() -> None:
    quotas = Quotas(MemoryStore(seeded()))
    assert quotas.charge(PRODUCED, "a", 1 << 40, 0.0) == 0
    await quotas.change([QuotaChange({CLIENT: "a"}, {PRODUCED: 100.0}), QuotaChange({CLIENT: None}, {PRODUCED: 1.0})])
    assert quotas.charge(PRODUCED, "a", 1_000, 0.0) == 0
    assert quotas.charge(PRODUCED, "a", 200, 0.0) == 2_000
    assert quotas.charge(PRODUCED, "a", 0, 2.0) == 0
    assert quotas.charge(PRODUCED, "a", 1_000_000, 2.0) == 60_000
    # What is owed stays owed.
    assert quotas.charge(PRODUCED, "a", 0, 62.0) == 60_000
    assert quotas.charge(CONSUMED, "a", 1 << 40, 0.0) == 0
    # Whoever has no quota of their own has the default's, each on an account of their own.
    assert quotas.charge(PRODUCED, "b", 11, 0.0) == 1_000
    assert quotas.charge(PRODUCED, "c", 10, 0.0) == 0


async def test_other_brokers_follow() -> None:
    store = MemoryStore(seeded())
    here, there = Quotas(store), Quotas(store)
    await here.change([QuotaChange({CLIENT: "a"}, {PRODUCED: 1.0})])
    assert there.charge(PRODUCED, "a", 1_000, 0.0) == 0
    await there.follow()
    assert there.charge(PRODUCED, "a", 1_000, 0.0) > 0
    await asyncio.gather(
        *(each.change([QuotaChange({CLIENT: str(n)}, {PRODUCED: 1.0})]) for n, each in enumerate([here, there]))
    )
    assert len(await here.list()) == 3


_CHANGES = st.lists(
    st.builds(
        QuotaChange,
        st.dictionaries(st.just(CLIENT), st.none() | st.sampled_from("abc"), min_size=1),
        st.dictionaries(st.sampled_from([PRODUCED, CONSUMED]), st.none() | st.integers(1, 9).map(float)),
    ),
    max_size=12,
)


@examples(60)
@given(_CHANGES)
def test_the_last_change_of_each_counts(changes: list[QuotaChange]) -> None:
    expected: dict[tuple[str | None, str], float | None] = {}
    quotas: list[Quota] = []
    for change in changes:
        quotas = changed(quotas, [change])
        expected |= {(change.entity[CLIENT], limit): value for limit, value in change.limits.items()}
    found = {(quota.entity[CLIENT], limit): value for quota in quotas for limit, value in quota.limits.items()}
    assert found == {key: value for key, value in expected.items() if value is not None}
    assert changed([], changes) == quotas
    assert all(quota.limits for quota in quotas)
