"""A table's metadata as it is told to an engine that has waited for it.

Up to version 1.5, DuckDB reads the snapshot that was there when its transaction began, by the times in the metadata.
A commit that was made because it asked is a few milliseconds younger: it would be for the next query to see, and a
table without an older snapshot would be an error. So DuckDB is told that what is younger than its transaction can be is
as old as that. Whatever is stored, and what other engines are told, keeps its own times.
"""

from typing import Final

from pyiceberg.table.metadata import TableMetadata

_TRANSACTION_MS: Final = 1_000
"""How long before its request a transaction may have begun that is to see what was committed for it."""


def makes_no_folders(user_agent: str) -> bool:
    """DuckDB, up to 1.5, writes the manifests of a `CREATE TABLE … AS` into a folder that it expects to be there, which
    on an object store every folder is."""
    return reads_by_time(user_agent)


def reads_by_time(user_agent: str) -> bool:
    return user_agent.lower().startswith("duckdb")


def as_of_time(metadata: TableMetadata, asked_ms: int) -> TableMetadata:
    """The order of the snapshots is kept: DuckDB takes the youngest that is old enough."""
    limit_ms = asked_ms - _TRANSACTION_MS
    told, times_ms = [], {}
    for snapshot in reversed(metadata.snapshots):
        if snapshot.timestamp_ms > limit_ms:
            times_ms[snapshot.snapshot_id] = limit_ms
            snapshot = snapshot.model_copy(update={"timestamp_ms": limit_ms})
        limit_ms = min(limit_ms, snapshot.timestamp_ms) - 1
        told.append(snapshot)
    log = [
        entry.model_copy(update={"timestamp_ms": times_ms.get(entry.snapshot_id, entry.timestamp_ms)})
        for entry in metadata.snapshot_log
    ]
    updated_ms = min(metadata.last_updated_ms, asked_ms - _TRANSACTION_MS)
    return metadata.model_copy(
        update={"snapshots": told[::-1], "snapshot_log": log, "last_updated_ms": updated_ms},
    )
