"""Objects in this process's memory, for simulation and tests. No operation waits."""

from collections.abc import AsyncIterator, Sequence

from lakestream.errors import Conflict, CorruptObject, ObjectMissing
from lakestream.objects.keys import check_key, normal_prefix
from lakestream.objects.store import Buffer, ObjectInfo
from lakestream.runtime import Clock


class MemoryObjects:
    """Implements `ObjectStore`."""

    def __init__(self, clock: Clock, url: str = "memory://") -> None:
        self._clock = clock
        self._url = url
        self._objects: dict[str, tuple[bytes, int]] = {}

    @property
    def url(self) -> str:
        return self._url

    async def put(self, key: str, parts: Sequence[Buffer], *, overwrite: bool = False) -> None:
        check_key(key)
        if key in self._objects and not overwrite:
            raise Conflict(f"{self._url}/{key} exists already")
        self._objects[key] = (b"".join(parts), self._clock.now_ms())

    async def get(self, key: str) -> bytes:
        return self._data(key)

    async def get_range(self, key: str, start: int, length: int, *, once: bool = False) -> bytes:
        data = self._data(key)[start : start + length]
        if len(data) != length:
            raise CorruptObject(f"{self._url}/{key} is too short for {length} bytes at {start}")
        return data

    async def get_tail(self, key: str, length: int) -> bytes:
        data = self._data(key)
        return data[max(0, len(data) - length) :]

    async def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ObjectInfo]:
        prefix = normal_prefix(prefix)
        for key in sorted(key for key in self._objects if key.startswith(prefix)):
            if after is not None and key <= after:
                continue
            if key in self._objects:  # the consumer may delete while it lists
                data, modified_ms = self._objects[key]
                yield ObjectInfo(key, len(data), modified_ms)

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            check_key(key)
            self._objects.pop(key, None)

    def _data(self, key: str) -> bytes:
        check_key(key)
        try:
            return self._objects[key][0]
        except KeyError:
            raise ObjectMissing(f"{self._url}/{key} does not exist") from None
