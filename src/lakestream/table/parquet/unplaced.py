"""Rows that an engine wrote without offsets, as columns of records that are still to be produced."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakestream.errors import CorruptObject, LakestreamError, ObjectMissing, TableRefused
from lakestream.objects import ObjectStore
from lakestream.records import Binary, Columns
from lakestream.records.layout import MAX_TIMESTAMP_MS
from lakestream.table.parquet.arrow import canonical, from_arrow, valid_rows
from lakestream.table.parquet.codec import decoded, encoded
from lakestream.table.parquet.files import ParquetFiles
from lakestream.table.parquet.footers import ParquetFooter
from lakestream.table.shape import RAW, TableShape

_GIVEN: Final = ("_stream_partition", "_timestamp", "_key", "_headers", "_value")
"""What an insert may say of a record."""
_OWED: Final = ("_offset", "_timestamp_type", "_kind", "_headers_raw", "_schema_id", "_crc")
"""What the log says of it."""
NOT_GIVEN: Final = -1
WHOLE: Final = 0
"""Stands for the schema of values that are text as a whole."""


class UnplacedFile(NamedTuple):
    """`record_count`: as the engine's manifest has it."""

    path: str
    record_count: int


class WrittenBy(NamedTuple):
    """How values are made of a row's columns: by the schema of this id in the table's shape, if the shape has a codec.
    `trouble`: why they cannot be; empty: they can. Rows may then say their `_value` only. `bytes_trouble`: why they may
    not do that. `keys`: the columns whose values are the key of a row that has none. `format`: the template of
    values in JSON."""

    shape: TableShape
    schema_id: int = NOT_GIVEN
    trouble: str = ""
    bytes_trouble: str = ""
    keys: tuple[str, ...] = ()
    format: str = ""


@dataclass(frozen=True, slots=True)
class UnplacedRows:
    """Some rows, in their order. `partition` is `NOT_GIVEN` where the engine left that to us. The columns' partition,
    offset and checksum mean nothing."""

    columns: Columns
    partition: npt.NDArray[np.int32]


class UnplacedReader:
    def __init__(self, store: ObjectStore) -> None:
        self._files = ParquetFiles(store)

    async def read(
        self, files: Sequence[UnplacedFile], written: WrittenBy, *, partitions: int, now_ms: int, max_bytes: int
    ) -> list[UnplacedRows]:
        """The rows of all files, in their order. Raises `TableRefused` with a sentence for files that are no such rows,
        or more than `max_bytes` as columns; `Unavailable`."""
        footers = await self._files.footers([file.path for file in files])
        size_bytes = 0
        found: list[UnplacedRows] = []
        for file, footer in zip(files, footers, strict=True):
            checked = _checked(file, footer)
            size_bytes += sum(group.size_bytes for group in checked.groups)
            if size_bytes > max_bytes:
                raise TableRefused(
                    f"the rows take more than {max_bytes} bytes, the most that one INSERT into a stream may: insert"
                    " them in several statements"
                )
        for file, footer in zip(files, footers, strict=True):
            found += await self._read(file, _checked(file, footer), _converted(written, partitions, now_ms))
        return found

    async def _read(
        self, file: UnplacedFile, footer: ParquetFooter, convert: Callable[[pa.Table], list[UnplacedRows]]
    ) -> list[UnplacedRows]:
        columns = list(dict.fromkeys(leaf.split(".", 1)[0] for leaf in footer.leaves))
        found = []
        for group in footer.groups:
            try:
                found += await self._files.read(group, footer, columns, convert, pieces=True)
            except CorruptObject as error:
                raise TableRefused(f"{file.path} cannot be inserted: {error}") from error
        return found


