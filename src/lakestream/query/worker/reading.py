"""A stream's rows for DuckDB: table and tail as one dataset that is read anew by each scan, only what the scan needs.

DuckDB hands columns and filter of a scan to what it takes for an Arrow dataset, and relies on the filter. What is
read runs on an event loop beside DuckDB's threads, one piece ahead of them.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, TypeVar
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import StaticTable

from lakestream.errors import LakestreamError, RetryableError
from lakestream.frontier.moving.tiles.decoding import borrowed_arena, decode_slices
from lakestream.frontier.moving.tiles.reading import read_tile
from lakestream.frontier.moving.tiles.tile import Tile
from lakestream.query.sources import SnapshotSource, StreamSource
from lakestream.query.worker.pruning import (
    keys_in,
    known_of_file,
    known_of_group,
    known_of_tile,
    possible,
    without_keys,
)
from lakestream.query.worker.stores import open_store, wal_of
from lakestream.records import Columns
from lakestream.records.framing import unknown_ids
from lakestream.table.parquet.arrow import arrow_schema, to_arrow
from lakestream.table.parquet.files import ParquetFiles
from lakestream.table.reading.keyed import KeyReader
from lakestream.table.reading.rows import DecodedGroup
from lakestream.table.reading.scanning import scan_files
from lakestream.table.shape import KIND_RAW, TableShape, key_shape

T = TypeVar("T")

BATCH_ROWS: Final = 16_384


class UnknownSchemas(RetryableError):
    """The tail of a stream has values of schemas that its table does not know yet."""

    def __init__(self, topic_id: UUID) -> None:
        super().__init__(f"the table of {topic_id} has to learn a schema first")
        self.topic_id = topic_id


class Loop:
    """An event loop on a thread of its own, for all of this process. `failure`: what a read of the present query ended
    with, which DuckDB tells in its own words only."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self.failure: LakestreamError | None = None
        threading.Thread(target=self._loop.run_forever, name="reads", daemon=True).start()

    def begin(self, work: Coroutine[Any, Any, T]) -> "asyncio.Future[T]":
        return asyncio.run_coroutine_threadsafe(work, self._loop)  # type: ignore[return-value]

    def each(self, tables: AsyncIterator[pa.Table]) -> Iterator[pa.Table]:
        """The next is read while one is used."""

        async def following() -> pa.Table | None:
            return await anext(tables, None)

        begun = self.begin(following())
        try:
            while (table := begun.result()) is not None:
                begun = self.begin(following())
                yield table
        except LakestreamError as error:
            self.failure = self.failure or error
            raise
        finally:
            begun.cancel()


class _Scan:
    """What DuckDB takes for a scanner."""

    def __init__(self, schema: pa.Schema, tables: Iterator[pa.Table]) -> None:
        self.projected_schema = schema
        self._tables = tables

    def to_reader(self) -> pa.RecordBatchReader:
        batches = (batch for table in self._tables for batch in table.to_batches(max_chunksize=BATCH_ROWS))
        return pa.RecordBatchReader.from_batches(self.projected_schema, batches)


class StreamDataset(ds.Dataset):  # type: ignore[misc]
    """`columns` are named in the order of the shape."""

    def __init__(self, rows: StreamSource, loop: Loop) -> None:
        self._rows = rows
        self._loop = loop
        self._schema = plain_schema(rows.shape)

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def scanner(
        self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None, **_more: object
    ) -> _Scan:
        names = [*(self._schema.names if columns is None else columns)]
        projected = pa.schema([self._schema.field(name) for name in names])
        read = names if filter is None or _fits(projected, filter) else self._schema.names
        tables = _narrowed(self._loop.each(self._tables(read, filter)), projected, filter)
        return _Scan(projected, tables)

    async def _tables(self, names: Sequence[str], condition: pc.Expression | None) -> AsyncIterator[pa.Table]:
        rows, schema = self._rows, self._schema
        stored = open_store(rows.location)

        keys, reader = keys_in(condition), key_reader(rows.location)

        async def wanted(group: DecodedGroup) -> bool:
            known = known_of_group(group, schema)
            if condition is None or not possible(schema, condition, [known]):
                return condition is None
            absent = [key for key in keys if not await reader.may_hold(group, key)]
            return not absent or bool(possible(schema, condition, without_keys(known, absent)))

        files = [rows.files[number] for number in possible(schema, condition, [*map(known_of_file, rows.files)])]
        if files:
            scan = scan_files(ParquetFiles(stored), files, rows.deletes, rows.below, names, rows.shape, wanted=wanted)
            async for table in scan:
                yield table
        for number in possible(schema, condition, [*map(known_of_tile, rows.tiles)]):
            async for table in read_tail(rows.tiles[number], rows):
                yield table


