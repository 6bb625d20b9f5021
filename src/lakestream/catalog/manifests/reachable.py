"""What a table's metadata still names, for whoever collects what nothing names any more."""

import re
from dataclasses import dataclass
from typing import Final

from pyiceberg.table.metadata import TableMetadata

from lakestream.catalog.files import version_of
from lakestream.catalog.manifests.index import ManifestIndex
from lakestream.table.schema import shape_of

_OURS: Final = re.compile(
    r"(?:snap-\d+-)?(\d{5,})-[0-9a-f-]{36}(?:(?:-m\d+)?(?:\.[0-9a-f]{8})?\.avro|(?:\.[0-9a-f]{8})?\.metadata\.json)"
)


@dataclass(frozen=True, slots=True)
class ReachableFiles:
    """`files`: every data file, delete file, manifest, manifest list and metadata file that a retained snapshot or
    the metadata log names. `version`: the table's metadata version at that moment."""

    version: int
    files: frozenset[str]

    def is_dead_metadata(self, path: str) -> bool:
        """Whether this is a metadata file of an attempt that has been decided and left nothing to read. No clock is
        asked: the file's name carries the version it was made for, and a version is decided once.
        Files that other engines named are never judged."""
        found = _OURS.fullmatch(path.rsplit("/", 1)[-1])
        return found is not None and int(found.group(1)) <= self.version and path not in self.files


def read_reachable(index: ManifestIndex, metadata: TableMetadata, location: str) -> ReachableFiles:
    """Blocking. Raises `StorageError` or `Unavailable` rather than leave anything out."""
    files = {location, *(entry.metadata_file for entry in metadata.metadata_log)}
    shape = shape_of(metadata.properties)
    manifests = {}
    for snapshot in metadata.snapshots:
        files.add(snapshot.manifest_list)
        manifests.update({found.manifest_path: found for found in index.manifests(snapshot.manifest_list)})
    for path, manifest in manifests.items():
        files.add(path)
        named = index.get(manifest, shape)
        files.update(file.path for file in named.files)
        files.update(file.path for file in named.deletes)
    return ReachableFiles(version_of(location), frozenset(files))
