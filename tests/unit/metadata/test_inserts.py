"""Rows of inserts: what is left of those that ended, or were given up, goes after a while; one is changed by one."""

from random import Random
from uuid import UUID

import pytest
from support.worlds.memory import Hands

from lakestream.metadata import inserts
from lakestream.metadata.inserts import DoneInsert, Insert, Inserts, LiveInsert, UndecidedInsert
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.runtime import Runtime

TOPIC = UUID(int=7)


def insert(snapshot_id: int, producer_id: int = 5) -> Insert:
    return Insert(TOPIC, snapshot_id, "begun", producer_id, "session", 1, 1_000)


@pytest.fixture
def rows() -> Inserts:
    return Inserts(MemoryStore(Runtime(Hands(), Random(1))))


async def begun(rows: Inserts, snapshot_id: int) -> LiveInsert:
    live = await rows.begin(insert(snapshot_id), await open_row(rows, snapshot_id))
    assert live is not None
    return live


async def open_row(rows: Inserts, snapshot_id: int) -> LiveInsert | UndecidedInsert | None:
    found = await rows.find(TOPIC, snapshot_id)
    assert not isinstance(found, DoneInsert)
    return found


async def test_one_that_was_given_up_is_begun_anew_with_its_producer(rows: Inserts) -> None:
    live = await begun(rows, 1)
    assert await rows.give_up(live, 2_000)
    found = await rows.find(TOPIC, 1)
    assert isinstance(found, UndecidedInsert)
    assert found.producer_id == live.producer_id
    assert await rows.live() == []
    again = await begun(rows, 1)
    assert await rows.find(TOPIC, 1) == again
    assert await rows.finish(again, DoneInsert(3_000, 1))
    assert await rows.find(TOPIC, 1) == DoneInsert(3_000, 1)


async def test_who_has_seen_nothing_does_not_begin_what_was_given_up(rows: Inserts) -> None:
    """Nor what is under way or done: it would have another producer."""
    assert await rows.give_up(await begun(rows, 1), 2_000)
    live = await begun(rows, 2)
    assert await rows.finish(await begun(rows, 3), DoneInsert(3_000, 1))
    for snapshot_id in (1, 2, 3):
        assert await rows.begin(insert(snapshot_id, producer_id=6), None) is None
    assert await rows.begin(insert(2, producer_id=6), live._replace(version=live.version + 1)) is None


async def test_answers_and_what_was_given_up_go_after_a_while(rows: Inserts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inserts, "_PAGE", 2)
    for number in range(5):
        await rows.give_up(await begun(rows, number), 1_000 + number)
        await rows.finish(await begun(rows, 10 + number), DoneInsert(1_000 + number, 1))
    live = await begun(rows, 20)
    after, pages = "", 0
    while pages == 0 or after:
        after = await rows.forget(1_004, after)
        pages += 1
    assert pages == 6
    left = {number: await rows.find(TOPIC, number) for number in (*range(5), *range(10, 15), 20)}
    assert {number for number, found in left.items() if found is not None} == {4, 14, 20}
    assert left[20] == live