def _checked(file: UnplacedFile, footer: ParquetFooter | LakestreamError) -> ParquetFooter:
    if isinstance(footer, ObjectMissing):
        raise TableRefused(f"the commit names a file that is not there: {footer}") from footer
    if isinstance(footer, CorruptObject):
        raise TableRefused(f"{file.path} cannot be inserted: {footer}") from footer
    if isinstance(footer, LakestreamError):
        raise footer
    if footer.metadata.num_rows != file.record_count:
        raise TableRefused(f"{file.path} has {footer.metadata.num_rows} rows, and the commit says {file.record_count}")
    return footer


def _converted(written: WrittenBy, partitions: int, now_ms: int) -> Callable[[pa.Table], list[UnplacedRows]]:
    def convert(table: pa.Table) -> list[UnplacedRows]:
        return [_rows(pa.Table.from_batches([piece]), written, partitions, now_ms) for piece in table.to_batches()]

    return convert


def _rows(table: pa.Table, written: WrittenBy, partitions: int, now_ms: int) -> UnplacedRows:
    _check_columns(table, written.shape)
    rows = table.num_rows
    partition = _partitions(table, partitions)
    timestamp = _timestamps(table, now_ms)
    made: dict[str, pa.Array | pa.ChunkedArray] = {
        "_stream_partition": pa.array(np.zeros(rows, np.int32)),
        "_offset": pa.array(np.arange(rows, dtype=np.int64)),
        "_timestamp": timestamp,
        "_timestamp_type": pa.array(np.zeros(rows, np.int32)),
        "_crc": pa.array(np.zeros(rows, np.int32)),
    }
    made |= {name: table.column(name) for name in ("_key", "_headers", "_value") if name in table.column_names}
    if any(name in table.column_names for name in written.keys):
        by_columns = key_of(table, written)
        made["_key"] = pc.coalesce(made["_key"].cast(pa.binary()), by_columns) if "_key" in made else by_columns
    columns = from_arrow(pa.table(made), RAW)
    if len(columns.header_key.valid):
        first, last = int(columns.header_offsets[0]), int(columns.header_offsets[-1])
        if not columns.header_key.valid[first:last].all():
            raise TableRefused("a header without a key cannot be a record's: give each entry of _headers a key")
    return UnplacedRows(replace(columns, value=_values(table, columns.value, written)), partition)


def key_of(table: pa.Table, written: WrittenBy) -> pa.ChunkedArray | pa.Array:
    """One column as text, or as bytes if it is those; several as an array of texts in JSON. None where one is null."""
    texts = []
    for name in written.keys:
        if name not in table.column_names:
            return pa.nulls(table.num_rows, pa.binary())
        column = canonical(table, [name], written.shape).column(0)
        if pa.types.is_binary(column.type) and len(written.keys) == 1:
            return column
        try:
            texts.append(column.cast(pa.string()))
        except pa.ArrowException as error:
            raise TableRefused(
                f"column {name} of lakestream.key is no text, so it cannot be in a key: {error}"
            ) from error
    if len(texts) == 1:
        return texts[0].cast(pa.binary())
    rows = zip(*(text.to_pylist() for text in texts), strict=True)
    keys = [
        None if None in row else json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() for row in rows
    ]
    return pa.array(keys, pa.binary())


def _values(table: pa.Table, raw: Binary, written: WrittenBy) -> Binary:
    """Of the value columns where one of them is given, else as `_value` says."""
    names = [column.name for column in written.shape.value_columns if column.content != "format"]
    given = np.zeros(table.num_rows, bool)
    for name in names:
        if name in table.column_names:
            given |= pc.is_valid(table.column(name)).to_numpy()
    if written.bytes_trouble and (raw.valid != 0).any():
        raise TableRefused(written.bytes_trouble)
    if not given.any():
        return raw
    if (given & (raw.valid != 0)).any():
        raise TableRefused("a row has both _value and columns of the value: leave one of them out of the INSERT")
    if written.trouble:
        raise TableRefused(written.trouble)
    columns = {name: canonical(table, [name], written.shape).column(0).chunk(0) for name in names}
    ids = np.where(given, written.schema_id, NOT_GIVEN).astype(np.int64)
    formats = pa.DictionaryArray.from_arrays(pa.array(np.zeros(table.num_rows, np.int32)), [written.format])
    others = {column.name: formats for column in written.shape.value_columns if column.name not in columns}
    made = encoded(written.shape, columns | others, ids, raw)
    _check_values(made, columns, given, written)
    return replace(made, valid=np.where(given, 1, made.valid).astype(np.uint8))


