"""What a typed table is made of, for people."""

from collections.abc import Iterator, Mapping, Sequence

import duckdb
import msgspec

from lakestream.cli.tables.query import connect
from lakestream.schemas.growing import BY_ID, grown
from lakestream.table.shape import (
    KIND_RAW,
    KIND_TOMBSTONE,
    KIND_TYPED,
    KIND_TYPED_AND_RAW,
    RAW,
    TableColumn,
    TableShape,
    ValueSchema,
    parse_shape,
)

SHAPE_PROPERTY = "lakestream.shape"
KIND_NAMES = {
    KIND_RAW: "raw",
    KIND_TOMBSTONE: "tombstone",
    KIND_TYPED: "typed",
    KIND_TYPED_AND_RAW: "typed and raw",
}
"""What `_kind` says."""


def shape_in(properties: Mapping[str, str]) -> TableShape:
    """Of a table with these properties."""
    text = properties.get(SHAPE_PROPERTY)
    return RAW if text is None else parse_shape(text)


def added_columns(shape: TableShape, schema: ValueSchema) -> tuple[list[tuple[str, str, str]], str]:
    """(column, type, change) of what a table of this shape gets with values of the schema; or why they stay bytes."""
    without_id = msgspec.structs.replace(schema, schema_id=-1)
    after = grown(shape, [without_id], BY_ID, max(field_id for field_id, _, _ in _leaves(shape)), frozenset())
    before = {field_id: kind for field_id, _, kind in _leaves(shape)}
    changes = [
        (path, kind, "new" if field_id not in before else f"was {before[field_id]}")
        for field_id, path, kind in _leaves(after)
        if before.get(field_id) != kind
    ]
    return changes, after.schemas[-1].trouble


def _leaves(shape: TableShape) -> Iterator[tuple[int, str, str]]:
    yield from _below("", shape.columns)


def _below(path: str, columns: Sequence[TableColumn]) -> Iterator[tuple[int, str, str]]:
    for column in columns:
        name = f"{path}{column.name}"
        if not column.below:
            yield column.field_id, name, column.content or column.kind
        yield from _below(f"{name}.", column.below)


def count_kinds(catalog: str, name: Sequence[str]) -> dict[str, int]:
    """How many rows of a table keep their values in which way, read from its one column that says so."""
    table = ".".join(f'"{word}"' for word in ("lake", *name))
    try:
        rows = connect(catalog).execute(f"SELECT _kind, count(*) FROM {table} GROUP BY 1").fetchall()
    except duckdb.Error:
        return {}
    found = dict(rows)
    return {told: int(found.get(kind, 0)) for kind, told in KIND_NAMES.items()}
