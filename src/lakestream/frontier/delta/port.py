"""A Delta log as the mirror sees it, and what the mirror asks of the Iceberg side."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

import pyarrow as pa

from lakestream.table.view import View


@dataclass(frozen=True, slots=True)
class Shown:
    """What one version of a Delta log shows. `paths` are its live files, below the table's location. `snapshot_id` and
    `metadata_version` are those of the Iceberg metadata that it was last made from; -1: unknown. `features` are those
    that somebody has given the table and that the mirror does not write."""

    log_version: int
    paths: frozenset[str]
    columns: pa.Schema
    snapshot_id: int = -1
    metadata_version: int = -1
    features: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Added:
    """A file below the table's location. `stats` is Delta's JSON."""

    path: str
    size_bytes: int
    stats: str


@dataclass(frozen=True, slots=True)
class MirrorStep:
    """One commit to a Delta log. `columns`: those that are new."""

    add: Sequence[Added]
    remove: Sequence[str]
    columns: Sequence[pa.Field]
    snapshot_id: int
    metadata_version: int
    timestamp_ms: int


class DeltaLog(Protocol):
    """Raises `Unavailable` when the store does not answer or an outcome is unknown (read again to learn it), and
    `StorageError` when a log is damaged."""

    async def read(self, location: str) -> Shown | None:
        """The newest version. None: there is no log."""
        ...

    async def create(self, location: str, name: str, columns: pa.Schema) -> None:
        """Begins a log without files. `Conflict` if there is one. `StorageError` if Delta has no such columns."""
        ...

    async def commit(self, location: str, shown: Shown, step: MirrorStep) -> None:
        """One attempt on exactly what was shown. `Conflict`: another mirror has committed since; nothing changed."""
        ...


class MirroredTables(Protocol):
    """The Iceberg side of mirrored tables."""

    async def columns(self, view: View) -> pa.Schema:
        """The columns of the view's table. `StorageError` if files of the table know one of them by another name:
        Delta finds columns by name."""
        ...

    async def hold(self, topic_id: UUID, snapshot_id: int | None) -> None:
        """Keeps every file of this snapshot, whoever expires snapshots, and of no other one; None: of none. Idempotent.
        A snapshot that is gone cannot be held, and is let go."""
        ...