def _check_values(
    made: Binary, columns: Mapping[str, pa.Array], given: npt.NDArray[np.bool_], written: WrittenBy
) -> None:
    """That what was made says all that was given: what comes out of it is what went in. A null says nothing: it is what
    the schema has for a field that is left out, in Protobuf perhaps 0."""
    buffers = [pa.py_buffer(np.packbits(given, bitorder="little")), pa.py_buffer(made.offsets), pa.py_buffer(made.data)]
    back = decoded(written.shape, pa.Array.from_buffers(pa.binary(), len(given), buffers))
    assert back is not None
    is_made = (np.diff(made.offsets) > 0) | (written.schema_id == WHOLE)
    if not (is_made & back.is_typed)[given].all():
        raise TableRefused(
            "a row cannot be written by the schema of the topic's values: fields that must be there are null, or hold"
            " what their types do not take"
        )
    for name, column in columns.items():
        rows = pa.array(np.flatnonzero(given & (valid_rows(column) != 0)))
        before, after = column.take(rows), back.columns[name].take(rows)
        if not before.equals(after) and repr(before.to_pylist()) != repr(after.to_pylist()):
            raise TableRefused(
                f"what column {name} holds cannot be written by the schema of the topic's values, and would be lost:"
                " leave the column out of the INSERT, or register a schema that has it"
            )


def _check_columns(table: pa.Table, shape: TableShape) -> None:
    """That nothing was given which would be lost, or is the log's to give."""
    values = {column.name for column in shape.value_columns if column.content != "format"}
    if len(set(table.column_names)) != len(table.column_names):
        raise TableRefused("the file has a column twice")
    for name in table.column_names:
        if name in _GIVEN or name in values or table.column(name).null_count == table.num_rows:
            continue
        if name == "_offset":
            raise TableRefused(
                "some rows have an _offset: offsets are the log's to give. Leave _offset out of the INSERT, and it"
                " gives them"
            )
        if name in _OWED or name in shape.names:
            raise TableRefused(f"{name} is the log's to give: leave it out of the INSERT")
        raise TableRefused(
            f"column {name} is no part of the records of this stream, so its values would be lost: leave it out of the"
            " INSERT, and UPDATE the rows when they are in the table"
        )


def _partitions(table: pa.Table, partitions: int) -> npt.NDArray[np.int32]:
    if "_stream_partition" not in table.column_names:
        return np.full(table.num_rows, NOT_GIVEN, np.int32)
    column = table.column("_stream_partition").cast(pa.int32())
    bounds = pc.min_max(column)
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    if low is not None and (low < 0 or high >= partitions):
        wrong = low if low < 0 else high
        raise TableRefused(f"there is no partition {wrong}: the topic has {partitions}, from 0 on")
    filled: npt.NDArray[np.int32] = column.fill_null(NOT_GIVEN).to_numpy().astype(np.int32)
    return filled


def _timestamps(table: pa.Table, now_ms: int) -> pa.Array:
    kind = pa.timestamp("us", tz="UTC")
    now = pa.scalar(now_ms * 1000, pa.int64()).cast(kind)
    if "_timestamp" not in table.column_names:
        return pa.repeat(now, table.num_rows)
    column = table.column("_timestamp").cast(kind).combine_chunks()
    micros = column.cast(pa.int64()).fill_null(0).to_numpy()
    wrong = (valid_rows(column) != 0) & ((micros < 0) | (micros // 1000 > MAX_TIMESTAMP_MS))
    if wrong.any():
        raise TableRefused("a record's _timestamp is from 1970 to 9999: another cannot be produced")
    return column.fill_null(now)
