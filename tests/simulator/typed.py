"""Typed topics: schemas are registered while records come, values name some that nobody knows yet, or do not decode,
and an operator replays what stayed bytes.

The real code that teaches tables schemas, and that of replays, on the simulated registry, bucket and tables; only the
rows are kept as the simulation keeps rows (`typed_rows`). Tables of dead letters are not played.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

from support.tables.simulated import SimulatedTables

from lakestream.errors import ObjectMissing, RegistryUnavailable, RetryableError, Unavailable, UnknownStream
from lakestream.frontier.upkeep import replaying
from lakestream.frontier.upkeep.replaying import Replayed, replay
from lakestream.metadata.topics.list import Topic
from lakestream.metadata.topics.option_list import VALUE_FORMAT
from lakestream.model import DataFile
from lakestream.records import Binary
from lakestream.schemas.source import SubjectVersion
from lakestream.table.reading.deletes import Deleted
from lakestream.table.shape import TableShape, ValueSchema
from simulator.batches import Row
from simulator.faults import AIMED, Aim
from simulator.keeper import SimulatedRewriter
from simulator.policies import MERGES, suited
from simulator.scene import Scene
from simulator.tables import read_rows
from simulator.typed_rows import IDS, binary, filled, is_damaged, is_raw, schema_id_of, schema_of
from simulator.world import Process

if TYPE_CHECKING:
    from simulator.history import History

TYPED: Final = (30, 4)
"""In every so many histories, those with this remainder, the topic is typed. Not drawn: what all others play stays the
same."""
SETTINGS: Final = {VALUE_FORMAT: "schema_id"}
_NEVER: Final = IDS[-1]
"""The id that nobody ever registers."""


@contextmanager
def simulated_replays() -> Iterator[None]:
    """Replays look at rows, and fill them, as the simulation has them."""
    with (
        patch.object(replaying, replaying.Scout.__name__, _Scout),
        patch.object(replaying, replaying.Filler.__name__, _Filler),
    ):
        yield


def with_schemas(scene: Scene, seed: int) -> Scene:
    """Many files, and faults at what a replay and a lesson hang on: the table's pointer."""
    aim = Aim("transact tables", Random(seed).choice(AIMED), 0.2, 3)
    scene = suited(scene, MERGES)
    return replace(scene, faults=replace(scene.faults, aims=(*scene.faults.aims, aim)))


class SimulatedRegistry:
    """Implements `SchemaSource`. Schemas come in any order, and stay."""

    def __init__(self, history: "History") -> None:
        self._history = history
        self.registered: list[int] = []

    async def by_id(self, schema_id: int, subject: str) -> ValueSchema | None:
        return await self._asked("id", lambda: schema_of(schema_id) if schema_id in self.registered else None)

    async def latest(self, subject: str) -> ValueSchema | None:
        return await self._asked("latest", lambda: schema_of(self.registered[-1]) if self.registered else None)

    async def versions(self, subject: str) -> tuple[SubjectVersion, ...]:
        return await self._asked(
            "versions", lambda: tuple(SubjectVersion(*each) for each in enumerate(self.registered, 1))
        )

    async def _asked(self, what: str, answer: Callable[[], Any]) -> Any:
        try:
            return await self._history.world.operation(f"get schema {what}", answer, place="registry")
        except Unavailable as error:
            raise RegistryUnavailable(str(error)) from error


class Typing:
    """Whoever registers schemas, an operator who replays, and what must be true in the end."""

    def __init__(self, history: "History") -> None:
        self._history = history
        self.registry = SimulatedRegistry(history)

    async def live(self) -> None:
        await asyncio.gather(self._register(), self._replay_now_and_then())

    async def _register(self) -> None:
        world = self._history.world
        waiting = [schema_id for schema_id in IDS if schema_id != _NEVER]
        world.random.shuffle(waiting)
        for schema_id in waiting:
            world.trace(f"schema {schema_id} is registered")
            self.registry.registered.append(schema_id)
            await asyncio.sleep(world.random.uniform(0.0, 1.2))

    async def _replay_now_and_then(self) -> None:
        world = self._history.world
        while not world.is_calm:
            await asyncio.sleep(world.random.uniform(0.0, 0.8))
            process = world.process("operator")
            # Waited for, not awaited: a crash cancels the work, the end of the history this actor.
            await asyncio.wait([process.start(self._replay(process))])
        await world.settled.wait()

    async def _replay(self, process: Process) -> Replayed | None:
        """None: it did not come to its end."""
        history, world = self._history, self._history.world
        topic: Topic | None = history.topic
        if topic is None:
            return None
        runtime = process.runtime()
        try:
            lake = history.lake(runtime, history.scene.pipeline)
            done = await replay(lake, topic, rewriter=_Rewriter(history.objects))  # type: ignore[arg-type]
        except (RetryableError, UnknownStream, ObjectMissing) as error:
            world.trace(f"operator's replay stops short: {error}")
            return None
        world.trace(f"operator's replay fills {done.filled} rows and leaves {done.left}")
        return done

    async def finish(self) -> None:
        """All that will ever be registered is, and a last replay comes to its end: every row whose schema is known has
        its columns."""
        history = self._history
        self.registry.registered += [each for each in IDS if each not in (*self.registry.registered, _NEVER)]
        while await self._replay(history.world.process("operator")) is None:
            await history.world.sleep(0.2)
        assert history.topic is not None
        view = await SimulatedTables(history.store, history.tables).load(history.topic.topic_id)
        left = [row for row in history.watcher.stored_rows(view) if is_raw(row.value)]
        for row in left:
            if not is_damaged(row.value) and schema_id_of(row.value) != _NEVER:
                history.auditor.fail(
                    f"I5: {row.value!r} at {row.partition}/{row.offset} has no columns, and its schema is known to all"
                )


class _Rewriter(SimulatedRewriter):
    """Hands on rows as they are kept."""

    async def read(
        self, file: DataFile, deleted: Deleted, columns: Sequence[str], take: Callable[[Any], None], shape: Any = None
    ) -> None:
        take(await read_rows(self._objects, file))


@dataclass
class _Scout:
    """Stands for `Scout`."""

    find: Callable[[Binary], frozenset[int]]
    find_keys: Any = None
    row_count: int = 0
    unknown: frozenset[int] = frozenset()
    unknown_keys: frozenset[int] = frozenset()

    def take(self, rows: Sequence[Row]) -> None:
        left = [row for row in rows if is_raw(row.value)]
        self.row_count += len(left)
        # As values that begin with their id.
        framed = [b"\0" + schema_id_of(row.value).to_bytes(4, "big") for row in left]
        self.unknown |= self.find(binary(framed))


@dataclass
class _Filler:
    """Stands for `Filler`."""

    shape: TableShape
    keys: bool = False
    filled: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def fill(self, rows: Sequence[Row]) -> list[Row]:
        made = [filled(row, self.shape) for row in rows]
        self.filled += sum(one != other for one, other in zip(rows, made, strict=True))
        self.reasons["it does not decode"] += sum(is_raw(row.value) for row in made)
        return made
