"""Statistics files (Puffin) of a table, whoever computed them: which snapshot they are found at, and when they go.

Engines use a statistics file only if it belongs to exactly the snapshot that they scan. A stream's table gets a
snapshot every few seconds, so each commit of ours takes the statistics along. What the file says of itself stays as it
is: its blobs name the snapshot that they were computed from. Pure.
"""

from typing import Final

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.statistics import StatisticsFile as IcebergStatistics
from pyiceberg.table.update import RemoveStatisticsUpdate, SetStatisticsUpdate, TableUpdate

from lakestream.model import Blob, StatisticsFile
from lakestream.objects.paths import is_inside, same_form

SUFFIX: Final = ".stats"
"""Of statistics files, also of Iceberg's own and Trino's: nothing that holds rows is named so."""


def carried(metadata: TableMetadata, snapshot_id: int) -> tuple[TableUpdate, ...]:
    """What gives the next snapshot of main the statistics of the nearest that has some."""
    found = nearest(metadata)
    if found is None:
        return ()
    return _set(found.model_copy(update={"snapshot_id": snapshot_id})), *_taken_from(metadata, found)


def described(metadata: TableMetadata, snapshot_id: int, statistics: StatisticsFile) -> tuple[TableUpdate, ...]:
    """What gives main's snapshot these in the place of the nearest."""
    entry = {
        "snapshot-id": snapshot_id,
        "statistics-path": statistics.path,
        "file-size-in-bytes": statistics.size_bytes,
        "file-footer-size-in-bytes": statistics.footer_bytes,
        "blob-metadata": [
            {
                "type": blob.kind,
                "snapshot-id": blob.snapshot_id,
                "sequence-number": blob.sequence_number,
                "fields": list(blob.fields),
                "properties": dict(blob.properties),
            }
            for blob in statistics.blobs
        ],
    }
    found, new = nearest(metadata), _set(IcebergStatistics.model_validate(entry))
    return (new,) if found is None or found.snapshot_id == snapshot_id else (new, *_taken_from(metadata, found))


def shown(metadata: TableMetadata) -> StatisticsFile | None:
    """The nearest, for a view."""
    found = nearest(metadata)
    if found is None:
        return None
    blobs = (
        Blob(blob.type, tuple(blob.fields), blob.snapshot_id, blob.sequence_number, blob.properties or {})
        for blob in found.blob_metadata
    )
    return StatisticsFile(
        found.statistics_path, found.file_size_in_bytes, found.file_footer_size_in_bytes, tuple(blobs)
    )


def _set(entry: IcebergStatistics) -> TableUpdate:
    return SetStatisticsUpdate.model_validate({"statistics": entry})


def _taken_from(metadata: TableMetadata, found: IcebergStatistics) -> tuple[TableUpdate, ...]:
    """Its snapshot loses them, unless a tag or another branch names it: whoever reads there needs them."""
    others = {ref.snapshot_id for name, ref in metadata.refs.items() if name != MAIN_BRANCH}
    if found.snapshot_id in others:
        return ()
    return (RemoveStatisticsUpdate.model_validate({"snapshot-id": found.snapshot_id}),)


def nearest(metadata: TableMetadata) -> IcebergStatistics | None:
    """The statistics of main's snapshot, or of the nearest before it that has some."""
    if not metadata.statistics:
        return None
    by_snapshot = {entry.snapshot_id: entry for entry in metadata.statistics}
    parents = {snapshot.snapshot_id: snapshot.parent_snapshot_id for snapshot in metadata.snapshots}
    at = metadata.current_snapshot_id
    for _ in range(len(parents)):
        if at is None or at in by_snapshot or at not in parents:
            break
        at = parents[at]
    return None if at is None else by_snapshot.get(at)


def dropped(old: TableMetadata, new: TableMetadata) -> list[str]:
    """Statistics files of the table that entries of `old` name and none of `new` does."""
    return sorted(set(own_files(old)) - _named(new))


def own_files(metadata: TableMetadata) -> list[str]:
    """The statistics files that go with the table, by the names that engines give them. An entry may say anything: a
    path that leaves the table's folder, or has another kind of name, is not ours to delete."""
    return sorted(path for path in _named(metadata) if path.endswith(SUFFIX) and is_inside(path, metadata.location))


def _named(metadata: TableMetadata) -> set[str]:
    return {same_form(entry.statistics_path) for entry in (*metadata.statistics, *metadata.partition_statistics)}
