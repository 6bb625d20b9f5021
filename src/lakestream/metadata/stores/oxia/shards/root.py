"""The root row of a shard and the rows below it: what they hold, and what they mean together.

The root has a sequence that grows by one with each write of it. A transaction is one compare-and-set of the root, which
carries its puts (the redo) and its deletes; its version is the root's new sequence. The redo is applied to the rows
afterwards, and no root is written before that of its predecessor has been: so the rows, with the present root laid over
them, are the shard.

A put of a row that comes late, from a process that slept, must not bring back what was deleted meanwhile. Puts of rows
that exist expect the version id that was read. A put that expects none may land after the row was deleted: until
`KEEP_MS` after a delete the root therefore remembers it as a grave, which hides whatever is older; and a row that was
written more than `WINDOW_MS` after its root is no row at all. Both times are of Oxia's clock, and their difference is
how far apart the clocks of its servers may be.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple
from zlib import crc32

import msgspec

from lakestream.errors import CorruptObject
from lakestream.metadata import codec
from lakestream.metadata.store import Address
from lakestream.metadata.stores.oxia.keys import DATA
from lakestream.metadata.stores.oxia.service import NO_VERSION, Record

WINDOW_MS: Final = 30_000
KEEP_MS: Final = 90_000
RECENT: Final = 16
_ROW: Final = struct.Struct("<BIQQ")
_ROW_FORMAT: Final = 1


class Redo(msgspec.Struct, frozen=True, array_like=True):
    """A row to be written. `version` is that of its transaction, whichever root carries it."""

    kind: str
    key: str
    version: int
    value: bytes


class Grave(msgspec.Struct, frozen=True, array_like=True):
    """Rows of any kind with start <= key < end and a version below `sequence` are deleted. `end` None: `start` alone.
    `at_ms` is when its root was written; 0 in that root itself, which has the time."""

    start: str
    end: str | None
    sequence: int
    at_ms: int

    def covers(self, key: str) -> bool:
        return key == self.start if self.end is None else self.start <= key < self.end


class Root(msgspec.Struct, frozen=True, array_like=True):
    """`recent`: the marks of the last writes, the last one's at the end, by which a writer knows its own again."""

    sequence: int
    redo: Sequence[Redo]
    graves: Sequence[Grave]
    recent: Sequence[bytes]


class RootAt(NamedTuple):
    """A root as it was read. `version_id` `NO_VERSION`: there is none yet."""

    root: Root
    version_id: int
    at_ms: int


class OxiaRow(NamedTuple):
    """`at_ms`: when the root was written that it comes from."""

    version: int
    at_ms: int
    value: bytes


class Overlay:
    """What roots lay over the rows of a shard: of all that a key has the newest counts, unless a later delete covers
    it. With two roots, the one that was read before the rows and the one after."""

    __slots__ = ("_graves", "_redo")

    def __init__(self, *roots: RootAt) -> None:
        self._redo: dict[tuple[str, str], OxiaRow] = {}
        self._graves = [grave for at in roots for grave in at.root.graves]
        for at in roots:
            for redo in at.root.redo:
                self._redo[redo.kind, redo.key] = OxiaRow(redo.version, at.at_ms, redo.value)

    def keys(self, kind: str, start: str, end: str) -> list[str]:
        """Of a range, those that have a row in a root."""
        return [key for of_kind, key in self._redo if of_kind == kind and start <= key < end]

    def present(self, kind: str, key: str, row: OxiaRow | None) -> OxiaRow | None:
        redo = self._redo.get((kind, key))
        newest = redo if row is None or (redo is not None and redo.version > row.version) else row
        if newest is None or any(grave.sequence > newest.version and grave.covers(key) for grave in self._graves):
            return None
        return newest


NO_ROOT: Final = RootAt(Root(0, (), (), ()), NO_VERSION, 0)


def encode_root(shard: str, root: Root) -> bytes:
    return codec.encode(root, _root_address(shard))


def decode_root(shard: str, record: Record | None) -> RootAt:
    if record is None:
        return NO_ROOT
    return RootAt(codec.decode(record.value, Root, _root_address(shard)), record.version_id, record.modified_ms)


def encode_row(key: str, version: int, at_ms: int, value: bytes) -> bytes:
    """`key` is the row's in Oxia."""
    return _ROW.pack(_ROW_FORMAT, _checksum(key, version, at_ms), version, at_ms) + value


def decode_row(record: Record) -> OxiaRow | None:
    """None: it was written too late to count."""
    if len(record.value) < _ROW.size:
        raise CorruptObject(f"the row {record.key!r} in Oxia is damaged: restore the metadata store from a backup")
    form, checksum, version, at_ms = _ROW.unpack_from(record.value)
    if form != _ROW_FORMAT or checksum != _checksum(record.key, version, at_ms):
        raise CorruptObject(
            f"the row {record.key!r} in Oxia is damaged, or another version of lakestream wrote it: use that version,"
            " or restore the metadata store from a backup"
        )
    return None if is_late(record.modified_ms, at_ms) else OxiaRow(version, at_ms, record.value[_ROW.size :])


def is_late(written_ms: int, root_ms: int) -> bool:
    return written_ms > root_ms + WINDOW_MS


def graves_of(at: RootAt) -> list[Grave]:
    """The graves of a root, all with their time."""
    return [grave if grave.at_ms else msgspec.structs.replace(grave, at_ms=at.at_ms) for grave in at.root.graves]


def is_over(grave: Grave, now_ms: int) -> bool:
    """No row that it hides can be written any more."""
    return grave.at_ms > 0 and now_ms > grave.at_ms + KEEP_MS


def has_data(root: Root) -> bool:
    return any(redo.kind == DATA for redo in root.redo)


def _root_address(shard: str) -> Address:
    return Address(shard, "the root row in Oxia")


def _checksum(key: str, version: int, at_ms: int) -> int:
    return crc32(f"{key} {version} {at_ms}".encode())
