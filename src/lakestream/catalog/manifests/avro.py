"""Manifests and manifest lists as PyIceberg writes them, at less cost.

PyIceberg works out anew for each file what its columns are and how they are written, which takes longer than to write a
few entries, and packs every entry on its own. Here the first is kept, and all that a file has is one block. A data file
is written again whenever manifests are merged, and a manifest into each list: their bytes are kept with them. Tables of
another format version than 2 are written as PyIceberg does it. Blocking: called on the catalog's own threads only.
"""

import json
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from io import BytesIO
from types import TracebackType
from typing import Final, NamedTuple, Self, TypeVar

from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.file import MAGIC, META_SCHEMA, SYNC_SIZE, AvroFileHeader, AvroOutputFile
from pyiceberg.avro.resolver import construct_writer, resolve_writer
from pyiceberg.avro.writer import StructWriter, Writer
from pyiceberg.io import OutputFile
from pyiceberg.manifest import (
    DEFAULT_READ_VERSION,
    MANIFEST_LIST_FILE_SCHEMAS,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
    ManifestListWriter,
    ManifestListWriterV2,
    ManifestWriter,
    ManifestWriterV2,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import Record, TableVersion
from pyiceberg.types import StructType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

_CODEC: Final = "deflate"
_VERSION: Final[TableVersion] = 2
_KEPT_FORMS: Final = 64
_DATA_FILE: Final = 2
"""The field of an entry, by its id."""
_COLUMNS: Final = "avro.schema"
_BYTES: Final = "written as"
R = TypeVar("R", bound=Record)


def manifest_writer(
    metadata: TableMetadata, spec_id: int, file: OutputFile, snapshot_id: int, *, deletes: bool = False
) -> ManifestWriter:
    """`deletes`: its files are of deleted rows; in format version 2 alone."""
    spec, schema = metadata.specs()[spec_id], metadata.schema()
    if deletes:
        return _DeleteManifest(spec, schema, file, snapshot_id, _CODEC)
    if metadata.format_version == _VERSION:
        return _Manifest(spec, schema, file, snapshot_id, _CODEC)
    return write_manifest(metadata.format_version, spec, schema, file, snapshot_id, _CODEC)


def list_writer(
    metadata: TableMetadata, file: OutputFile, snapshot_id: int, parent: Snapshot | None
) -> ManifestListWriter:
    parent_id, sequence_number = None if parent is None else parent.snapshot_id, metadata.next_sequence_number()
    if metadata.format_version == _VERSION:
        return _ManifestList(file, snapshot_id, parent_id, sequence_number, _CODEC)
    return write_manifest_list(metadata.format_version, file, snapshot_id, parent_id, sequence_number, _CODEC)


class _Form(NamedTuple):
    """Which columns the entries of a file have, as it says it, and how they are written. Immutable."""

    columns: str
    writer: Writer


def _form(schema: Schema, name: str, writer: Writer) -> _Form:
    return _Form(json.dumps(AvroSchemaConversion().iceberg_to_avro(schema, schema_name=name)), writer)


@dataclass(frozen=True)
class _Keeping(Writer):
    """Keeps the bytes of a data file, or of a manifest in its list, with it: neither changes once it is written."""

    writer: Writer

    def write(self, encoder: BinaryEncoder, val: Record) -> None:
        known = vars(val).get(_BYTES)
        if known is None or known[0] is not self:
            buffer = BytesIO()
            self.writer.write(BinaryEncoder(buffer), val)
            known = vars(val)[_BYTES] = self, buffer.getvalue()
        encoder.write(known[1])


@lru_cache(_KEPT_FORMS)
def _manifest_form(partition: StructType) -> _Form:
    def entries(version: TableVersion) -> Schema:
        return manifest_entry_schema_with_data_file(version, data_file_with_partition(partition, version))

    schema, record = entries(_VERSION), entries(DEFAULT_READ_VERSION)
    writer = resolve_writer(record_schema=record, file_schema=schema)
    assert isinstance(writer, StructWriter)
    place = [field.field_id for field in record.fields].index(_DATA_FILE)
    fields = ((at, _Keeping(field) if at == place else field) for at, field in writer.field_writers)
    return _form(schema, "manifest_entry", StructWriter(tuple(fields)))


@lru_cache(1)
def _list_form() -> _Form:
    schema, record = MANIFEST_LIST_FILE_SCHEMAS[_VERSION], MANIFEST_LIST_FILE_SCHEMAS[DEFAULT_READ_VERSION]
    return _form(schema, "manifest_file", _Keeping(resolve_writer(record_schema=record, file_schema=schema)))


class _OneBlock(AvroOutputFile[R]):
    def __init__(self, file: OutputFile, form: _Form, metadata: dict[str, str]) -> None:
        # Instead of PyIceberg's own, which works the form out.
        self.output_file = file
        self.writer = form.writer
        self.metadata = {**metadata, _COLUMNS: form.columns}
        # As good as by chance: names are never used twice.
        self.sync_bytes = blake2b(file.location.encode(), digest_size=SYNC_SIZE).digest()
        self._waiting: list[R] = []

    def __enter__(self) -> Self:
        self.output_stream = self.output_file.create(overwrite=True)
        self.encoder = BinaryEncoder(self.output_stream)
        construct_writer(META_SCHEMA).write(self.encoder, AvroFileHeader(MAGIC, self.metadata, self.sync_bytes))
        return self

    def write_block(self, objects: list[R]) -> None:
        """At the end, with all others."""
        self._waiting += objects

    def __exit__(
        self, exctype: type[BaseException] | None, excinst: BaseException | None, exctb: TracebackType | None
    ) -> None:
        if exctype is None:
            super().write_block(self._waiting)
        super().__exit__(exctype, excinst, exctb)


class _Manifest(ManifestWriterV2):
    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        form = _manifest_form(self._spec.partition_type(self._schema))
        return _OneBlock[ManifestEntry](self._output_file, form, self._meta)


class _DeleteManifest(_Manifest):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _ManifestList(ManifestListWriterV2):
    def __enter__(self) -> Self:
        self._writer = _OneBlock[ManifestFile](self._output_file, _list_form(), self._meta)
        self._writer.__enter__()
        return self

    def add_manifests(self, manifest_files: list[ManifestFile]) -> Self:
        """That are prepared: PyIceberg would do it here, and would give away copies."""
        self._writer.write_block(manifest_files)
        return self
