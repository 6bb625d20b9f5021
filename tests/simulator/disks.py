"""Three disk stores, each with outages of its own: one of them is emptied now and then, and profiles change.

What is promised is the loss of one store: the next is emptied only when the last is whole again, as the metadata store
says. Then, too, every object that the log names must have a copy somewhere.
"""

import asyncio
from collections.abc import Sequence
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Final

from lakestream.errors import RetryableError
from lakestream.frontier.settings import DiskSettings
from lakestream.metadata.counters import known_cluster
from lakestream.metadata.disks import disk_rows
from lakestream.model import StreamPartition
from lakestream.objects import ObjectStore
from lakestream.stream import Appended
from lakestream.stream.engine import StreamEngine
from lakestream.wal import NamedDisk, WalStores
from lakestream.wal.disks import label_key
from simulator.backends import SimulatedObjects
from simulator.batches import batch
from simulator.world import run_now

if TYPE_CHECKING:
    from simulator.history import History

DISKS: Final = (13, 6)
"""In every so many histories, those with this remainder, there are disk stores. Not drawn: what all others play stays
the same."""
_COUNT: Final = 3
_REST_S: Final = (0.02, 0.4)
_HASTY: Final = 4
"""So often somebody hurries; then seldom."""
_REST_MOST_S: Final = 5.0


class SimulatedDisks:
    """`objects` by URL."""

    def __init__(self, history: "History") -> None:
        self._history = history
        random = Random(history.seed)
        self.objects = {
            f"disk{number}:": SimulatedObjects(history.world, place=f"disk {number}", url=f"disk{number}:")
            for number in range(1, _COUNT + 1)
        }
        self.settings = DiskSettings(
            stores=",".join(self.objects),
            flush_interval_ms=1,
            flush_loaded_ms=random.choice((1, 20)),
            flushes_in_flight=random.choice((1, 3)),
            check_ms=random.choice((150, 600)),
            keep_interval_ms=random.choice((200, 1_000)),
            spill_after_ms=random.choice((0, 300, 60_000)),
        )
        self.wants: dict[int, bool] = {}
        """Broker → whether it takes the topic for one with the disk profile: they hear of a change one by one."""

    def wal(self) -> WalStores:
        """What one process knows of the stores."""
        return WalStores(self._history.objects, load=self._load, open_store=self._open)

    async def _load(self) -> list[NamedDisk]:
        store = self._history.store
        rows = await disk_rows(store)
        cluster = await known_cluster(store) or ""
        return [NamedDisk(row.name, row.url, cluster, row.label) for row in rows]

    def _open(self, url: str) -> ObjectStore:
        return self.objects[url]

    def are_whole(self) -> bool:
        """All of them, as the metadata store says."""
        core = self._history.store.core
        cluster = run_now(known_cluster(core))
        rows = run_now(disk_rows(core))
        labels = {row.url: row.label for row in rows}
        return len(labels) == _COUNT and all(
            labels[url] and objects.objects.get(label_key(cluster or "")) == labels[url].encode()
            for url, objects in self.objects.items()
        )


class HastyActor:
    """Hands a broker several batches of a partition at once, for one profile and the other, without sequences: those
    that are acknowledged are in the log in this order."""

    def __init__(self, history: "History") -> None:
        self._history = history
        self._random = Random(history.seed + 1)

    async def live(self) -> None:
        history = self._history
        for number in count():
            await asyncio.sleep(self._random.uniform(*_REST_S) if number < _HASTY else _REST_MOST_S)
            partition = self._random.choice(history.partitions())
            values = [f"hasty.{partition.index}.{3 * number + index}.0".encode() for index in range(3)]
            profiles = [self._random.random() < 0.5 for _ in values]
            for value in values:
                history.auditor.sending(partition, [value], 1, ordered=False)

            async def send(
                streams: StreamEngine,
                partition: StreamPartition = partition,
                sent: Sequence[tuple[bytes, bool]] = tuple(zip(values, profiles, strict=True)),
            ) -> list[Appended | BaseException]:
                under_way = [streams.append(partition, batch([value]), disk=disk) for value, disk in sent]
                return await asyncio.gather(*under_way, return_exceptions=True)

            try:
                outcomes = await history.broker().call(send)
            except RetryableError:
                continue
            acked = [
                (each.base_offset, value)
                for each, value in zip(outcomes, values, strict=True)
                if isinstance(each, Appended)
            ]
            if acked != sorted(acked):
                history.auditor.fail(f"I2: {values[0]!r} and what follows it are in another order: {acked}")
            for base, value in acked:
                history.auditor.acknowledged(partition, base, [value])


class DiskActor:
    """Switches the profile, broker by broker, and empties a store while all are whole."""

    def __init__(self, history: "History", disks: SimulatedDisks) -> None:
        self._history = history
        self._disks = disks
        self._random = Random(history.seed)

    async def live(self) -> None:
        while True:
            await asyncio.sleep(self._random.uniform(*_REST_S))
            if self._random.random() < 0.6:
                number = self._random.randrange(self._history.scene.brokers) + 1
                self._disks.wants[number] = not self._disks.wants.get(number, True)
                profile = "disk" if self._disks.wants[number] else "diskless"
                self._history.world.trace(f"broker{number} hears that the profile is {profile}")
            elif self._disks.are_whole():
                self._lose(self._random.choice(list(self._disks.objects)))

    def _lose(self, url: str) -> None:
        history = self._history
        history.world.trace(f"{url} is emptied")
        if self._random.random() < 0.5:
            # What the others have is unavailable meanwhile, not missing.
            for other in (each for each in self._disks.objects if each != url):
                history.world.take_away(self._disks.objects[other].place, self._random.uniform(0.1, 2.0))
        self._disks.objects[url].objects.clear()
        for key in sorted(history.watcher.live_objects()):
            if key and history.watcher.object_data(key) is None:
                history.auditor.fail(f"I3: with {url} the only copy of {key} was lost, which the log names")
