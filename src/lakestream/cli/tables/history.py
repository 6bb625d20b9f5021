"""A table's snapshots as its metadata tells them: which there are, how far each goes, which main went through. Pure.

Read from the metadata's JSON, as the catalog sends it: commands that only look need not load a table library.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

MAIN: Final = "main"
_FRONTIER: Final = "lakestream.frontier"
_TOPIC: Final = "lakestream.topic"
_TOPIC_ID: Final = "lakestream.topic-id"

Vector = tuple[int, ...]
"""Per partition, the first offset that is not covered."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`vector` is None in a snapshot that was made before the table was a stream's. `tags` are the names of tags and
    branches. `on_main`: main is it or comes from it; a snapshot that was rolled back is not."""

    snapshot_id: int
    timestamp_ms: int
    operation: str
    rows: int
    added_rows: int
    vector: Vector | None
    tags: tuple[str, ...]
    on_main: bool

    @property
    def time(self) -> str:
        return datetime.fromtimestamp(self.timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")


@dataclass(frozen=True, slots=True)
class TableHistory:
    """One table metadata. `name` is its namespace's levels, then its own. `snapshots` are in the order of their time;
    `main_log` is every snapshot that main ever was, each after the time from which it was."""

    name: tuple[str, ...]
    uuid: str
    topic: str | None
    topic_id: str | None
    frontier: Vector
    current_id: int | None
    snapshots: tuple[Snapshot, ...]
    main_log: tuple[tuple[int, int], ...]

    @property
    def table(self) -> str:
        return ".".join(self.name)

    @property
    def current(self) -> Snapshot | None:
        return self.by_id(self.current_id)

    def by_id(self, snapshot_id: int | None) -> Snapshot | None:
        return next((each for each in self.snapshots if each.snapshot_id == snapshot_id), None)

    def find(self, text: str) -> Snapshot | None:
        """By the name of a tag or branch, else by its id."""
        named = next((each for each in self.snapshots if text in each.tags), None)
        return named or (self.by_id(int(text)) if text.isascii() and text.isdigit() else None)

    def at(self, timestamp_ms: int) -> Snapshot | None:
        """What main was at that time. None: the table was empty, or that snapshot has expired."""
        before = [(since_ms, snapshot_id) for since_ms, snapshot_id in self.main_log if since_ms <= timestamp_ms]
        return self.by_id(max(before)[1]) if before else None

    def consumed(self, committed: Mapping[int, int]) -> Snapshot | None:
        """The newest snapshot on main's way that a group with these positions has read to its end."""
        return next(
            (
                snapshot
                for snapshot in reversed(self.snapshots)
                if snapshot.on_main
                and snapshot.vector is not None
                and all(committed.get(index, 0) >= end for index, end in enumerate(snapshot.vector))
            ),
            None,
        )


def read_history(name: tuple[str, ...], metadata: Mapping[str, Any]) -> TableHistory:
    properties = metadata.get("properties", {})
    refs = {name: ref["snapshot-id"] for name, ref in metadata.get("refs", {}).items()}
    current = metadata.get("current-snapshot-id")
    found = {snapshot["snapshot-id"]: snapshot for snapshot in metadata.get("snapshots", [])}
    current = current if current in found else None
    on_main = _ancestors(found, current)
    snapshots = [_snapshot(snapshot, refs, number in on_main) for number, snapshot in found.items()]
    log = [(entry["timestamp-ms"], entry["snapshot-id"]) for entry in metadata.get("snapshot-log", [])]
    return TableHistory(
        name=name,
        uuid=metadata["table-uuid"],
        topic=properties.get(_TOPIC),
        topic_id=properties.get(_TOPIC_ID),
        frontier=_vector(properties.get(_FRONTIER)) or (),
        current_id=current,
        snapshots=tuple(sorted(snapshots, key=lambda snapshot: snapshot.timestamp_ms)),
        main_log=tuple(log),
    )


def written(vector: Vector | None) -> str | None:
    return None if vector is None else ",".join(map(str, vector))


def uncovered(vector: Vector, end: Vector) -> list[str]:
    """The offsets from one vector to another, partition by partition, for people."""
    padded: Sequence[int] = (*vector, *(0 for _ in end[len(vector) :]))
    pairs = enumerate(zip(padded, end, strict=False))
    return [f"{low} to {high - 1} of partition {index}" for index, (low, high) in pairs if low < high]


def _ancestors(found: Mapping[int, Mapping[str, Any]], newest: int | None) -> set[int]:
    seen: set[int] = set()
    while newest is not None and newest in found and newest not in seen:
        seen.add(newest)
        newest = found[newest].get("parent-snapshot-id")
    return seen


def _snapshot(snapshot: Mapping[str, Any], refs: Mapping[str, int], on_main: bool) -> Snapshot:
    summary = snapshot.get("summary") or {}
    return Snapshot(
        snapshot_id=snapshot["snapshot-id"],
        timestamp_ms=snapshot["timestamp-ms"],
        operation=summary.get("operation", ""),
        rows=int(summary.get("total-records", 0)),
        added_rows=int(summary.get("added-records", 0)),
        vector=_vector(summary.get(_FRONTIER)),
        tags=tuple(sorted(name for name, target in refs.items() if target == snapshot["snapshot-id"])),
        on_main=on_main,
    )


def _vector(text: str | None) -> Vector | None:
    return None if not text else tuple(int(part) for part in text.split(","))
