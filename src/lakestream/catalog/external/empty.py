"""Snapshots that change no row. A table in an external catalog begins with one: there are catalogs that let any number
of first commits through if a commit can only demand that there is no snapshot yet."""

from collections.abc import Iterator, Mapping

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import RemoveSnapshotsUpdate, TableUpdate

from lakestream.catalog.embedded.files import MetadataFiles
from lakestream.catalog.engines.changes import apply_updates
from lakestream.catalog.manifests.index import ManifestIndex
from lakestream.catalog.manifests.snapshot import SnapshotBuilder, SnapshotPlan
from lakestream.errors import Unavailable
from lakestream.runtime import Runtime


def empty_plan(runtime: Runtime, summary: Mapping[str, str]) -> SnapshotPlan:
    return SnapshotPlan(
        add=(),
        remove=frozenset(),
        summary=summary,
        snapshot_id=runtime.random.getrandbits(62) + 1,
        timestamp_ms=runtime.clock.now_ms(),
        unique=runtime.new_id(),
        version=0,
    )


def empty_snapshot(
    files: MetadataFiles, index: ManifestIndex, metadata: TableMetadata, plan: SnapshotPlan, written: list[str]
) -> Iterator[TableUpdate]:
    """On top of this metadata, whose snapshots all stay: others may still read them. Blocking."""
    for update in SnapshotBuilder(files, index, metadata, plan, written).build():
        if not isinstance(update, RemoveSnapshotsUpdate):
            yield update


def write_first(files: MetadataFiles, index: ManifestIndex, metadata: TableMetadata, plan: SnapshotPlan) -> list[str]:
    """The files that a table begins with, its metadata last. Blocking."""
    written: list[str] = []
    location = ""
    try:
        updates = SnapshotBuilder(files, index, metadata, plan, written).build()
        first = apply_updates(metadata, updates, None, validate=False)
        location = files.write(first, 0, plan.unique, written)
    except OSError as error:
        raise Unavailable(f"the first files of {metadata.location} cannot be written now: {error}") from error
    finally:
        if not location:
            files.delete(written, metadata.location)
    return [*written, location]
