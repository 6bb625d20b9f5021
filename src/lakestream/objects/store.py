"""An object store as the other rooms see it: whole immutable objects under names."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    key: str
    size_bytes: int
    modified_ms: int


class RangeReader(Protocol):
    async def get_range(self, key: str, start: int, length: int, *, once: bool = False) -> Buffer:
        """Exactly `length` bytes; fewer in the object is `CorruptObject`. `once`: they will not be asked for again
        soon, and a cache need not keep them."""
        ...


class ObjectStore(RangeReader, Protocol):
    """Keys are relative to the URL the store was opened with, `/` separated.

    `put` returns only when the object would survive a power cut. Missing objects raise
    `ObjectMissing`; a store that does not answer raises `Unavailable`.
    """

    @property
    def url(self) -> str:
        """`url + "/" + key` is the object's full address, as tables name it."""
        ...

    async def put(self, key: str, parts: Sequence[Buffer], *, overwrite: bool = False) -> None:
        """Stores the concatenated parts, whole or not at all; an existing key raises `Conflict`
        unless overwrite is asked for."""
        ...

    async def get(self, key: str) -> bytes: ...

    async def get_tail(self, key: str, length: int) -> bytes:
        """The last `length` bytes, or the whole object if it is shorter."""
        ...

    def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ObjectInfo]:
        """Objects whose key starts with prefix (whole path segments), in key order, keys > after."""
        ...

    async def delete(self, keys: Sequence[str]) -> None:
        """Deletes those that exist; a missing one is no error."""
        ...
