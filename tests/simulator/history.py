"""One history: a seed chooses the cast and the faults, the actors live, the faults stop, everything is audited."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol
from unittest.mock import patch
from uuid import UUID

from support.tables.simulated import SimulatedTables, Snapshots

from lakestream.catalog.files import version_of
from lakestream.errors import LakestreamError, RetryableError
from lakestream.frontier.lake import Lake
from lakestream.frontier.moving.tiles.naming import DATA_FOLDER, parse_file_name
from lakestream.frontier.settings import PipelineSettings
from lakestream.frontier.upkeep.rewritten import parse_rewritten
from lakestream.metadata.counters import current_generation
from lakestream.metadata.log import commit
from lakestream.metadata.topics.list import Topic
from lakestream.model import StreamPartition
from lakestream.runtime import Runtime
from lakestream.schemas.source import NO_SCHEMAS
from lakestream.stream.engine import StreamEngine
from lakestream.wal import WAL_PREFIX, parse_key
from simulator.actors import BrokerActor, PipelineActor
from simulator.ambient import watched
from simulator.auditor import Auditor, Violation
from simulator.backends import SimulatedObjects, SimulatedStore
from simulator.batches import Row
from simulator.clients import ConsumerActor, ProducerActor, fetch, rows_of
from simulator.delta import SimulatedDelta
from simulator.disks import DISKS, DiskActor, HastyActor, SimulatedDisks
from simulator.freshener import DOORS, FreshenerActor
from simulator.groups import MemberActor, StrangerActor
from simulator.inserting import INSERTS, SETTINGS, Inserting, small_inserts, with_inserts
from simulator.isolation import CommittedReader, read_committed
from simulator.keeper import KeeperActor, small_folds
from simulator.ledger import Ledger
from simulator.loop import START_S, SimulatedLoop, Stuck
from simulator.losses import LOSSES, LossActor
from simulator.membership import Membership
from simulator.outsiders import EngineActor, OwnerActor
from simulator.oxia_store import ON_OXIA, SimulatedOxiaStore, hasty
from simulator.policies import MERGES, policy_of, suited
from simulator.scene import AS_DRAWN, Stage, draw_scene, with_group
from simulator.tables import SimulatedTiles
from simulator.transactions import PARTITIONS, TRANSACTIONS, TransactionalActor, wait_setting, with_transactions
from simulator.typed import SETTINGS as TYPED_SETTINGS
from simulator.typed import TYPED, Typing, simulated_replays, with_schemas
from simulator.watcher import Watcher
from simulator.world import CALM_S, World

_SETTLE_S = 600.0
_VIEW_CHECK_S = 5.0
"""No broker's view is older: see `scene`."""
_FAULTS_MOST_S = 30.0
_NOWHERE = StreamPartition(UUID(int=7), 0)


