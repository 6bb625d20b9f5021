"""Snapshots that change no row. A table in an external catalog begins with one: there are catalogs that let any number
of first commits through if a commit can only demand that there is no snapshot yet."""

from collections.abc import Iterator

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import RemoveSnapshotsUpdate, TableUpdate

from lakestream.catalog.engines.changes import apply_updates
from lakestream.catalog.manifests.snapshot import SnapshotPlan
from lakestream.catalog.staging import Stager


def empty_snapshot(
    stager: Stager, metadata: TableMetadata, plan: SnapshotPlan, written: list[str]
) -> Iterator[TableUpdate]:
    """On top of this metadata, whose snapshots all stay: others may still read them. Blocking."""
    for update in stager.snapshot(metadata, plan, written):
        if not isinstance(update, RemoveSnapshotsUpdate):
            yield update


def write_first(stager: Stager, metadata: TableMetadata, plan: SnapshotPlan) -> list[str]:
    """The files that a table begins with, its metadata last. Blocking."""

    def work(written: list[str]) -> list[str]:
        first = apply_updates(metadata, stager.snapshot(metadata, plan, written), None, validate=False)
        location = stager.files.write(first, 0, plan.unique, written)
        return [*written, location]

    return stager.guarded(f"the first files of {metadata.location}", metadata.location, work)
