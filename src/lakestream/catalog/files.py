"""Table metadata as files. Blocking: called on the catalog's own threads only."""

import logging
import os
import re
from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

from pydantic import ValidationError
from pyiceberg.exceptions import ValidationError as IcebergValidationError
from pyiceberg.serializers import FromInputFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import IcebergBaseModel

from lakestream.catalog.engines.properties import metadata_folder
from lakestream.catalog.sealed import SealedIO
from lakestream.catalog.threads import Cache, SideBySide
from lakestream.errors import CorruptObject, ObjectMissing, Unavailable
from lakestream.objects.paths import is_really_inside, local_path, really_inside

_log = logging.getLogger(__name__)

_CACHED_METADATA: Final = 64
_CACHED_SNAPSHOTS: Final = 2048
_TABLE_DEPTH: Final = 4
"""Folders that a table's first file may have made or changed: `<bucket>/tables/<table>/_iceberg`."""
_VERSIONED: Final = re.compile(r"(\d+)(?:-[^/]*)?\.metadata\.json$")


def version_of(metadata_location: str) -> int:
    """The number a metadata file's name begins with; -1 if it has none."""
    found = _VERSIONED.search(metadata_location.rsplit("/", 1)[-1])
    return int(found.group(1)) if found else -1


def reason(error: ValueError | IcebergValidationError) -> str:
    """Why a file is not what it should be, without a word of what is in it."""
    if not isinstance(error, ValidationError):
        return "it does not parse"
    found = error.errors(include_input=False, include_context=False, include_url=False)
    return "; ".join(f"{each['type']} at {'.'.join(map(str, each['loc'])) or 'its beginning'}" for each in found[:3])


def metadata_json(metadata: TableMetadata) -> str:
    """As it is stored. PyIceberg's own way refuses format version 3, whose rows it cannot write; a catalog need not."""
    return IcebergBaseModel.model_dump_json(metadata)


class MetadataFiles:
    """Reads (cached: a location is written once), writes durably, deletes."""

    def __init__(self, properties: Mapping[str, str], bucket_url: str) -> None:
        self.io: Final = SealedIO(dict(properties))
        self._bucket_url = bucket_url
        self._cache: Cache[TableMetadata] = Cache(_CACHED_METADATA)
        self._snapshots: Cache[tuple[Snapshot, str]] = Cache(_CACHED_SNAPSHOTS)
        self._beside = SideBySide("catalog-files")

    def read(self, location: str) -> TableMetadata:
        """The caller must not change what it gets."""
        known = self._cache.get(location)
        if known is not None:
            return known
        try:
            metadata = FromInputFile.table_metadata(self.io.new_input(location))
        except FileNotFoundError as error:
            raise ObjectMissing(f"table metadata {location} is missing") from error
        except OSError as error:
            raise Unavailable(f"table metadata {location} cannot be read now: {error}") from error
        except (ValidationError, IcebergValidationError, ValueError) as error:
            # What it says instead is not told: whoever asks may not be one to whom it belongs.
            raise CorruptObject(f"{location} is no table metadata: {reason(error)}") from error
        self._cache.put(location, metadata)
        return metadata

    def close(self) -> None:
        self._beside.close()

    def write(self, metadata: TableMetadata, version: int, unique: UUID, written: Iterable[str] = ()) -> str:
        """Stores metadata under a fresh name, so that it and the files that were `written` for it survive a power cut.
        Returns its location."""
        folder = metadata_folder(metadata.location, metadata.properties)
        names: list[str] = []
        file = self.io.new_sealed(f"{folder}/{version:05d}-{unique}.metadata.json", names.append)
        try:
            with file.create() as stream:
                stream.write(self.json(metadata).encode())
            self.sync([*written, *names], new_folders=version == 0)
        except OSError as error:
            self.delete(names, metadata.location)
            raise Unavailable(f"table metadata {file.location} cannot be written now: {error}") from error
        self._cache.put(file.location, metadata)
        return file.location

    def json(self, metadata: TableMetadata) -> str:
        """What `metadata_json` says, in another order. Most of it are snapshots, and nearly all of those are the very
        objects that the metadata before had: theirs is kept. They are frozen, so it cannot go stale."""
        if metadata.format_version == 1:
            return metadata_json(metadata)
        others = IcebergBaseModel.model_dump_json(metadata, exclude={"snapshots"})
        return f'{others[:-1]},"snapshots":[{",".join(map(self._snapshot_json, metadata.snapshots))}]}}'

    def _snapshot_json(self, snapshot: Snapshot) -> str:
        known = self._snapshots.get(snapshot.manifest_list)
        if known is not None and known[0] is snapshot:
            return known[1]
        text = snapshot.model_dump_json()
        self._snapshots.discard(snapshot.manifest_list)
        self._snapshots.put(snapshot.manifest_list, (snapshot, text))
        return text

    def sync(self, locations: Iterable[str], *, new_folders: bool = False) -> None:
        """Makes files that wait, and local ones and their directories durable, which object stores do on their own. All
        at once: a disk takes about as long for one as for several, and a distant store, too."""
        locations = list(locations)
        self._beside.run(self.io.make, locations)
        paths = [path for location in locations if (path := local_path(location)) is not None]
        folders = set()
        for path in paths:
            for _ in range(_TABLE_DEPTH if new_folders else 1):
                path = os.path.dirname(path)
                folders.add(path)
        self._beside.run(_fsync, [*paths, *folders])

    def make_folder(self, location: str) -> None:
        """On a local disk; object stores have none. Raises `Unavailable`."""
        path = local_path(location)
        try:
            if path is not None:
                os.makedirs(path, exist_ok=True)
        except OSError as error:
            raise Unavailable(f"folder {location} cannot be made now: {error}") from error

    def delete(self, locations: Iterable[str], home: str) -> None:
        """Deletes what is there and in `home`, the own location of the table or view: whatever else its metadata names
        is somebody else's. Outside of the bucket nothing is: another catalog may know a table that an operator let be
        registered here. In no order; a failure leaves an orphan behind and is only logged."""
        doomed = list(locations)
        if not doomed:
            return
        own = really_inside(doomed, home) if is_really_inside(home, self._bucket_url) else []
        if len(own) < len(doomed):
            strange = sorted(set(doomed) - set(own))
            _log.warning("%d files are not in %s and stay: %s …", len(strange), home, strange[0])
        self._beside.run(self._delete, own)

    def _delete(self, location: str) -> None:
        self._cache.discard(location)
        self.io.forget(location)
        try:
            self.io.delete(location)
        except FileNotFoundError:
            pass
        except OSError as error:
            _log.warning("%s could not be deleted and stays as an orphan: %s", location, error)


def _fsync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
