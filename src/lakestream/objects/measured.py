"""A store whose requests are counted, by operation, purpose and outcome."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Final, TypeVar

from lakestream.errors import Conflict, CorruptObject, ObjectMissing, StoreRefused, Throttled
from lakestream.metrics import ObjectMetrics
from lakestream.objects.store import Buffer, ObjectInfo, ObjectStore

T = TypeVar("T")

PAGE: Final = 1000
"""Keys that stores list, and S3 deletes, with one request."""
_OUTCOMES: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (ObjectMissing, "missing"),
    (Conflict, "conflict"),
    (CorruptObject, "short"),
    (Throttled, "throttled"),
    (StoreRefused, "refused"),
    (asyncio.CancelledError, "abandoned"),
)


class MeasuredObjects:
    """Implements `ObjectStore` by another one."""

    def __init__(self, store: ObjectStore, metrics: ObjectMetrics) -> None:
        self._store = store
        self._metrics = metrics

    @property
    def url(self) -> str:
        return self._store.url

    async def put(self, key: str, parts: Sequence[Buffer], *, overwrite: bool = False) -> None:
        purpose = purpose_of(key)
        await self._measured("put", purpose, self._store.put(key, parts, overwrite=overwrite))
        self._metrics.sent(purpose, sum(map(len, parts)))

    async def get(self, key: str) -> bytes:
        purpose = purpose_of(key)
        data = await self._measured("get", purpose, self._store.get(key))
        self._metrics.received(purpose, len(data))
        return data

    async def get_range(self, key: str, start: int, length: int, *, once: bool = False) -> Buffer:
        purpose = purpose_of(key)
        data = await self._measured("range", purpose, self._store.get_range(key, start, length, once=once))
        self._metrics.received(purpose, len(data))
        return data

    async def get_tail(self, key: str, length: int) -> bytes:
        purpose = purpose_of(key)
        data = await self._measured("range", purpose, self._store.get_tail(key, length))
        self._metrics.received(purpose, len(data))
        return data

    async def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ObjectInfo]:
        """One request for each page that was begun."""
        found, outcome = 0, "ok"
        try:
            async for info in self._store.list(prefix, after=after):
                found += 1
                yield info
        except (Exception, asyncio.CancelledError) as error:
            outcome = _outcome(error)
            raise
        finally:
            self._metrics.ended("list", purpose_of(prefix), outcome, found // PAGE + 1)

    async def delete(self, keys: Sequence[str]) -> None:
        if keys:
            requests = -(-len(keys) // PAGE)
            await self._measured("delete", purpose_of(keys[0]), self._store.delete(keys), requests)

    async def _measured(self, operation: str, purpose: str, request: Awaitable[T], requests: int = 1) -> T:
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            answer = await request
        except BaseException as error:
            self._metrics.ended(operation, purpose, _outcome(error), requests)
            raise
        self._metrics.ended(operation, purpose, "ok", requests)
        self._metrics.took(operation, loop.time() - started)
        return answer


def purpose_of(key: str) -> str:
    """`wal`, `table` (its data files), `metadata` (of tables, in any format), `cluster` (what we keep of ourselves)."""
    if key.startswith("wal"):
        return "wal"
    if "_iceberg/" in key or "_delta_log/" in key:
        return "metadata"
    if key.startswith(("tables", "_data/")):
        return "table"
    return "cluster" if key.startswith("lakestream") else "other"


def _outcome(error: BaseException) -> str:
    return next((name for kind, name in _OUTCOMES if isinstance(error, kind)), "failed")
