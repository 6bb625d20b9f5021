"""Share groups through the doors of one broker and of two: whoever is asked, the store decides."""

import asyncio
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from support.shares.door import ShareDoor, WireMember, acquired, fill, with_doors

from lakestream.errors import Unavailable
from lakestream.metadata.store import Address, Entry, Outcome, Store, Transaction
from lakestream.model import StreamPartition


def test_records_are_given_acknowledged_and_given_again() -> None:
    async def test(topic: UUID, door: ShareDoor) -> None:
        await fill(door.engine, topic, 4, 4)
        one, two = await door.member("one"), await door.member("two")
        assert acquired(await one.fetch(topic, 0, 1, max_records=4)) == [(0, 3, 1)]
        answer = await two.fetch(topic, 0, 1)
        assert acquired(answer) == [(4, 7, 1)]
        assert answer.acquisition_lock_timeout.total_seconds() == 30
        assert len(answer.responses[0].partitions) == 2, "a session that begins hears of all"
        answer = await one.fetch(topic, acks=[(0, 1, (1,)), (2, 3, (2, 3))])
        assert answer.responses[0].partitions[0].acknowledge_error_code == ErrorCode.none
        assert acquired(answer) == [(2, 2, 2)], "released, and given again at once"
        answer = await two.fetch(topic, acks=[(4, 7, (1,))])
        assert answer.responses[0].partitions[0].acknowledge_error_code == ErrorCode.none
        assert (await two.fetch(topic)).responses == ()

    with_doors(test)


def test_whoever_waits_hears_of_what_is_released_elsewhere_or_new() -> None:
    async def test(topic: UUID, first: ShareDoor, second: ShareDoor) -> None:
        await fill(first.engine, topic, 4)
        one, two = await first.member("one"), await second.member("two")
        assert acquired(await one.fetch(topic)) == [(0, 3, 1)]
        waiting = asyncio.create_task(two.fetch(topic, wait_ms=20_000))
        await asyncio.sleep(0.1)
        assert await one.acknowledge(topic, (0, 3, (1, 2, 1, 1))) == ErrorCode.none
        assert acquired(await waiting) == [(1, 1, 2)]
        waiting = asyncio.create_task(one.fetch(topic, wait_ms=20_000))
        await asyncio.sleep(0.1)
        await fill(second.engine, topic, 2)
        assert acquired(await waiting) == [(4, 5, 1)]

    with_doors(test, 2)


def test_what_was_given_by_one_broker_is_acknowledged_at_another() -> None:
    async def test(topic: UUID, first: ShareDoor, second: ShareDoor) -> None:
        await fill(first.engine, topic, 4)
        one, other = await first.member("one"), await second.member("other")
        await other.fetch(topic, 1)
        await one.fetch(topic)
        moved = await second.member("one")
        await moved.fetch(topic, 1)
        assert await moved.acknowledge(topic, (0, 1, (1,))) == ErrorCode.none
        assert await other.acknowledge(topic, (2, 3, (1,))) == ErrorCode.invalid_record_state
        assert await one.acknowledge(topic, (0, 3, (1,))) == ErrorCode.none, "of the first two nothing is to be said"
        assert (await other.fetch(topic, 0)).responses == ()

    with_doors(test, 2)


def test_a_session_that_begins_or_ends_gives_back_what_the_member_had() -> None:
    async def test(topic: UUID, first: ShareDoor, second: ShareDoor) -> None:
        await fill(first.engine, topic, 4)
        one = await first.member("one")
        assert acquired(await one.fetch(topic)) == [(0, 3, 1)]
        again = await second.member("one")
        assert acquired(await again.fetch(topic)) == [(0, 3, 2)], "its broker is gone, as far as it knows"
        again.epoch = -1
        assert await again.acknowledge(topic, (0, 0, (1,))) == ErrorCode.none
        other = await first.member("other")
        assert acquired(await other.fetch(topic)) == [(1, 3, 3)]
        await other.client.close()
        last = await second.member("last")
        assert acquired(await last.fetch(topic, wait_ms=5_000)) == [(1, 3, 4)], "a lost connection gives back, too"

    with_doors(test, 2)


def test_sessions_have_epochs() -> None:
    async def test(topic: UUID, door: ShareDoor) -> None:
        one = await door.member("one")
        for epoch, code in ((5, ErrorCode.share_session_not_found), (-1, ErrorCode.share_session_not_found)):
            one.epoch = epoch
            assert (await one.fetch(topic)).error_code == code
            assert await one.acknowledge(topic) == code
        one.epoch = 0
        assert await one.acknowledge(topic) == ErrorCode.invalid_share_session_epoch
        assert (await one.fetch(topic, acks=[(0, 0, (1,))])).error_code == ErrorCode.invalid_request
        await one.fetch(topic)
        one.epoch = 3
        assert (await one.fetch(topic)).error_code == ErrorCode.invalid_share_session_epoch
        assert await one.acknowledge(topic) == ErrorCode.invalid_share_session_epoch
        two = await door.member("two")
        assert (await two.fetch(topic)).error_code == ErrorCode.share_session_limit_reached

    with_doors(test, share_max_sessions=1)


