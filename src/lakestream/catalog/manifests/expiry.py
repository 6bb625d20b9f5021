"""Which snapshots go, and which files go with them."""

import logging
from collections.abc import Sequence
from typing import Final

from pyiceberg.manifest import ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update import RemoveSnapshotsUpdate, TableUpdate

from lakestream.catalog.engines.properties import is_on
from lakestream.catalog.files import MetadataFiles
from lakestream.catalog.manifests.index import ManifestIndex
from lakestream.errors import StorageError, Unavailable
from lakestream.objects.paths import is_inside
from lakestream.table.schema import shape_of
from lakestream.table.shape import TableShape

_log = logging.getLogger(__name__)

MAX_SNAPSHOTS: Final = 100
KEPT_SNAPSHOTS: Final = 80
"""Expiry goes down to this, so that it is not part of every commit."""
GRACE_MS: Final = 3_600_000
"""How long files that a rewrite or a delete took out of the table stay for engines that still read them."""

_MAX_AGE: Final = "history.expire.max-snapshot-age-ms"
_MIN_KEPT: Final = "history.expire.min-snapshots-to-keep"


def plan_expiry(metadata: TableMetadata, now_ms: int) -> list[int]:
    """The snapshots to expire when one more is added, of those that no branch or tag names: the ones that the owner's
    properties call too old, and the oldest of too many."""
    old = _too_old(metadata, now_ms)
    return sorted({*old, *_too_many(metadata, now_ms, len(old))})


def _too_old(metadata: TableMetadata, now_ms: int) -> list[int]:
    """By Iceberg's own properties. Without the age nothing is too old; one that is no number counts as not set."""
    max_age_ms = _whole(metadata.properties.get(_MAX_AGE))
    if max_age_ms is None:
        return []
    named = {ref.snapshot_id for ref in metadata.refs.values()} | {metadata.current_snapshot_id}
    newest_first = sorted(metadata.snapshots, key=lambda snapshot: -(snapshot.sequence_number or 0))
    beyond = newest_first[max(1, _whole(metadata.properties.get(_MIN_KEPT)) or 1) - 1 :]
    return [
        snapshot.snapshot_id
        for snapshot in beyond
        if snapshot.snapshot_id not in named and snapshot.timestamp_ms < now_ms - max_age_ms
    ]


def _too_many(metadata: TableMetadata, now_ms: int, going: int) -> list[int]:
    """The oldest. A recent rewrite and what it began from go only when nothing else is left to go."""
    excess = len(metadata.snapshots) - going + 1 - MAX_SNAPSHOTS
    if excess <= 0:
        return []
    named = {ref.snapshot_id for ref in metadata.refs.values()} | {metadata.current_snapshot_id}
    spared = {
        snapshot_id
        for snapshot in metadata.snapshots
        if not _appends(snapshot) and snapshot.timestamp_ms > now_ms - GRACE_MS
        for snapshot_id in (snapshot.parent_snapshot_id, snapshot.snapshot_id)
    }
    free = sorted(
        (snapshot.snapshot_id in spared, snapshot.sequence_number or 0, snapshot.snapshot_id)
        for snapshot in metadata.snapshots
        if snapshot.snapshot_id not in named
    )
    wanted = excess + MAX_SNAPSHOTS - KEPT_SNAPSHOTS
    return [snapshot_id for late, _, snapshot_id in free[:wanted] if not late] or [entry[2] for entry in free[:excess]]


def expired_files(index: ManifestIndex, old: TableMetadata, new: TableMetadata) -> list[str]:
    """Files of the table's own location that snapshots of `old` name and none of `new` does: data, manifests and lists.
    Those elsewhere are somebody else's. Blocking."""
    home, shape = new.location, shape_of(new.properties)
    kept_lists = {snapshot.manifest_list for snapshot in new.snapshots}
    lists = [snapshot.manifest_list for snapshot in old.snapshots if snapshot.manifest_list not in kept_lists]
    lists = [path for path in lists if is_inside(path, home)]
    if not lists:
        return []
    kept = {found.manifest_path: found for path in kept_lists for found in index.manifests(path)}
    gone = {found.manifest_path: found for path in lists for found in index.manifests(path)}
    gone = {path: found for path, found in gone.items() if path not in kept and is_inside(path, home)}
    dead = set().union(*(_named(index, found, shape) for found in gone.values()))
    if dead:
        dead -= set().union(*(_named(index, found, shape) for found in kept.values()))
    return [*sorted(path for path in dead if is_inside(path, home)), *sorted(gone), *lists]


def unlogged(old: TableMetadata, new: TableMetadata) -> list[str]:
    """Metadata files that the log of `old` names and that of `new` does not, if the table's properties let them go."""
    if not is_on(new.properties, "write.metadata.delete-after-commit.enabled", default=False):
        return []
    kept = {entry.metadata_file for entry in new.metadata_log}
    return [entry.metadata_file for entry in old.metadata_log if entry.metadata_file not in kept]


def delete_expired(
    files: MetadataFiles,
    index: ManifestIndex,
    old: TableMetadata,
    new: TableMetadata,
    updates: Sequence[TableUpdate],
    *,
    metadata_too: bool,
) -> None:
    """What one commit to a table in an external catalog made unreachable: the files of snapshots that this very commit
    expired, never of such as are only not shown, and with `metadata_too` the metadata files that its log no longer
    names. Blocking."""
    if metadata_too:
        files.delete(unlogged(old, new), new.location)
    expired = {
        snapshot_id
        for update in updates
        if isinstance(update, RemoveSnapshotsUpdate)
        for snapshot_id in update.snapshot_ids
    }
    if not expired:
        return
    retained = {snapshot.snapshot_id for snapshot in new.snapshots}
    known = [each for each in old.snapshots if each.snapshot_id in expired | retained]
    try:
        files.delete(expired_files(index, old.model_copy(update={"snapshots": known}), new), new.location)
    except (StorageError, Unavailable) as error:
        _log.warning("files of expired snapshots stay as orphans: %s", error)


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


def _appends(snapshot: Snapshot) -> bool:
    return snapshot.summary is not None and snapshot.summary.operation == Operation.APPEND


def _named(index: ManifestIndex, manifest: ManifestFile, shape: TableShape) -> set[str]:
    found = index.get(manifest, shape)
    return {file.path for file in found.files} | {file.path for file in found.deletes}