async def read_tail(tile: Tile, rows: StreamSource, key: bytes | None = None) -> AsyncIterator[pa.Table]:
    """The rows of a tile, or those with this key."""
    held = await read_tile(tile, wal_of(tile))
    with borrowed_arena() as arena:
        for columns in decode_slices(tile, tile.slices, held, arena):
            table = to_arrow(columns, rows.shape, is_typed=tile.is_typed, is_key_typed=tile.is_key_typed)
            if rows.needs_schemas:
                _check_schemas(tile, columns, table)
            mask = pa.array(rows.above.holds(columns.partition, columns.offset))
            if key is not None:
                mask = pc.and_(mask, pc.fill_null(pc.equal(table.column("_key"), pa.scalar(key, pa.binary())), False))
            # The arena is used again while these rows are still read.
            yield _copied(table.filter(mask))


def _check_schemas(tile: Tile, columns: Columns, table: pa.Table) -> None:
    """Only where values stayed bytes can there be ids that are not known."""
    unknown: frozenset[int] = frozenset()
    if tile.has_ids and np.any(table.column("_kind").to_numpy() == KIND_RAW):
        unknown = unknown_ids(columns.value, [schema.schema_id for schema in tile.shape.schemas], 1)
    if tile.has_key_ids:
        unknown |= unknown_ids(columns.key, [schema.schema_id for schema in key_shape(tile.shape).schemas], 1)
    if unknown:
        raise UnknownSchemas(tile.topic_id)


class SnapshotDataset(ds.Dataset):  # type: ignore[misc]
    """A snapshot of a table as PyIceberg reads it, for tables that are not the present one of a stream."""

    def __init__(self, rows: SnapshotSource) -> None:
        self._table = StaticTable.from_metadata(rows.metadata_location, dict(rows.io))
        self._snapshot_id = rows.snapshot_id
        snapshot = None if rows.snapshot_id is None else self._table.metadata.snapshot_by_id(rows.snapshot_id)
        schemas = self._table.schemas()
        known = None if snapshot is None or snapshot.schema_id is None else schemas.get(snapshot.schema_id)
        self._schema = schema_to_pyarrow(known or self._table.schema(), include_field_ids=False)

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def scanner(
        self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None, **_more: object
    ) -> _Scan:
        names = [*(self._schema.names if columns is None else columns)]
        projected = pa.schema([self._schema.field(name) for name in names])
        read = names if filter is None or _fits(projected, filter) else self._schema.names
        return _Scan(projected, _narrowed(self._tables(read), projected, filter))

    def _tables(self, names: Sequence[str]) -> Iterator[pa.Table]:
        if self._snapshot_id is None:
            return
        scan = self._table.scan(snapshot_id=self._snapshot_id, selected_fields=tuple(names))
        for batch in scan.to_arrow_batch_reader():
            yield pa.Table.from_batches([batch])


def _narrowed(tables: Iterator[pa.Table], schema: pa.Schema, condition: pc.Expression | None) -> Iterator[pa.Table]:
    """The rows that match, in these columns and types."""
    for table in tables:
        found = table if condition is None else table.filter(condition)
        yield found.select(schema.names).cast(schema)


@lru_cache(maxsize=64)
def plain_schema(shape: TableShape) -> pa.Schema:
    """The columns of the shape, in types that are the same in table and tail."""
    return pa.schema([_plain(field) for field in arrow_schema(shape)])


def _plain(field: pa.Field) -> pa.Field:
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    return pa.field(field.name, kind, field.nullable)


def _fits(schema: pa.Schema, condition: pc.Expression) -> bool:
    """Whether the filter is about these columns only."""
    try:
        schema.empty_table().filter(condition)
    except (pa.ArrowInvalid, KeyError):
        return False
    return True


def _copied(table: pa.Table) -> pa.Table:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    with pa.ipc.open_stream(sink.getvalue()) as reader:
        return reader.read_all()


@lru_cache(maxsize=16)
def key_reader(location: str) -> KeyReader:
    """What it knows of files is worth keeping. For the one loop of this process."""
    return KeyReader(ParquetFiles(open_store(location)))
