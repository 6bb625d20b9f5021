"""The live files that manifests name, kept per manifest: a manifest never changes, so only new ones are read.

Blocking: called on the catalog's own threads only.
"""

import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyiceberg.avro.file import AvroFile
from pyiceberg.exceptions import ResolveError, ValidationError
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    MANIFEST_ENTRY_SCHEMAS,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    read_manifest_list,
)
from pyiceberg.manifest import DataFile as IcebergFile

from lakestream.catalog.manifests.deletions import to_deletes
from lakestream.catalog.manifests.merge import MERGEABLE_ENTRIES
from lakestream.catalog.manifests.vetted import careful, vetted
from lakestream.catalog.threads import Cache
from lakestream.errors import CorruptObject, ObjectMissing, Unavailable
from lakestream.model import DataFile, PositionDeletes
from lakestream.table.reading.files import FilePart
from lakestream.table.schema import STREAM_SPEC_ID
from lakestream.table.shape import RAW, TableShape

_PLACE: Final = ("_stream_partition", "_offset")
_INT: Final = struct.Struct("<i")
_LONG: Final = struct.Struct("<q")
_UNREADABLE: Final = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    AssertionError,
    ArithmeticError,
    EOFError,
    MemoryError,
    RecursionError,
    ResolveError,
    SystemError,
    ValidationError,
    struct.error,
    zlib.error,
)
"""What PyIceberg raises over an Avro file that is none: it reads other engines' files, which nothing vouches for."""
_CACHED_ENTRIES: Final = 2_000_000
_CACHED_LISTS: Final = 512
_KEPT_ENTRIES: Final = 2_000
"""Of manifests that were written here and may be merged: as a rule all that the next commits will merge."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What one manifest names as live."""

    files: FilePart
    deletes: tuple[PositionDeletes, ...]


def read_manifests(io: FileIO, manifest_list: str) -> list[ManifestFile]:
    return _read_list(vetted(io, try_manifest_list), manifest_list)


def read_entries(io: FileIO, manifest: ManifestFile, *, live: bool = True) -> list[ManifestEntry]:
    """The entries with what they inherit from the manifest; the deleted ones too unless `live`."""
    return _read_entries(vetted(io, try_manifest, manifest.manifest_length), manifest, live=live)


def try_manifest_list(path: str, data: bytes) -> None:
    """An `Attempt`."""
    _read_list(careful(path, data), path)


def try_manifest(path: str, data: bytes) -> None:
    """An `Attempt`. What entries inherit does not change how they are read, nor do the ids of their columns."""
    _manifest(_read_entries(careful(path, data), _alone(path, data), live=False), RAW)


def try_deletes(path: str, data: bytes) -> None:
    """An `Attempt`: the same for manifests of deletes."""
    _manifest(_read_deletes(careful(path, data), _alone(path, data)), RAW)


def _alone(path: str, data: bytes) -> ManifestFile:
    return ManifestFile.from_args(
        manifest_path=path,
        manifest_length=len(data),
        partition_spec_id=0,
        content=ManifestContent.DATA,
        sequence_number=0,
        min_sequence_number=0,
        added_snapshot_id=0,
    )


def _read_list(io: FileIO, path: str) -> list[ManifestFile]:
    try:
        return list(read_manifest_list(io.new_input(path)))
    except FileNotFoundError as error:
        raise ObjectMissing(f"manifest list {path} is missing") from error
    except OSError as error:
        raise Unavailable(f"manifest list {path} cannot be read now: {error}") from error
    except _UNREADABLE as error:
        raise CorruptObject(f"manifest list {path} does not parse: {error}") from error


def _read_entries(io: FileIO, manifest: ManifestFile, *, live: bool) -> list[ManifestEntry]:
    return _parsed(manifest.manifest_path, lambda: manifest.fetch_manifest_entry(io, discard_deleted=live))


def _read_deletes(io: FileIO, manifest: ManifestFile) -> list[ManifestEntry]:
    """The live entries with all that format version 3 has for them: PyIceberg's own way leaves that out."""

    def read() -> list[ManifestEntry]:
        with AvroFile[ManifestEntry](
            io.new_input(manifest.manifest_path),
            MANIFEST_ENTRY_SCHEMAS[3],
            read_types={-1: ManifestEntry, 2: IcebergFile},
            read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
        ) as entries:
            live = [entry for entry in entries if entry.status != ManifestEntryStatus.DELETED]
        for entry in live:
            entry.data_file.spec_id = manifest.partition_spec_id
        return live

    return _parsed(manifest.manifest_path, read)


def _parsed(path: str, read: Callable[[], list[ManifestEntry]]) -> list[ManifestEntry]:
    try:
        return read()
    except FileNotFoundError as error:
        raise ObjectMissing(f"manifest {path} is missing") from error
    except OSError as error:
        raise Unavailable(f"manifest {path} cannot be read now: {error}") from error
    except _UNREADABLE as error:
        raise CorruptObject(f"manifest {path} does not parse: {error}") from error