class Visitor(Protocol):
    """Who takes part until the faults stop."""

    async def live(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Report:
    seed: int
    trace: tuple[str, ...]
    violation: str | None
    acked: int
    virtual_s: float


def run(seed: int, stage: Stage = AS_DRAWN) -> Report:
    """The same seed gives the same report, to the byte."""
    loop = SimulatedLoop()
    history = History(seed, loop, stage)
    violation: str | None = None
    try:
        with watched(history.auditor.fail), history.first_sequence(), made_small():
            loop.run_until_complete(history.play())
    except Violation as error:
        violation = str(error)
    except (LakestreamError, Stuck) as error:
        violation = f"an actor did not expect {type(error).__name__}: {error}"
    finally:
        # Before the end: what tasks do when they are cancelled is no part of the history.
        trace, met, virtual_s = tuple(history.world.lines), history.auditor.violation, loop.now_s - START_S
        history.world.end()
        loop.close()
    if violation is None and met is not None:
        violation = str(met)
    acked = sum(map(len, history.auditor.acked.values()))
    return Report(seed, trace, violation, acked, virtual_s)


@contextmanager
def made_small() -> Iterator[None]:
    """What the simulation sets in real code so that a history is short, or has rows of its own."""
    with small_folds(), hasty(), small_inserts(), simulated_replays():
        yield


@dataclass
class History:
    seed: int
    loop: SimulatedLoop
    stage: Stage = AS_DRAWN
    topic: Topic | None = None
    tables: Snapshots = field(default_factory=Snapshots)

    def __post_init__(self) -> None:
        random = Random(self.seed)
        scene = with_group(self.stage.set(draw_scene(random, self.stage.theme)), self.seed)
        kept = policy_of(self.seed, scene)
        self.policy = kept or MERGES
        self.scene = scene if kept is None else suited(scene, kept)
        has_inserts = self.seed % INSERTS[0] == INSERTS[1]
        if has_inserts:
            self.scene = with_inserts(self.scene, self.seed)
        is_typed = self.seed % TYPED[0] == TYPED[1]
        if is_typed:
            self.scene = with_schemas(self.scene, self.seed)
        has_transactions = self.seed % TRANSACTIONS[0] == TRANSACTIONS[1] and not is_typed
        if has_transactions:
            self.scene = with_transactions(self.scene, self.seed)
        self.partition_count = PARTITIONS if has_transactions else 2
        self.settings = {
            **self.policy.settings,
            **(SETTINGS if has_inserts else {}),
            **(TYPED_SETTINGS if is_typed else {}),
            **(wait_setting(self.seed) if has_transactions else {}),
        }
        """The topic's."""
        self.world = World(self.loop, random, self.scene.faults)
        self.auditor = Auditor(self.world)
        self.is_on_oxia = self.seed >= ON_OXIA
        self.store = SimulatedOxiaStore(self.world, self.auditor) if self.is_on_oxia else SimulatedStore(self.world)
        self.objects = SimulatedObjects(
            self.world, stale_s=self.scene.stale_s, partial_deletes=self.scene.partial_deletes
        )
        has_disks = self.seed % DISKS[0] == DISKS[1] and not self.is_on_oxia
        self.disks = SimulatedDisks(self) if has_disks else None
        self.auditor.forgetful = self.scene.forgetful
        others = () if self.disks is None else self.disks.objects.values()
        self.watcher = Watcher(self.world, self.store, self.objects, self.tables, self.auditor, self.policy, others)
        self.delta = SimulatedDelta(self.world, self.tables, self.auditor)
        self._brokers = [BrokerActor(self, number + 1) for number in range(self.scene.brokers)]
        self._pipelines = [PipelineActor(self, number) for number in range(self.scene.pipelines)]
        self._owner = OwnerActor(self, self.scene.recreations)
        self.membership = Membership(self, min(self.scene.session_ms, self.scene.rebalance_ms) / 1000)
        self.watcher.membership = self.membership
        self._keepers = [KeeperActor(self, number) for number in range(2 if kept or is_typed else 0)]
        self._typing = Typing(self) if is_typed else None
        self._inserting = Inserting(self) if has_inserts else None
        self.ledger = Ledger(self) if has_transactions else None
        if self.ledger is not None:
            self.ledger.splits = self.tables.splits
        self.watcher.ledger = self.ledger
        self._background: list[asyncio.Task[Any]] = []

    def first_sequence(self) -> AbstractContextManager[object]:
        """Sequences of this history begin here instead of at 0: some wrap around soon."""
        return patch.object(commit, "FIRST_SEQUENCE", self.scene.first_sequence)

    def lake(self, runtime: Runtime, settings: PipelineSettings) -> Lake:
        """What a process moves records between."""
        catalog = SimulatedTables(self.store, self.tables)
        wal = None if self.disks is None else self.disks.wal()
        tiles = SimulatedTiles(self.objects, runtime, wal)
        schemas = NO_SCHEMAS if self._typing is None else self._typing.registry
        return Lake(self.store, catalog, self.objects, tiles, runtime, settings, wal, schemas=schemas)

    def every_store(self) -> list[SimulatedObjects]:
        return [self.objects, *([] if self.disks is None else self.disks.objects.values())]

    def partitions(self) -> list[StreamPartition]:
        """Of the topic as it is now. While there is none, the one place that never answers."""
        return self.topic.each_partition() if self.topic is not None else [_NOWHERE]

    def broker_numbered(self, number: int) -> BrokerActor:
        return self._brokers[number - 1]

    def broker(self) -> BrokerActor:
        return self.world.random.choice(self._brokers)

    async def play(self) -> None:
        scene, random = self.scene, self.world.random
        self.loop.call_later(_FAULTS_MOST_S, self.world.calm)
        doors = [] if self._inserting is None else self._inserting.doors
        for server in (*self._brokers, *self._pipelines, *doors):
            self._spawn(server.live())
        await self._owner.create()
        visitors: list[Visitor] = [
            *self._keepers,
            *(ConsumerActor(self, number) for number in range(scene.consumers)),
            *(MemberActor(self, number) for number in range(scene.members)),
            *([StrangerActor(self)] if scene.members else []),
            *([EngineActor(self)] if scene.engine else []),
            *([FreshenerActor(self)] if self.seed % DOORS[0] == DOORS[1] else []),
            *([] if self.disks is None else [DiskActor(self, self.disks), HastyActor(self)]),
            *([] if self._inserting is None else [self._inserting.engine]),
            *([] if self._typing is None else [self._typing]),
            *([LossActor(self)] if self.seed % LOSSES[0] == LOSSES[1] and self.ledger is None else []),
            *([] if self.ledger is None else [CommittedReader(self, number) for number in range(2)]),
        ]
        visiting = [self._spawn(visitor.live()) for visitor in visitors]
        producers = [
            ProducerActor(
                self,
                number,
                idempotent=random.random() < scene.idempotent,
                batches=random.randint(scene.batches_least, scene.batches_most),
            )
            for number in range(scene.producers)
        ]
        transactional = [] if self.ledger is None else [TransactionalActor(self, number) for number in range(2)]
        await self.all(
            *(each.live() for each in (*producers, *transactional, self._owner)), asyncio.sleep(scene.lasts_s)
        )
        await self._calm_down(visiting)
        await self._audit()

    async def _calm_down(self, visiting: Sequence["asyncio.Task[Any]"]) -> None:
        """No more faults and no more visitors. What is still on its way arrives, sleepers wake, the crashed return."""
        self.world.trace("the faults stop")
        self.world.calm()
        for task in visiting:
            self._background.remove(task)
            task.cancel()
        await self._pause(2 * CALM_S)
        self.world.settled.set()
        await self._until(
            lambda: all(map(self.watcher.caught_up, self.partitions())), "I7: the log does not reach the table"
        )
        await self._until(
            lambda: not any(keeper.is_at_work for keeper in self._keepers), "I7: a keeper does not come round"
        )
        await self._until(
            lambda: self._inserting is None or self._inserting.is_done(), "I7: an insert does not come to its end"
        )
        await self._until(
            lambda: self.ledger is None or self.ledger.is_settled(), "I9: a transaction's offsets are not the group's"
        )
        begun = {pipeline: pipeline.begun for pipeline in self._pipelines}
        await self._until(
            lambda: all(pipeline.finished > begun[pipeline] for pipeline in self._pipelines),
            "I7: a pipeline does not come round",
        )
        await self._until(
            lambda: not self.scene.forgetful or not any(map(self.watcher.producers, self.partitions())),
            "I7: rows of producers never expire",
        )
        await self._until(self._is_mirrored, "I7: the Delta log does not follow the table")
        if self._typing is not None:
            await self._unless_violated(self._typing.finish())

    def _is_mirrored(self) -> bool:
        assert self.topic is not None
        return not self.policy.mirrors or self.delta.shows(self.watcher.view(self.topic.topic_id))

    async def _until(self, holds: Callable[[], bool], trouble: str) -> None:
        deadline = self.loop.time() + _SETTLE_S
        while not holds():
            if self.loop.time() > deadline:
                self.auditor.fail(trouble)
            await self._pause(0.2)

    async def _audit(self) -> None:
        assert self.topic is not None
        # Whatever was deleted before now is gone for every reader: a broker's view is no older than its checks.
        table = self.watcher.view(self.topic.topic_id)
        rows = set(self.watcher.table_rows(table))
        await self._pause(_VIEW_CHECK_S)
        for broker in self._brokers:
            for partition in self.partitions():
                start = self.watcher.log_start(partition)
                found, end = await self._unless_violated(self._read_all(broker, partition, start))
                self.auditor.audit_stream(partition, start, found, end, f"broker {broker.number}")
                gone = [row for row in found if row.offset < table.frontier[partition.index] and row not in rows]
                if self.ledger is not None:
                    await self._unless_violated(read_committed(self, broker, partition, start, end))
                if gone:
                    self.auditor.fail(f"I5: broker {broker.number} serves {gone[0]}, which is no row any more")
        view = self.watcher.view(self.topic.topic_id)
        self.auditor.audit_table(self.topic.topic_id, self.watcher.table_rows(view), view)
        await self._audit_bucket()

    async def _audit_bucket(self) -> None:
        """I7: once the faults have stopped, every dead object goes away in the end."""
        deadline = self.loop.time() + _SETTLE_S
        while True:
            generation = await self._unless_violated(current_generation(self.store))
            live = self.watcher.live_objects()
            stale = [
                key
                for objects in self.every_store()
                for key in objects.objects
                if key.startswith(WAL_PREFIX) and parse_key(key).generation < generation - 8 and key not in live
            ]
            stale += [*self._orphans(), *self.watcher.logs_beside(self.partitions())]
            if not stale:
                return
            if self.loop.time() > deadline:
                self.auditor.fail(f"I7: dead objects stay for ever: {stale}")
            await self._pause(2.0)

    def _orphans(self) -> list[str]:
        """Files of the table that no worker can commit any more."""
        assert self.topic is not None
        view, prefix = self.watcher.view(self.topic.topic_id), self.objects.url + "/"
        live = {file.path for file in view.files}
        found = [key for key in self.objects.objects if f"{prefix}{key}".startswith(f"{view.location}/{DATA_FOLDER}")]
        names = {key: key.rsplit("/", 1)[-1] for key in found if prefix + key not in live}
        bounds = {key: parse_file_name(name) for key, name in names.items()}
        rewritten = {key: parse_rewritten(name) for key, name in names.items()}
        version = version_of(view.metadata_location)
        return [
            *(key for key, at in bounds.items() if at is not None and at.last < view.frontier[at.partition]),
            *(key for key, at in rewritten.items() if at is not None and at.last_version < version),
        ]

    async def _read_all(self, broker: BrokerActor, partition: StreamPartition, start: int) -> tuple[list[Row], int]:
        found: list[Row] = []
        position = start
        while True:
            at = position

            async def step(streams: StreamEngine, at: int = at) -> Any:
                return await fetch(streams, partition, at, 0)

            try:
                fetched = await broker.call(step)
            except RetryableError:
                continue
            if isinstance(fetched.error, RetryableError):
                continue
            if fetched.error is not None:
                self.auditor.fail(f"I3: broker {broker.number} at {partition.index}/{position}: {fetched.error}")
            more, end = rows_of(fetched, position)
            found += more
            if position == fetched.high_watermark:
                return found, position
            if end <= position:
                self.auditor.fail(f"I4: a fetch at {partition.index}/{position} below the end did not advance")
            position = end

    async def _pause(self, delay_s: float) -> None:
        """Time passes; what an actor met in the background ends the history."""
        await self.world.sleep(delay_s)
        for task in [task for task in self._background if task.done()]:
            self._background.remove(task)
            task.result()
        if self.auditor.violation is not None:
            raise self.auditor.violation

    async def _unless_violated(self, work: Coroutine[Any, Any, Any]) -> Any:
        """A violation that an actor met in the background ends the history."""
        [result] = await self.all(work)
        return result

    async def all(self, *works: Coroutine[Any, Any, Any]) -> list[Any]:
        tasks = [self.loop.create_task(work) for work in works]
        waiting = set(tasks)
        while waiting:
            done, _ = await asyncio.wait({*waiting, *self._background}, return_when=asyncio.FIRST_COMPLETED)
            for task in [task for task in (*tasks, *self._background) if task in done]:
                if task in self._background:
                    self._background.remove(task)
                task.result()
            waiting -= done
            if self.auditor.violation is not None:
                raise self.auditor.violation
        return [task.result() for task in tasks]

    def _spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = self.loop.create_task(work)
        self._background.append(task)
        return task
