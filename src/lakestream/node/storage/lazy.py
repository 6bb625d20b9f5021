"""The tables of a broker, loaded once it serves.

PyIceberg and Arrow are more than half of what a broker imports, and only records below the frontier need them. So they
are imported by name, here and nowhere else, on a thread beside the broker's first requests; whoever needs them earlier
waits.
"""

import asyncio
import gc
import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from lakestream.catalog.port import OpenCatalog, TableViews
from lakestream.metadata.names.rows import TableName
from lakestream.metadata.topics.list import Begun
from lakestream.node.storage.backends import Backends
from lakestream.stream.appending.schemas import ValueCheck
from lakestream.table.port import CacheCounts, History, HistorySource
from lakestream.table.view import View

_MODULE: Final = "lakestream.node.storage.tables"
_SWITCH_S: Final = 0.0005
"""How long the importing thread keeps the interpreter from the broker's, a tenth of what is usual."""


@dataclass(frozen=True, slots=True)
class _Loaded:
    catalog: OpenCatalog
    views: TableViews
    history: HistorySource
    cache_counts: Callable[[], CacheCounts]
    value_check: ValueCheck


class LazyTables:
    """Implements `TableViews` and `HistorySource` by those that it holds once they are loaded."""

    def __init__(self, backends: Backends, history_cache_bytes: int) -> None:
        self._backends = backends
        self._history_cache_bytes = history_cache_bytes
        self._loading: asyncio.Task[_Loaded] | None = None

    def history_cache(self) -> CacheCounts:
        """Nothing before it is loaded."""
        if self._loading is None or not self._loading.done() or self._loading.exception() is not None:
            return CacheCounts()
        return self._loading.result().cache_counts()

    async def loaded(self) -> _Loaded:
        """Begins to load, or waits until that is done."""
        if self._loading is None:
            self._loading = asyncio.create_task(self._load())
        return await asyncio.shield(self._loading)

    async def close(self) -> None:
        if self._loading is not None:
            await (await self._loading).catalog.close()

    async def value_check(self) -> ValueCheck:
        """What decodes values by their schemas."""
        return (await self.loaded()).value_check

    async def pointer(self, topic_id: UUID) -> str | None:
        return await (await self.loaded()).views.pointer(topic_id)

    async def detach(self, topic_id: UUID) -> str | None:
        return await (await self.loaded()).views.detach(topic_id)

    async def load(self, topic_id: UUID) -> View:
        return await (await self.loaded()).views.load(topic_id)

    async def adoptable(self, table: TableName, partitions: int) -> Begun | None:
        return await (await self.loaded()).views.adoptable(table, partitions)

    async def claim(self, table: TableName, name: str, begun: Begun) -> Begun:
        return await (await self.loaded()).views.claim(table, name, begun)

    async def adopt(self, topic_id: UUID, name: str, frontier: tuple[int, ...], *, table: TableName) -> bool:
        return await (await self.loaded()).views.adopt(topic_id, name, frontier, table=table)

    async def read(self, view: View, **wanted: Any) -> History:
        return await (await self.loaded()).history.read(view, **wanted)

    async def first_at_or_after(self, view: View, **wanted: Any) -> tuple[int, int] | None:
        return await (await self.loaded()).history.first_at_or_after(view, **wanted)

    async def newest(self, view: View, **wanted: Any) -> tuple[int, int] | None:
        return await (await self.loaded()).history.newest(view, **wanted)

    async def _load(self) -> _Loaded:
        module = await asyncio.to_thread(_import)
        catalog = module.make_catalog(self._backends)
        history = module.make_history(self._backends, self._history_cache_bytes)
        return _Loaded(catalog, catalog.broker_views(), history, history.cache_counts, module.check_values)


def _import() -> Any:
    """What is imported stays, so no garbage is looked for meanwhile."""
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    gc.disable()
    try:
        return importlib.import_module(_MODULE)
    finally:
        gc.enable()
        sys.setswitchinterval(usual_s)
