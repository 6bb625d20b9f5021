"""The offset vector of snapshots that outside engines make. Pure.

A snapshot's vector says how far its data goes: it has no row at or above it, and what it lacks below it is a legal gap
(deleted, or rolled back). The engine's own commits write it; for those of others the catalog does, because they cannot
know. A snapshot is never stamped again: one that is rolled back to, or that a branch is moved to, says what it said.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Final

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, TableUpdate

from lakestream.table.schema import FRONTIER_PROPERTY

SPLIT_PROPERTY: Final = "lakestream.split-transactions"
SPLIT_COUNT_PROPERTY: Final = "lakestream.split-transactions-count"
_SPLIT_NAMED: Final = 100
_SPLIT_BYTES: Final = 16_384


def vector_of(snapshot: Snapshot | None) -> str | None:
    """As it is written in the summary; None for a snapshot made before its table was a stream's."""
    return None if snapshot is None or snapshot.summary is None else snapshot.summary.get(FRONTIER_PROPERTY)


def split_summary(split: Sequence[str]) -> dict[str, str]:
    """What a snapshot's summary says that has a part of committed transactions with these transactional ids, as JSON.
    Of very many some are named, and all counted."""
    named: list[str] = []
    size_bytes = 0
    for name in split[:_SPLIT_NAMED]:
        size_bytes += len(json.dumps(name))
        if size_bytes > _SPLIT_BYTES:
            break
        named.append(name)
    return {SPLIT_PROPERTY: json.dumps(named), SPLIT_COUNT_PROPERTY: str(len(split))}


def stamped(metadata: TableMetadata, updates: Sequence[TableUpdate]) -> Iterator[TableUpdate]:
    """The same updates, each added snapshot with the vector of what it was made from: the table's frontier if that is
    main's newest snapshot or nothing, its parent's vector otherwise (another branch, or a chain in one commit).
    Whatever the engine itself wrote there is overwritten."""
    frontier = metadata.properties.get(FRONTIER_PROPERTY)
    vectors = {snapshot.snapshot_id: vector_of(snapshot) for snapshot in metadata.snapshots}
    if metadata.current_snapshot_id is not None:
        # After a rollback main's newest snapshot is behind the frontier; what is made from it has its gaps below it.
        vectors[metadata.current_snapshot_id] = frontier
    for update in updates:
        if frontier is None or not isinstance(update, AddSnapshotUpdate):
            yield update
            continue
        snapshot = update.snapshot
        parent = snapshot.parent_snapshot_id
        vector = (None if parent is None else vectors.get(parent)) or frontier
        vectors[snapshot.snapshot_id] = vector
        yield AddSnapshotUpdate(snapshot=snapshot.model_copy(update={"summary": _with(snapshot.summary, vector)}))


def _with(summary: Summary | None, vector: str) -> Summary:
    """A snapshot that does not say what it did counts as a rewrite: nothing is assumed of it."""
    if summary is None:
        return Summary(Operation.OVERWRITE, **{FRONTIER_PROPERTY: vector})
    return Summary(summary.operation, **(summary.additional_properties | {FRONTIER_PROPERTY: vector}))