def test_locks_lapse_and_are_renewed() -> None:
    async def test(topic: UUID, door: ShareDoor) -> None:
        await fill(door.engine, topic, 1, 1)
        one, two = await door.member("one"), await door.member("two")
        await one.fetch(topic)
        await asyncio.sleep(0.3)
        assert await one.acknowledge(topic, (0, 0, (4,))) == ErrorCode.invalid_request, "renewing is said"
        assert await one.acknowledge(topic, (0, 0, (4,)), is_renew_ack=True) == ErrorCode.none
        assert acquired(await two.fetch(topic, wait_ms=5_000)) == [(1, 1, 2)]
        assert await one.acknowledge(topic, (1, 1, (1,))) == ErrorCode.invalid_record_state
        assert await one.acknowledge(topic, (0, 0, (1,))) == ErrorCode.none
        refused = await one.fetch(topic, is_renew_ack=True)
        assert refused.error_code == ErrorCode.invalid_request

    with_doors(test, share_record_lock_ms=500)


def test_records_that_were_deleted_are_nobodys() -> None:
    async def test(topic: UUID, door: ShareDoor) -> None:
        await fill(door.engine, topic, 2, 2, 2)
        one = await door.member("one")
        await one.fetch(topic, max_records=2)
        await door.engine.delete_records(StreamPartition(topic, 0), 4)
        assert await one.acknowledge(topic, (0, 1, (2,))) == ErrorCode.none
        answer = await one.fetch(topic, wait_ms=2_000)
        assert acquired(answer) == [(4, 5, 1)]

    with_doors(test)


def test_a_session_of_nothing_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(topic: UUID, door: ShareDoor) -> None:
        looks = 0
        get = door.engine.store.get

        async def count(addresses: list[Address]) -> list[Entry | None]:
            nonlocal looks
            looks += not addresses
            return await get(addresses)

        monkeypatch.setattr(door.engine.store, "get", count)
        one = await door.member("one")
        answer = await one.fetch(topic, topics=(), wait_ms=300)
        assert (answer.error_code, answer.responses) == (ErrorCode.none, ())
        assert looks < 4

    with_doors(test)


def test_a_topic_made_anew_is_another() -> None:
    async def test(topic: UUID, door: ShareDoor) -> None:
        await fill(door.engine, topic, 2)
        one = await door.member("one")
        await one.fetch(topic)
        await door.engine.delete_topic(topic)
        new = await door.engine.create_topic("t", 1, {})
        await fill(door.engine, new.topic_id, 3)
        answer = await one.fetch(topic)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.unknown_topic_id
        other = await door.member("other")
        assert acquired(await other.fetch(new.topic_id)) == [(0, 2, 1)]

    with_doors(test)


@pytest.mark.parametrize("is_applied", [True, False])
def test_an_outcome_that_is_not_known_is_no_success(is_applied: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(topic: UUID, door: ShareDoor) -> None:
        await fill(door.engine, topic, 2)
        one = await door.member("one")
        await one.fetch(topic)
        store: Store = door.engine.store
        transact = store.transact

        async def fail(transactions: list[Transaction]) -> list[Outcome]:
            if transactions[0].shard.startswith("share/"):
                if is_applied:
                    await transact(transactions)
                raise Unavailable("no answer")
            return await transact(transactions)

        with monkeypatch.context() as patch:
            patch.setattr(store, "transact", fail)
            assert await one.acknowledge(topic, (0, 1, (1,))) == ErrorCode.not_leader_or_follower
        code = await one.acknowledge(topic, (0, 1, (1,)))
        assert code == ErrorCode.none, "what lies before the start, or is still with the member"
        assert (await one.fetch(topic)).responses == ()

    with_doors(test)


async def _work(member: WireMember, topic: UUID, got: list[tuple[str, int]], total: int) -> None:
    while len(got) < total:
        for first, last, _ in acquired(await member.fetch(topic, max_records=3, wait_ms=50)):
            code = await member.acknowledge(topic, (first, last, (1,)))
            assert code == ErrorCode.none
            got += [(member.name, offset) for offset in range(first, last + 1)]


def test_members_of_two_brokers_never_get_the_same_record() -> None:
    async def test(topic: UUID, first: ShareDoor, second: ShareDoor) -> None:
        got: list[tuple[str, int]] = []
        doors = [first, second] * 3
        members = [await door.member(f"{number}") for number, door in enumerate(doors)]
        working = [asyncio.create_task(_work(member, topic, got, 120)) for member in members]
        for _ in range(20):
            await fill(first.engine, topic, 4, 2)
        await asyncio.gather(*working)
        assert sorted(offset for _, offset in got) == list(range(120))
        assert len({name for name, _ in got}) > 1

    with_doors(test, 2)
