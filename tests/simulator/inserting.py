"""INSERTs of another engine: its rows have no offsets, and doors make records of them.

The real code of doors, on the simulated store, bucket and tables; only the rows are kept as the simulation keeps rows.
An engine is sure of a statement once any door has said that it is done; until then it sends the same commit again, to
either door or to both. What it is told, and what enters the log, the auditor compares.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Final
from unittest.mock import patch
from uuid import UUID

import msgspec
import numpy as np
from support.tables.simulated import SimulatedTables

from lakestream.catalog.engines.unplaced import Unplaced
from lakestream.errors import LakestreamError, ObjectMissing, RetryableError, TableRefused
from lakestream.frontier.moving.evolving import latest_schema
from lakestream.frontier.moving.fresh import Freshener
from lakestream.frontier.settings import FreshSettings
from lakestream.metadata.inserts import Inserts
from lakestream.metadata.topics.list import Topics
from lakestream.model import StreamPartition
from lakestream.records import Binary, Columns
from lakestream.stream.inserting import appending, batching, inserter
from lakestream.stream.inserting.inserter import OPTION, Around, Inserter
from lakestream.table.parquet.unplaced import NOT_GIVEN, UnplacedFile, UnplacedReader, UnplacedRows, WrittenBy
from simulator.actors import Disconnected, answered
from simulator.backends import SimulatedObjects
from simulator.faults import AIMED, Aim
from simulator.scene import Scene
from simulator.world import Process, run_now

if TYPE_CHECKING:
    from simulator.history import History

INSERTS: Final = (15, 13)
"""In every so many histories, those with this remainder, an engine inserts rows. Not drawn: what all others play stays
the same."""
SETTINGS: Final = {OPTION: "true"}
_DOORS: Final = 2
_QUICK: Final = 5
"""So many statements come fast, the others now and then: until the faults stop."""
_DAY_MS: Final = 86_400_000
_PASS_MS: Final = 400
_AIMS: Final = ("transact inserts", "get inserts", "get tables", "transact log", "put wal")
_ROWS = msgspec.msgpack.Decoder(list[tuple[int, bytes]])


@contextmanager
def small_inserts() -> Iterator[None]:
    """An insert makes several objects, and what a door left is gone on with within the time that a history takes."""
    with (
        patch.object(batching, "OBJECT_BYTES", 150),
        patch.object(inserter, "GIVE_UP_MS", 3_000),
        patch.object(inserter, "_TAKE_OVER_MS", 600),
        patch.object(inserter, "_RESUME_MS", 300),
        patch.object(appending, "_RETRY_MOST_MS", 200),
    ):
        yield


def with_inserts(scene: Scene, seed: int) -> Scene:
    """Promises hang on the rows of inserts: faults are aimed at their steps, too. Their batches are counted from 0, and
    rows of producers outlive the generations of the objects that a sleeping door may still append from."""
    random = Random(seed)
    aims = [Aim(operation, random.choice(AIMED), 0.3, random.choice((0, 1, 3))) for operation in _AIMS]
    faults = replace(scene.faults, aims=(*scene.faults.aims, *(aim for aim in aims if aim.hits_most)))
    pipeline = msgspec.structs.replace(scene.pipeline, producer_expiration_ms=_DAY_MS)
    lasts_s = max(scene.lasts_s, 2.0)
    return replace(scene, faults=faults, forgetful=False, first_sequence=0, pipeline=pipeline, lasts_s=lasts_s)


@dataclass(frozen=True, slots=True)
class Statement:
    """`values`: by partition, in their order."""

    name: str
    commit: Unplaced
    values: dict[StreamPartition, list[bytes]]


class Inserting:
    """Two doors and an engine that inserts through them."""

    def __init__(self, history: "History") -> None:
        self._history = history
        self.doors = [DoorActor(history, number + 1) for number in range(_DOORS)]
        self.engine = InsertingEngineActor(history, self.doors)

    def is_done(self) -> bool:
        """No insert is under way any more."""
        return not run_now(Inserts(self._history.store.core).live())


class DoorActor:
    """Takes commits, and goes on with what other doors left; crashes, sleeps and comes back."""

    def __init__(self, history: "History", number: int) -> None:
        self._history = history
        self._name = f"insert door {number}"
        self._process: Process | None = None
        self._inserter: Inserter | None = None

    async def live(self) -> None:
        world = self._history.world
        while True:
            process = self._process = world.process(self._name)
            crashed = asyncio.Event()
            process.on_crash = crashed.set
            process.start(self._serve(process))
            await crashed.wait()
            self._inserter = None
            await asyncio.sleep(world.random.uniform(0.01, 1.5))

    async def send(self, commit: Unplaced) -> None:
        """As the catalog does it, until the engine has no patience any more."""
        process, taking = self._process, self._inserter
        if process is None or taking is None or not process.alive:
            await asyncio.sleep(0.05)
            raise Disconnected(f"{self._name} is down")

        async def take() -> None:
            if not await taking.is_taken(commit.topic_id, commit.snapshot_id):
                await taking.take(commit)

        await answered(process, take(), within_s=self._history.scene.patience_s)

    async def _serve(self, process: Process) -> None:
        history, runtime = self._history, process.runtime()
        settings = FreshSettings(
            wait_ms=history.world.random.choice((50, 2_000)),
            max_bytes=1 << 20,
            backoff_ms=50,
            max_backoff_ms=200,
        )
        lake, topics = history.lake(runtime, settings.pipeline()), Topics(history.store, runtime)
        self._inserter = Inserter(
            history.store,
            history.objects,
            topics,
            SimulatedReader(history.objects),
            runtime,
            Around(
                Freshener(lake, topics, settings).cut,
                lake.catalog.named,
                partial(latest_schema, lake),
                max_batch_bytes=1 << 20,
            ),
        )
        await self._inserter.run(_PASS_MS)


class InsertingEngineActor:
    """Writes the files of a statement, then sends its commit until it is told how that ended, or gives up."""

    def __init__(self, history: "History", doors: Sequence[DoorActor]) -> None:
        self._history = history
        self._doors = doors

    async def live(self) -> None:
        history, random = self._history, self._history.world.random
        for number in count():
            await asyncio.sleep(random.uniform(0.0, 0.4 if number < _QUICK else 2.0))
            topic = history.topic
            if topic is None:
                continue
            try:
                statement = await self._write(f"s{number}", topic.topic_id, topic.partitions)
            except LakestreamError:
                continue
            for _ in range(history.scene.sends_most):
                asked = random.sample(self._doors, random.choice((1, 1, 2)))
                if any(await asyncio.gather(*(self._ask(door, statement) for door in asked))):
                    break

    async def _write(self, name: str, topic_id: UUID, partitions: int) -> Statement:
        """Some rows say their partition; the others take turns, from where the commit's number says."""
        history, random = self._history, self._history.world.random
        view = await SimulatedTables(history.store, history.tables).load(topic_id)
        snapshot_id = random.getrandbits(62)
        turns = count(snapshot_id)
        values: dict[StreamPartition, list[bytes]] = {}
        numbers = count()
        files = []
        for file in range(random.choice((1, 2))):
            rows: list[tuple[int, bytes]] = []
            for _ in range(random.randint(1, 4)):
                given = random.choice((NOT_GIVEN, *range(partitions)))
                index = next(turns) % partitions if given == NOT_GIVEN else given
                value = f"{name}.{index}.{next(numbers)}.0".encode()
                values.setdefault(StreamPartition(topic_id, index), []).append(value)
                rows.append((given, value))
            path = f"{view.location}/_data/engine-{snapshot_id}-{file}.parquet"
            await history.objects.put(path.removeprefix(history.objects.url + "/"), [msgspec.msgpack.encode(rows)])
            files.append(UnplacedFile(path, len(rows)))
        for partition, mine in values.items():
            history.auditor.inserting(partition, mine)
        history.world.trace(f"engine inserts {name}: {sum(map(len, values.values()))} rows")
        commit = Unplaced(topic_id, snapshot_id, tuple(files), tuple(file.path for file in files))
        return Statement(name, commit, values)

    async def _ask(self, door: DoorActor, statement: Statement) -> bool:
        """Whether the engine knows how its statement ended."""
        history = self._history
        try:
            await door.send(statement.commit)
        except RetryableError:
            return False
        except TableRefused as error:
            if statement.commit.topic_id not in history.auditor.gone:
                history.auditor.fail(f"I4: INSERT {statement.name} is refused, and nothing is wrong with it: {error}")
            return True
        history.world.trace(f"engine is told that {statement.name} is done")
        for partition, values in statement.values.items():
            history.auditor.inserted(partition, history.watcher.offsets_of(partition, values), values)
        return True