class ManifestIndex:
    """Bounded by entries."""

    def __init__(self, io: FileIO, *, max_entries: int = _CACHED_ENTRIES) -> None:
        self._io = io
        self._manifests: Cache[Manifest] = Cache(max_entries, _weight)
        self._lists: Cache[tuple[ManifestFile, ...]] = Cache(_CACHED_LISTS)
        self._entries: Cache[Sequence[ManifestEntry]] = Cache(_KEPT_ENTRIES, len)
        self.reads = 0
        """How many manifests were read so far."""

    def manifests(self, manifest_list: str) -> tuple[ManifestFile, ...]:
        """The manifests of a snapshot. Shared: never change them."""
        known = self._lists.get(manifest_list)
        if known is None:
            known = tuple(read_manifests(self._io, manifest_list))
            self._lists.put(manifest_list, known)
        return known

    def get(self, manifest: ManifestFile, shape: TableShape) -> Manifest:
        """`shape` is that of the manifest's table: where columns of the log have their ids, it has them for good."""
        known = self._manifests.get(manifest.manifest_path)
        if known is None:
            self.reads += 1
            if manifest.content == ManifestContent.DELETES:
                known = _manifest(
                    _read_deletes(vetted(self._io, try_deletes, manifest.manifest_length), manifest), shape
                )
            else:
                known = _manifest(read_entries(self._io, manifest), shape)
            self._manifests.put(manifest.manifest_path, known)
        return known

    def take_entries(self, manifest: ManifestFile) -> Sequence[ManifestEntry]:
        """What `read_entries` gives, for whoever puts another manifest in the place of this one: as a rule nobody asks
        again, so they are not kept longer."""
        known = self._entries.get(manifest.manifest_path)
        self._entries.discard(manifest.manifest_path)
        return read_entries(self._io, manifest) if known is None else known

    def written(
        self,
        manifest_list: str,
        manifests: Sequence[ManifestFile],
        live: Mapping[str, Sequence[ManifestEntry]],
        shape: TableShape,
    ) -> None:
        """Takes over a list that was just written, and the live entries of those of its manifests that are new: they
        need not be read again. In format version 1 they would be other ones: it stores no sequence numbers."""
        self._lists.put(manifest_list, tuple(manifests))
        for manifest in manifests:
            entries = live.get(manifest.manifest_path)
            if entries is not None:
                _inherit(entries, manifest)
                self._manifests.put(manifest.manifest_path, _manifest(entries, shape))
                if len(entries) <= MERGEABLE_ENTRIES:
                    self._entries.put(manifest.manifest_path, entries)


def _weight(manifest: Manifest) -> int:
    return 1 + len(manifest.files) + len(manifest.deletes)


def _inherit(entries: Sequence[ManifestEntry], manifest: ManifestFile) -> None:
    for entry in entries:
        if entry.sequence_number is None:
            entry.sequence_number = manifest.sequence_number
        if entry.file_sequence_number is None:
            entry.file_sequence_number = manifest.sequence_number


def _manifest(entries: Sequence[ManifestEntry], shape: TableShape) -> Manifest:
    files, deletes = [], []
    for entry in entries:
        file = entry.data_file
        if file.content == DataFileContent.DATA:
            files.append(to_data_file(file, shape))
        else:
            deletes.append(to_deletes(file))
    return Manifest(FilePart(files), tuple(deletes))


def _data_trouble(file: IcebergFile, shape: TableShape) -> str:
    if file.file_format != FileFormat.PARQUET:
        return (
            f"{file.file_path} is {file.file_format.value}, and streams are served from Parquet only: set"
            " write.format.default=parquet"
        )
    nulls = file.null_value_counts or {}
    for name in _PLACE:
        missing = nulls.get(shape.field_id(name))
        if missing:
            return (
                f"{file.file_path} has {missing} rows without {name}, so they have no place in the stream:"
                " produce new records to the topic instead"
            )
    return ""


def to_data_file(file: IcebergFile, shape: TableShape) -> DataFile:
    partition, offset, timestamp = map(shape.field_id, ("_stream_partition", "_offset", "_timestamp"))
    lower, upper = file.lower_bounds or {}, file.upper_bounds or {}
    timestamp_min_us, timestamp_max_us = _bound(_LONG, lower, timestamp), _bound(_LONG, upper, timestamp)
    return DataFile(
        path=file.file_path,
        record_count=file.record_count,
        size_bytes=file.file_size_in_bytes,
        partition_min=_bound(_INT, lower, partition),
        partition_max=_bound(_INT, upper, partition),
        offset_min=_bound(_LONG, lower, offset),
        offset_max=_bound(_LONG, upper, offset),
        timestamp_max_ms=None if timestamp_max_us is None else timestamp_max_us // 1000,
        spec_id=file.spec_id,
        trouble=_data_trouble(file, shape),
        timestamp_min_ms=None if timestamp_min_us is None else timestamp_min_us // 1000,
        place=_place(file) if file.spec_id > STREAM_SPEC_ID else (),
        order_id=file.sort_order_id or 0,
    )


def _place(file: IcebergFile) -> tuple[object, ...]:
    return tuple(file.partition[position] for position in range(len(file.partition)))


def _bound(kind: struct.Struct, bounds: dict[int, bytes], field_id: int) -> int | None:
    """A bound of another width than the column's says nothing."""
    data = bounds.get(field_id)
    if data is None or len(data) != kind.size:
        return None
    value: int = kind.unpack(data)[0]
    return value
