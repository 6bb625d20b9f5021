"""A broker's care for the disk stores: which of them may be written, and that lost ones come back.

Every broker tells the others which stores it can read, by the labels that it finds there. A store is used only while
every broker that lives reads it: what one of them cannot read is refused, as are folders of one machine in a cluster of
several. One broker at a time, by a lease that only saves work, copies lost stores again and spills what stays too long.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final

from lakestream.errors import LakestreamError, RequestError, RetryableError, Unavailable
from lakestream.frontier.copying.restoring import restore_disk
from lakestream.frontier.copying.spilling import Spiller
from lakestream.frontier.settings import DiskSettings
from lakestream.metadata.brokers import Broker, Brokers
from lakestream.metadata.disks import SeenDisks, forget_seen, name_disks, seen_disks, tell_seen
from lakestream.metadata.store import Address, Store
from lakestream.metadata.topics.list import Topics
from lakestream.runtime import Runtime
from lakestream.wal import DiskStore, WalStores

log = logging.getLogger(__name__)

_KEEPER: Final = Address("worker/disks", "keeper")
_START_LOOKS: Final = 4
"""A store that another broker reads and this one does not may just have been lost: then nobody reads it soon."""


class DiskKeeper:
    def __init__(
        self,
        broker: Broker,
        store: Store,
        wal: WalStores,
        topics: Topics,
        brokers: Brokers,
        runtime: Runtime,
        settings: DiskSettings,
    ) -> None:
        self._broker = broker
        self._store = store
        self._wal = wal
        self._brokers = brokers
        self._urls = settings.urls
        self._runtime = runtime
        self._settings = settings
        self._names: tuple[str, ...] = ()
        self._told: SeenDisks | None = None
        self._others: dict[Broker, SeenDisks | None] = {}
        self._differing: frozenset[int] = frozenset()
        self._spiller = Spiller(store, wal, topics, runtime.clock, settings.spill_after_ms)

    def configured(self) -> list[DiskStore]:
        return [self._wal.disks[name] for name in self._names if name in self._wal.disks]

    async def start(self) -> None:
        """Before the broker is registered: whoever lives has told what it sees. Raises `RequestError` for a store that
        others read and this broker does not."""
        self._names = tuple(await name_disks(self._store, self._urls)) if self._urls else ()
        for attempt in range(_START_LOOKS):
            found = await self._find()
            missed = self._missed(found)
            if not missed:
                break
            if attempt + 1 == _START_LOOKS:
                raise RequestError(
                    f"{missed}: disk stores must be such that every broker reaches them, as network volumes or S3"
                    " servers are; folders of a machine only serve brokers of that machine"
                )
            await asyncio.sleep(self._settings.check_ms / 1000)
        await self._tell(found)
        if any(not disk.label for disk in self.configured()):
            await self._restore(found)
        await self.look()

    async def stop(self) -> None:
        await forget_seen(self._store, [self._broker.session])

    async def run(self) -> None:
        """For ever; what goes wrong is tried again. Copying a store takes its time, looking goes on meanwhile."""
        await asyncio.gather(
            self._repeat(self.look, self._settings.check_ms), self._repeat(self._keep, self._settings.keep_interval_ms)
        )

    async def _repeat(self, work: Callable[[], Awaitable[object]], interval_ms: int) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            try:
                await work()
            except RetryableError as error:
                log.warning("disk stores could not be looked after this time: %s", error)
            except LakestreamError as error:
                log.error("disk stores could not be looked after this time: %s", error)

    async def look(self) -> Mapping[str, str | None]:
        """Sets which stores may be written; the label that was found in each (None: no answer)."""
        found = await self._find()
        if self._wal.disks:
            await self._tell(found)
        for name, disk in self._wal.disks.items():
            trouble = self._trouble(disk, found[name])
            if trouble != disk.trouble and name in self._names:
                level = logging.ERROR if trouble else logging.INFO
                log.log(level, "disk store %s: %s", disk.objects.url, trouble or "it is whole and read by every broker")
            disk.trouble, disk.usable = trouble, not trouble
        return found

    async def _find(self) -> dict[str, str | None]:
        await self._wal.refresh()
        names = list(self._wal.disks)
        if not names:
            return {}
        labels = await asyncio.gather(*(_label(self._wal.disks[name]) for name in names))
        seen = {each.session: each for each in await seen_disks(self._store)}
        # What was told last may be overtaken by what was told before and came late.
        self._told = seen.get(self._broker.session)
        living = [each for each in await self._brokers.live() if each.session != self._broker.session]
        self._others = {each: seen.get(each.session) for each in living}
        self._compare_lists()
        return dict(zip(names, labels, strict=True))

    async def _tell(self, found: Mapping[str, str | None]) -> None:
        told = SeenDisks(self._broker.session, self._names, {name: label or "" for name, label in found.items()})
        if told != self._told:
            await tell_seen(self._store, told)
            self._told = told

    def _compare_lists(self) -> None:
        differing = frozenset(
            broker.broker_id
            for broker, seen in self._others.items()
            if self._names and seen is not None and set(seen.configured) != set(self._names)
        )
        if differing - self._differing:
            log.error(
                "brokers %s are configured with other disk stores than this one: give all of them one list",
                ", ".join(map(str, sorted(differing))),
            )
        self._differing = differing

    def _missed(self, found: Mapping[str, str | None]) -> str:
        """What others read and this broker certainly does not. Empty: nothing."""
        for name, disk in self._wal.disks.items():
            readers = self._readers(disk)
            if disk.label and found[name] is not None and found[name] != disk.label and readers:
                return f"disk store {disk.objects.url} is whole for broker {readers[0].broker_id} and not for this one"
        return ""

    def _readers(self, disk: DiskStore) -> list[Broker]:
        return [
            broker
            for broker, seen in self._others.items()
            if seen is not None and seen.labels.get(disk.name) == disk.label
        ]

    def _trouble(self, disk: DiskStore, label: str | None) -> str:
        if label is None:
            return "it does not answer"
        if not disk.label or label != disk.label:
            return "it lost what it had, and is to be copied again" if disk.label else "it was never used"
        if blind := [broker for broker in self._others if broker not in self._readers(disk)]:
            return f"broker {blind[0].broker_id} at {blind[0].host}:{blind[0].port} cannot read it"
        return ""

    async def _keep(self) -> None:
        if not self._wal.disks or not await self._is_keeper():
            return
        renewing = asyncio.create_task(self._renew())
        try:
            gone = {each.session for each in await seen_disks(self._store)}
            gone -= {self._broker.session, *(broker.session for broker in await self._brokers.live())}
            await forget_seen(self._store, gone)
            if await self._restore(await self._find()):
                await self.look()
            await self._spiller.spill()
        finally:
            renewing.cancel()

    async def _is_keeper(self) -> bool:
        ttl_ms = 4 * self._settings.keep_interval_ms
        lease = await self._store.acquire_lease(_KEEPER, self._broker.session, ttl_ms=ttl_ms)
        return lease.holder == self._broker.session

    async def _renew(self) -> None:
        """Two keepers at once would undo each other's work."""
        while True:
            await asyncio.sleep(self._settings.keep_interval_ms / 1000)
            with suppress(LakestreamError):
                await self._is_keeper()

    async def _restore(self, found: Mapping[str, str | None]) -> bool:
        """Stores that are whole for nobody. Whether any is whole now that was not."""
        done = False
        for name, disk in list(self._wal.disks.items()):
            if found.get(name) is None or (disk.label and found[name] == disk.label):
                continue
            if disk.label and self._readers(disk):
                log.error("%s", self._missed(found))
                continue
            try:
                done |= await restore_disk(self._store, self._wal, disk, self._runtime)
            except RetryableError as error:
                log.warning("disk store %s could not be copied again this time: %s", disk.objects.url, error)
        return done


async def _label(disk: DiskStore) -> str | None:
    try:
        return await disk.read_label()
    except Unavailable:
        return None
