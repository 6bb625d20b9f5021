"""Delta logs in the simulation: versions of what they show, written by compare-and-set, and checked when they are."""

from collections.abc import Mapping
from uuid import UUID

import pyarrow as pa

from lakestream.catalog.files import version_of
from lakestream.errors import Conflict
from lakestream.frontier.delta.port import MirrorStep, Shown
from lakestream.table.view import View
from simulator.auditor import Auditor
from simulator.world import World

_NO_COLUMNS = pa.schema([])


class SimulatedDelta:
    """Implements `DeltaLog` and `MirroredTables`. I5 for mirrors: each version of a log shows the files of exactly one
    version of the table, the one that it names, and never an older one than before."""

    def __init__(self, world: World, tables: Mapping[str, View], auditor: Auditor) -> None:
        self._world = world
        self._tables = tables
        self._auditor = auditor
        self._logs: dict[str, Shown] = {}

    def shows(self, view: View) -> bool:
        shown = self._logs.get(view.location)
        return shown is not None and shown.paths == _paths(view)

    async def read(self, location: str) -> Shown | None:
        return await self._world.operation("get delta", lambda: self._logs.get(location), place="bucket")

    async def create(self, location: str, name: str, columns: pa.Schema) -> None:
        def apply() -> None:
            if location in self._logs:
                raise Conflict(f"the Delta log of {location} is there already")
            self._logs[location] = Shown(0, frozenset(), columns)

        await self._world.operation("put delta", apply, place="bucket")

    async def commit(self, location: str, shown: Shown, step: MirrorStep) -> None:
        def apply() -> None:
            now = self._logs[location]
            if now.log_version != shown.log_version:
                raise Conflict(f"another mirror has committed to the Delta log of {location}")
            paths = (now.paths - frozenset(step.remove)) | {file.path for file in step.add}
            new = Shown(now.log_version + 1, paths, _NO_COLUMNS, step.snapshot_id, step.metadata_version)
            self._check(location, now, new)
            self._logs[location] = new
            self._world.trace(f"delta log {new.log_version} shows version {new.metadata_version}")

        await self._world.operation("put delta", apply, place="bucket")

    async def columns(self, view: View) -> pa.Schema:
        return _NO_COLUMNS

    async def hold(self, topic_id: UUID, snapshot_id: int | None) -> None:
        """The simulated catalog retains one snapshot only: there is nothing to hold."""

    def _check(self, location: str, before: Shown, now: Shown) -> None:
        if now.metadata_version < before.metadata_version:
            self._auditor.fail(f"I6: a Delta log fell from {before.metadata_version} to {now.metadata_version}")
        views = [
            view
            for at, view in self._tables.items()
            if view.location == location and version_of(at) == now.metadata_version
        ]
        if not any(_paths(view) == now.paths for view in views):
            self._auditor.fail(f"I5: a Delta log shows what version {now.metadata_version} of the table does not")


def _paths(view: View) -> frozenset[str]:
    return frozenset(file.path.removeprefix(view.location + "/") for file in view.files)
