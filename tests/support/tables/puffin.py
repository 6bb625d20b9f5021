"""Puffin files with deletion vectors, whole or not: what engines write, and what they must never have written."""

import json
import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyroaring import BitMap64

from lakestream.model import DeletionVector, PositionDeletes

MAGIC = b"PFA1"


def framed(bitmap: bytes) -> bytes:
    """The blob of a vector around a serialized bitmap."""
    body = b"\xd1\xd3\x39\x64" + bitmap
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


@dataclass
class Puffin:
    path: str
    blobs: list[bytes] = field(default_factory=list)
    about: list[dict[str, Any]] = field(default_factory=list)
    named: list[tuple[str, int, int, int]] = field(default_factory=list)
    """Of each vector the data file, the count, and where it is, as the manifest says them."""

    def add(self, data_file: str, rows: Iterable[int] | bytes, count: int | None = None, **about: object) -> "Puffin":
        """Rows, or the bytes of a bitmap. `about` is said in the footer instead of the truth."""
        positions = None if isinstance(rows, bytes) else BitMap64(rows)
        blob = framed(rows if isinstance(rows, bytes) else BitMap64(positions).serialize())
        count = len(positions or ()) if count is None else count
        start = len(MAGIC) + sum(map(len, self.blobs))
        told = {"referenced-data-file": data_file, "cardinality": str(count)}
        entry = {
            "type": "deletion-vector-v1",
            "fields": [2147483645],
            "snapshot-id": -1,
            "sequence-number": -1,
            "offset": start,
            "length": len(blob),
            "properties": told | {name: value for name, value in about.items() if name in told},
        }
        self.blobs.append(blob)
        self.about.append(entry | {name: value for name, value in about.items() if name not in told})
        self.named.append((data_file, count, start, len(blob)))
        return self

    def data(self) -> bytes:
        footer = json.dumps({"blobs": self.about, "properties": {"created-by": "a test"}}).encode()
        end = struct.pack("<II", len(footer), 0)
        return MAGIC + b"".join(self.blobs) + MAGIC + footer + end + MAGIC

    def deletes(self, row_counts: Mapping[str, int]) -> list[PositionDeletes]:
        """As a view has them."""
        size_bytes = len(self.data())
        return [
            PositionDeletes(
                self.path, count, vector=DeletionVector(file, start, length, size_bytes, row_counts.get(file, 0))
            )
            for file, count, start, length in self.named
        ]
