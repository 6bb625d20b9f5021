"""Collection of files of derived tables that no table names: what workers leave behind that crash, or never learn
whether their commit was done.

The name of a file carries the last version of its table on which it may be committed, and versions only grow. Names and
version are read from one metadata, after the files were listed: a file that it does not name, and whose version it is
beyond, is in use by nobody and never will be. Age is courtesy, never part of the proof.
"""

from dataclasses import dataclass

from lakestream.catalog.derived.port import DerivedTables
from lakestream.errors import LakestreamError, UnknownStream
from lakestream.frontier.lake import Lake
from lakestream.metadata.names.derived import DerivedRow
from lakestream.objects.paths import relative, resolved
from lakestream.table.deriving.naming import DerivedName, parse_derived
from lakestream.table.schema import DATA_FOLDER


@dataclass(frozen=True, slots=True)
class Swept:
    """What one pass did. `failures`: table and error; those come round again."""

    examined: int = 0
    deleted: int = 0
    failures: tuple[tuple[str, LakestreamError], ...] = ()


class DerivedOrphans:
    """Remembers how far it came, which only spreads the work."""

    def __init__(self, lake: Lake, tables: DerivedTables) -> None:
        self._lake = lake
        self._tables = tables
        self._turn = 0
        self._after: str | None = None

    async def collect(self) -> Swept:
        """One pass over one table and a bounded number of its files; the next goes on behind them."""
        rows = await self._tables.every()
        if not rows:
            return Swept()
        row = rows[self._turn % len(rows)]
        try:
            examined, dead = await self._judge(row)
        except UnknownStream:
            examined, dead, self._after = 0, [], None
        except LakestreamError as error:
            self._after, self._turn = None, self._turn + 1
            return Swept(failures=((str(row.table_id), error),))
        if self._after is None:
            self._turn += 1
        return Swept(examined, len(await self._lake.delete(dead)))

    async def _judge(self, row: DerivedRow) -> tuple[int, list[str]]:
        derived = await self._tables.load(row)
        if derived is None:
            return 0, []
        folder, bucket = f"{derived.view.location}/{DATA_FOLDER}", self._lake.objects.url
        key = relative(folder, bucket)
        # A link in the way may lead to the files of another table.
        if key is None or relative(resolved(folder), resolved(bucket)) != key:
            return 0, []
        examined, old = await self._list(f"{key}/")
        if not old:
            return examined, []
        # After the list, never before: what was committed in between is named.
        named = await self._tables.named(row)
        if not named.collectable:
            return examined, []
        names = {path.rsplit("/", 1)[-1] for path in named.paths}
        return examined, [
            key
            for key, name in old.items()
            if named.version > name.last_version and key.rsplit("/", 1)[-1] not in names
        ]

    async def _list(self, prefix: str) -> tuple[int, dict[str, DerivedName]]:
        """The files of ours past their grace."""
        settings, now_ms = self._lake.settings, self._lake.runtime.clock.now_ms()
        examined, old = 0, {}
        after, self._after = self._after, None
        async for info in self._lake.objects.list(prefix, after=after):
            examined += 1
            name = parse_derived(info.key)
            if name is not None and now_ms - info.modified_ms >= settings.grace_ms:
                old[info.key] = name
            if examined >= settings.max_collect_objects:
                self._after = info.key
                break
        return examined, old
