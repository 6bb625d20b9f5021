"""What consumers of the classic protocol write into it: ConsumerProtocolSubscription and ConsumerProtocolAssignment,
versions 0 to 3. Pure."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_MAX_VERSION: Final = 3

NamedPartitions = Mapping[str, frozenset[int]]


class MalformedMetadata(ValueError):
    """Not what its version says."""


@dataclass(frozen=True, slots=True)
class Subscription:
    version: int
    topics: tuple[str, ...]
    owned: NamedPartitions
    rack_id: str | None


def subscription_of(data: bytes) -> Subscription:
    """Raises `MalformedMetadata`. What a newer version has at its end is left alone."""
    reader = _Reader(data)
    version = min(reader.number(">h"), _MAX_VERSION)
    topics = tuple(reader.text() for _ in range(reader.count()))
    reader.skip_bytes()
    owned: dict[str, frozenset[int]] = {}
    rack_id = None
    if version >= 1:
        owned = reader.partitions()
    if version >= 2:
        reader.number(">i")
    if version >= 3:
        rack_id = reader.nullable_text()
    return Subscription(version, topics, owned, rack_id)


def assignment_of(data: bytes) -> NamedPartitions:
    """Raises `MalformedMetadata`. No data is no partition."""
    if not data:
        return {}
    reader = _Reader(data)
    reader.number(">h")
    return reader.partitions()


def assignment_data(version: int, partitions: NamedPartitions) -> bytes:
    parts = [struct.pack(">hi", version, len(partitions))]
    for name in sorted(partitions):
        indexes, encoded = sorted(partitions[name]), name.encode()
        parts.append(struct.pack(">h", len(encoded)) + encoded)
        parts.append(struct.pack(f">i{len(indexes)}i", len(indexes), *indexes))
    return b"".join([*parts, struct.pack(">i", -1)])


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, form: str) -> int:
        try:
            (value,) = struct.unpack_from(form, self._data, self._at)
        except struct.error as error:
            raise MalformedMetadata("it ends too soon") from error
        self._at += struct.calcsize(form)
        number: int = value
        return number

    def count(self) -> int:
        count = self.number(">i")
        if not 0 <= count <= len(self._data):
            raise MalformedMetadata(f"{count} is no number of parts")
        return count

    def _bytes(self, length: int) -> bytes:
        found = self._data[self._at : self._at + length]
        if length < 0 or len(found) < length:
            raise MalformedMetadata("it ends too soon")
        self._at += length
        return found

    def text(self) -> str:
        try:
            return self._bytes(self.number(">h")).decode()
        except UnicodeDecodeError as error:
            raise MalformedMetadata("a name is no text") from error

    def nullable_text(self) -> str | None:
        at = self._at
        if self.number(">h") < 0:
            return None
        self._at = at
        return self.text()

    def skip_bytes(self) -> None:
        length = self.number(">i")
        if length > 0:
            self._bytes(length)

    def partitions(self) -> dict[str, frozenset[int]]:
        found = {}
        for _ in range(self.count()):
            name = self.text()
            found[name] = frozenset(self.number(">i") for _ in range(self.count()))
        return {name: indexes for name, indexes in found.items() if indexes}
