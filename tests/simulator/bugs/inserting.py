"""Bugs on the way of an engine's rows into the log."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from uuid import UUID

import msgspec

from lakestream.frontier.collecting import collector
from lakestream.metadata.inserts import DoneInsert, Inserts, LiveInsert, UndecidedInsert, sessions_of
from lakestream.stream.inserting.inserter import Inserter
from simulator.bugs.registry import insert_bug, insert_loss_bug, staged, swapped
from simulator.scene import Stage

_NEVER_RESERVED: Final = 1_000_000


@staged(Stage(pipeline={"generation_interval_ms": 20, "grace_ms": 0}, scene={"collects": 1.0, "rest_most_s": 0.1}))
@insert_bug
def objects_of_inserts_taken_for_dead() -> Iterator[None]:
    """What no log names yet nobody needs, so the collector thinks."""
    with swapped(collector, sessions_of, lambda _: frozenset()):
        yield


@insert_bug
def begun_taken_for_inserted() -> Iterator[None]:
    """Whoever asks again is told that it is done, though nobody has promised yet to go on with it."""

    async def taken(self: Inserter, topic_id: UUID, snapshot_id: int) -> bool:
        return await self._inserts.find(topic_id, snapshot_id) is not None

    with swapped(Inserter, Inserter.is_taken, taken):
        yield


@insert_bug
def decided_insert_given_up() -> Iterator[None]:
    """Parts of it may be in the log, and whoever sends it again begins with a new producer."""
    real = Inserts.live

    async def blind(self: Inserts) -> list[LiveInsert]:
        return [each._replace(insert=msgspec.structs.replace(each.insert, step="begun")) for each in await real(self)]

    with swapped(Inserts, real, blind), _producers_forgotten():
        yield


@insert_loss_bug
def given_up_insert_begun_with_a_new_producer() -> Iterator[None]:
    """What the former attempt has uploaded is somebody else's then, so a log that is rebuilt has the rows twice."""
    with _producers_forgotten():
        yield


@contextmanager
def _producers_forgotten() -> Iterator[None]:
    real = Inserts.find

    async def find(self: Inserts, topic_id: UUID, snapshot_id: int) -> LiveInsert | UndecidedInsert | DoneInsert | None:
        found = await real(self, topic_id, snapshot_id)
        if not isinstance(found, UndecidedInsert):
            return found
        fresh = found.producer_id + _NEVER_RESERVED
        return found._replace(given_up=msgspec.structs.replace(found.given_up, producer_id=fresh))

    with swapped(Inserts, real, find):
        yield
