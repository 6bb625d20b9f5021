"""Those who change tables and topics from outside: another engine, and the owner of the topics."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from support.tables.simulated import SimulatedTables

from lakestream.errors import LakestreamError, RetryableError, StreamExists, UnknownStream
from lakestream.metadata.topics.list import Topic
from lakestream.model import DataFile, StreamPartition, WrittenFile
from lakestream.stream.engine import StreamEngine
from lakestream.table.view import View
from simulator.batches import Row
from simulator.tables import encode_rows, read_rows, written
from simulator.world import Process

if TYPE_CHECKING:
    from simulator.history import History

T = TypeVar("T")

TOPIC = "orders"
_RETRY_S = 0.1


class EngineActor:
    """Another engine on the same tables: rewrites files, deletes rows, rolls back, expires what nothing names any
    more. Like every engine it works on one view and commits only if the table is still that."""

    def __init__(self, history: "History") -> None:
        self._history = history
        self._seen: list[View] = []

    async def live(self) -> None:
        world = self._history.world
        process = world.process("engine")
        while True:
            await asyncio.sleep(world.random.uniform(0.05, self._history.scene.engine_rest_most_s))
            acting = process.start(self._act(process))
            # Waited for, not awaited: a crash cancels the act, the end of the history this actor.
            await asyncio.wait([acting])
            if not acting.cancelled():
                with suppress(LakestreamError):
                    acting.result()
            if not process.alive:
                process = world.process("engine")

    async def _act(self, process: Process) -> None:
        history, world = self._history, self._history.world
        topic = history.topic
        if topic is None:
            return
        view = await SimulatedTables(history.store, history.tables).load(topic.topic_id)
        if not view.files:
            return
        older = [seen for seen in self._seen if seen.topic_id == view.topic_id and seen.frontier != view.frontier]
        self._seen = [*older, view]
        if older and world.chance(history.scene.roll_back):
            await self._roll_back(process, view, older[-1])
            return
        files = list(view.files)
        world.random.shuffle(files)
        chosen = files[: world.random.randint(1, 3)]
        found = await self._rows(chosen)
        if found and world.chance(history.scene.delete_rows):
            row = world.random.choice(found)
            world.trace(f"engine deletes row {row.partition}/{row.offset}")
            self._deleted(view, [row])
            found.remove(row)
        world.trace(f"engine rewrites {len(chosen)} of {len(files)} files")
        world.random.shuffle(found)
        await self._replace(process, view, chosen, found)

    async def _roll_back(self, process: Process, view: View, older: View) -> None:
        """The rows of an older snapshot stand again, under the frontier of today: a stream's rows below it that are not
        among them count as deleted."""
        found = await self._rows(older.files)
        kept = {(row.partition, row.offset) for row in found}
        lost = [row for row in await self._rows(view.files) if (row.partition, row.offset) not in kept]
        self._history.world.trace(f"engine rolls the table back to {older.frontier}")
        self._deleted(view, lost)
        await self._replace(process, view, view.files, found, older=older)

    async def _replace(
        self,
        process: Process,
        view: View,
        remove: Sequence[DataFile],
        found: Sequence[Row],
        older: View | None = None,
    ) -> None:
        history, world = self._history, self._history.world
        prefix = history.objects.url + "/"
        add: list[WrittenFile] = []
        if found:
            path = f"{view.location}/data/engine-{process.runtime().new_id().hex}.parquet"
            data = encode_rows(found)
            await history.objects.put(path.removeprefix(prefix), [data])
            add = [written(path, found, len(data))]
        frontier = view.frontier if older is None else frontier_of_rollback(view, older)
        tables = SimulatedTables(history.store, history.tables)
        await tables.commit(view, add=add, remove=remove, frontier=frontier, outside=True)
        # Expiring: files that only old snapshots name may be deleted at once.
        if world.chance(0.5):
            world.trace(f"engine expires {len(remove)} files")
            await history.objects.delete([file.path.removeprefix(prefix) for file in remove])

    async def _rows(self, files: Sequence[DataFile]) -> list[Row]:
        return [row for file in files for row in await read_rows(self._history.objects, file)]

    def _deleted(self, view: View, lost: Sequence[Row]) -> None:
        for row in lost:
            partition = StreamPartition(view.topic_id, row.partition)
            self._history.auditor.deleted.setdefault(partition, {})[row.offset] = None


def frontier_of_rollback(view: View, older: View) -> tuple[int, ...]:
    """The frontier belongs to the table, not to its snapshots."""
    return view.frontier


class OwnerActor:
    """Deletes the topic and creates it again under the same name."""

    def __init__(self, history: "History", times: int) -> None:
        self._history = history
        self._times = times

    async def live(self) -> None:
        world = self._history.world
        for _ in range(self._times):
            await asyncio.sleep(world.random.uniform(0.05, 0.8))
            await self.delete()
            await self.create()

    async def delete(self) -> None:
        history = self._history
        topic = history.topic
        while topic is not None:
            try:
                history.auditor.gone[topic.topic_id] = None
                history.world.trace(f"owner deletes {topic.topic_id.hex[:4]}")
                await history.broker().call(lambda streams: streams.delete_topic(topic.topic_id))
            except UnknownStream:
                pass
            except RetryableError:
                await asyncio.sleep(_RETRY_S)
                continue
            history.topic = None
            return

    async def create(self) -> None:
        history = self._history
        while history.topic is None:
            try:
                history.topic = await history.broker().call(self._create)
            except StreamExists:
                history.topic = (await _retry(history, _find)).get(TOPIC)
            except RetryableError:
                await asyncio.sleep(_RETRY_S)
        history.membership.topics.append(history.topic.topic_id)
        history.world.trace(f"owner has {history.topic.topic_id.hex[:4]}")

    async def _create(self, streams: StreamEngine) -> Topic:
        return await streams.create_topic(TOPIC, self._history.partition_count, self._history.settings)


async def _find(streams: StreamEngine) -> dict[str, Topic]:
    return await streams.topics.by_names([TOPIC])


async def _retry(history: "History", work: Callable[[StreamEngine], Awaitable[T]]) -> T:
    while True:
        try:
            return await history.broker().call(work)
        except RetryableError:
            await asyncio.sleep(_RETRY_S)