class SimulatedReader(UnplacedReader):
    """Reads files as the engine of the simulation writes them."""

    def __init__(self, objects: SimulatedObjects) -> None:
        super().__init__(objects)
        self._objects = objects

    async def read(
        self, files: Sequence[UnplacedFile], written: WrittenBy, *, partitions: int, now_ms: int, max_bytes: int
    ) -> list[UnplacedRows]:
        return [await self._file(file.path, now_ms) for file in files]

    async def _file(self, path: str, now_ms: int) -> UnplacedRows:
        try:
            data = await self._objects.get(path.removeprefix(self._objects.url + "/"))
        except ObjectMissing as error:
            raise TableRefused(f"the commit names a file that is not there: {error}") from error
        found = _ROWS.decode(data)
        return UnplacedRows(
            _columns([value for _, value in found], now_ms), np.array([given for given, _ in found], np.int32)
        )


def _columns(values: Sequence[bytes], now_ms: int) -> Columns:
    rows = len(values)
    ends = np.cumsum([0, *map(len, values)]).astype(np.int32)
    none = Binary(np.zeros(1, np.int32), np.zeros(0, np.uint8), np.zeros(0, np.uint8))
    return Columns(
        partition=np.zeros(rows, np.int32),
        offset=np.arange(rows, dtype=np.int64),
        timestamp_ms=np.full(rows, now_ms, np.int64),
        timestamp_type=np.zeros(rows, np.int32),
        crc=np.zeros(rows, np.int32),
        key=_nulls(rows),
        value=Binary(ends, np.frombuffer(b"".join(values), np.uint8), np.ones(rows, np.uint8)),
        header_offsets=np.zeros(rows + 1, np.int32),
        header_key=none,
        header_value=none,
        headers_raw=_nulls(rows),
    )


def _nulls(rows: int) -> Binary:
    return Binary(np.zeros(rows + 1, np.int32), np.zeros(0, np.uint8), np.zeros(rows, np.uint8))
