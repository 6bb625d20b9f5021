"""Derived tables brought on beside the ticks, which never wait for them: cut off at any point it leaves nothing half
done."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final
from uuid import UUID

from lakestream.errors import LakestreamError
from lakestream.frontier.derived.collecting import DerivedOrphans
from lakestream.frontier.derived.deriving import Derived, Deriver
from lakestream.frontier.lake import Lake
from lakestream.metadata.topics.list import Topics

_log = logging.getLogger(__name__)

_ORPHANS_EVERY: Final = 5
"""Passes between two looks for dead files."""


class Deriving:
    def __init__(
        self, lake: Lake, name: str, on_derived: Callable[[Derived], None], *, respect_leases: bool = True
    ) -> None:
        self._lake = lake
        self._topics = Topics(lake.store, lake.runtime)
        self._on_derived = on_derived
        self._told: dict[str, str] = {}
        """By topic, the failure that was logged last."""
        self._deriver: Deriver | None = None
        self._orphans: DerivedOrphans | None = None
        if lake.derived is not None:
            self._deriver = Deriver(lake, self._topics, lake.derived, name=name, respect_leases=respect_leases)
            self._orphans = DerivedOrphans(lake, lake.derived)

    def moved(self, topic_ids: Iterable[UUID]) -> None:
        """Their tables have new rows."""
        if self._deriver is not None:
            self._deriver.moved(topic_ids)

    async def run(self) -> None:
        """Until it is cancelled."""
        passes = 0
        while True:
            more = await self._pass()
            passes += 1
            if passes % _ORPHANS_EVERY == 0:
                await self._tidy()
            await asyncio.sleep(0 if more else self._lake.settings.derive_interval_ms / 1000)

    async def finish(self) -> None:
        """Until nothing is left to do, or nothing can be done."""
        while await self._pass():
            pass

    async def _pass(self) -> bool:
        """Whether something was left behind that the next pass can do."""
        try:
            done = await (self._refuse() if self._deriver is None else self._deriver.run())
        except LakestreamError as error:
            _log.warning("derived tables could not be brought on this time: %s", error)
            return False
        self._on_derived(done)
        for name in done.put_away:
            _log.info("no topic asks for it any more: what was derived is the table %s from now on", name)
        failed = {topic: str(error) for topic, error in done.failures}
        for topic, failure in failed.items():
            if self._told.get(topic) != failure:
                _log.warning("topic %s: what is derived from its table waits: %s", topic, failure)
        if self._deriver is not None:
            self._told = failed
        for each in done.done:
            if each.commits:
                _log.info("topic %s: %d records are in %s", each.topic, each.records, each.kind)
        return done.more and any(each.records or each.commits for each in done.done)

    async def _refuse(self) -> Derived:
        for topic in await self._topics.list():
            if topic.options.upsert and topic.name not in self._told:
                self._told[topic.name] = ""
                _log.warning(
                    "topic %s asks for a table of latest rows, which only the catalog of Lakestream itself keeps: its"
                    " setting lakestream.table.upsert has no effect with an external catalog",
                    topic.name,
                )
        return Derived()

    async def _tidy(self) -> None:
        if self._orphans is None:
            return
        try:
            swept = await self._orphans.collect()
        except LakestreamError as error:
            _log.warning("orphaned files of derived tables could not be collected this time: %s", error)
            return
        for table, failure in swept.failures:
            _log.warning("orphaned files of derived table %s could not be collected this time: %s", table, failure)
        if swept.deleted:
            _log.info("%d orphaned files of derived tables deleted", swept.deleted)
