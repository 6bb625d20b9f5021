"""What the store asks of Oxia, as a port: the gRPC client implements it, and so do the simulator's worlds.

A partition is the name that decides where in Oxia a key lies: all keys of one of our shards are under its name, so that
a range of them is one scan. Version ids are given by Oxia, grow within one of its shards and are never given twice.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

NO_VERSION: Final = -1
"""Expects that there is no such key."""


class Record(NamedTuple):
    """`modified_ms` is by the clock of the server that took the write."""

    key: str
    value: bytes
    version_id: int
    modified_ms: int


class PutKey(NamedTuple):
    """`expected` None: whatever is there."""

    key: str
    value: bytes
    expected: int | None


class DeleteKey(NamedTuple):
    key: str
    expected: int


class Stamp(NamedTuple):
    """What a put was given."""

    version_id: int
    modified_ms: int


Heard = Callable[[Sequence[str] | None], None]
"""Told the keys that were written; None: some were, nobody knows which."""


class OxiaService(Protocol):
    """Every call raises `Unavailable` if it got no answer. A write may then have been done, whole or in part."""

    async def put(self, partition: str, puts: Sequence[PutKey]) -> list[Stamp | None]:
        """Each is decided on its own, in the order given; None: another version than expected is there."""
        ...

    async def delete(self, partition: str, deletes: Sequence[DeleteKey]) -> list[bool]:
        """Each on its own; False: another version than expected is there, or nothing."""
        ...

    async def read(self, partition: str, keys: Sequence[str]) -> list[Record | None]:
        """Each key's present record. Not one point in time."""
        ...

    async def following(self, places: Sequence[tuple[str, str]]) -> list[Record | None]:
        """For each (partition, key): the first record at or after the key in that part of Oxia."""
        ...

    async def scan(self, partition: str, start: str, end: str, *, limit: int | None = None) -> list[Record]:
        """Records with start <= key < end, in order. Not one point in time."""
        ...

    async def scan_all(self, start: str, end: str) -> list[Record]:
        """The same, of all partitions."""
        ...

    def listen(self, heard: Heard) -> None:
        """Tells of writes from now on, own ones too. A hint: it may come late or never."""
        ...

    async def close(self) -> None: ...
