"""The views that history is served from: per topic one table metadata with its frontier."""

import asyncio
from dataclasses import dataclass
from uuid import UUID

from lakestream.catalog.port import TableViews
from lakestream.table.view import View


@dataclass(slots=True)
class _Held:
    view: View | None
    checked_at_s: float
    loaded_at_s: float
    """No later than then the table was so."""


class ViewCache:
    """A view is used as long as the table's pointer is found unchanged, checked every `check_ms` at most."""

    def __init__(self, catalog: TableViews, check_ms: int) -> None:
        self._catalog = catalog
        self._check_s = check_ms / 1000
        self._held: dict[UUID, _Held] = {}
        self._locks: dict[UUID, asyncio.Lock] = {}

    async def current(self, topic_id: UUID, *, reload: bool = False) -> View | None:
        """None: the topic has no table yet. `reload` asks the catalog whatever was checked last."""
        now_s = asyncio.get_running_loop().time()
        held = self._held.get(topic_id)
        if held is not None and not reload and now_s - held.checked_at_s < self._check_s:
            return held.view
        async with self._locks.setdefault(topic_id, asyncio.Lock()):
            held = self._held.get(topic_id)
            if held is not None and held.checked_at_s > now_s:
                return held.view
            return await self._refresh(topic_id, held)

    def loaded_at_s(self, topic_id: UUID) -> float:
        """When the view that is held had been loaded, or a later one."""
        held = self._held.get(topic_id)
        return held.loaded_at_s if held is not None else float("inf")

    def forget(self, topic_id: UUID) -> None:
        self._held.pop(topic_id, None)
        self._locks.pop(topic_id, None)

    async def _refresh(self, topic_id: UUID, held: _Held | None) -> View | None:
        # Taken before the check, so that the view is at least as new as the time says.
        loop = asyncio.get_running_loop()
        checked_at_s = loop.time()
        pointer = await self._catalog.pointer(topic_id)
        if held is not None and held.view is not None and held.view.metadata_location == pointer:
            fresh = _Held(held.view, checked_at_s, held.loaded_at_s)
        else:
            view = None if pointer is None else await self._catalog.load(topic_id)
            fresh = _Held(view, checked_at_s, loop.time())
        self._held[topic_id] = fresh
        return fresh.view


def frontier_of(view: View | None, partition_index: int) -> int:
    """The first offset that is not in the table; a partition the view does not know yet is all tail."""
    if view is None or partition_index >= len(view.frontier):
        return 0
    return view.frontier[partition_index]


def intact_from(view: View, partition_index: int) -> int:
    """From there on the table's rows are what was appended, neither changed nor deleted."""
    return view.intact_from[partition_index] if partition_index < len(view.intact_from) else 0
