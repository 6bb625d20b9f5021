"""What one commit of ours to a table in an external catalog made unreachable. Blocking."""

import logging
from collections.abc import Sequence

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import RemoveSnapshotsUpdate, TableUpdate
from pyiceberg.utils.properties import property_as_bool

from lakestream.catalog.expiry import expired_files
from lakestream.catalog.files import MetadataFiles
from lakestream.catalog.index import ManifestIndex
from lakestream.errors import StorageError, Unavailable

_log = logging.getLogger(__name__)


def delete_expired(
    files: MetadataFiles,
    index: ManifestIndex,
    old: TableMetadata,
    new: TableMetadata,
    updates: Sequence[TableUpdate],
    *,
    metadata_too: bool,
) -> None:
    """Deletes the files of snapshots that this very commit expired, never of such as are only not shown, and with
    `metadata_too` the metadata files that its log no longer names."""
    if metadata_too and property_as_bool(new.properties, "write.metadata.delete-after-commit.enabled", False):
        kept = {entry.metadata_file for entry in new.metadata_log}
        files.delete(entry.metadata_file for entry in old.metadata_log if entry.metadata_file not in kept)
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
        files.delete(expired_files(index, old.model_copy(update={"snapshots": known}), new))
    except (StorageError, Unavailable) as error:
        _log.warning("files of expired snapshots stay as orphans: %s", error)
