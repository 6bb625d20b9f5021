"""A topic that goes on in a table that is there already: which tables can be a stream's. Pure.

Two kinds can. One without rows, made by an engine for the topic to fill: it keeps its name, UUID, location and its own
properties, and gets the columns of the log. And one that a stream wrote, from another cluster or out of a backup: its
rows keep their offsets, and the topic begins after the last. Rows that no stream wrote have no offsets to be read at.
"""

import re
from collections.abc import Callable
from itertools import chain
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import NestedField

from lakestream.catalog.rules.streams import check_columns, check_specs
from lakestream.catalog.rules.views import check_view
from lakestream.errors import InvalidSetting, StorageError, TableRefused
from lakestream.objects.paths import is_inside
from lakestream.table.schema import iceberg_schema, shape_of
from lakestream.table.shape import TableShape
from lakestream.table.view import View

_FORMAT: Final = 2


def adopted_frontier(
    metadata: TableMetadata,
    partitions: int,
    bucket_url: str,
    said: Callable[[TableMetadata], tuple[int, ...] | None],
) -> tuple[int, ...]:
    """Where a topic of so many partitions would begin in this table. Raises `InvalidSetting` with the reason why none
    can."""
    if metadata.format_version != _FORMAT:
        raise InvalidSetting(f"it is in format version {metadata.format_version}, and streams write {_FORMAT}")
    if not is_inside(metadata.location, bucket_url):
        raise InvalidSetting(f"it is at {metadata.location}, and brokers read {bucket_url} alone")
    frontier = said(metadata)
    if frontier is None:
        _check_names(metadata.schema(), shape_of(metadata.properties))
        return (0,) * partitions
    try:
        check_columns(metadata.schema(), shape_of(metadata.properties))
        check_specs(metadata)
    except TableRefused as error:
        raise InvalidSetting(f"a stream wrote it, and it was changed since: {error}") from error
    if len(frontier) != partitions:
        raise InvalidSetting(f"its stream has {len(frontier)} partitions: create the topic with as many")
    return frontier


def as_begun(frontier: tuple[int, ...], said: tuple[int, ...] | None) -> tuple[int, ...]:
    """A topic's frontier without the partitions that it got after it began in a table that says this: until the table
    is the topic's, nothing of them is in it."""
    if said is None or any(frontier[len(said) :]):
        return frontier
    return frontier[: len(said)]


def check_adopted(view: View) -> None:
    """Of the table as it would be the topic's. Raises `StorageError` if it shows what no log can have made."""
    check_view(view)
    named = chain((file.path for file in view.files), (delete.path for delete in view.deletes))
    outside = next((path for path in named if not is_inside(path, view.location)), None)
    if outside is not None:
        raise StorageError(f"its file {outside} is not in its location {view.location}, so it is another table's")


def _check_names(schema: Schema, shape: TableShape) -> None:
    """Of a table without rows: what its owner sees of it must be what a stream fills it with."""
    ours = {field.name: field for field in iceberg_schema(shape).fields}
    for field in schema.fields:
        known = ours.get(field.name)
        if known is None:
            raise InvalidSetting(f"its column {field.name} is none that a stream fills")
        if _shape(known) != _shape(field):
            raise InvalidSetting(f"its column {field.name} is {_shape(field)}, and a stream writes {_shape(known)}")


def _shape(field: NestedField) -> str:
    """Without ids, which are the catalog's to give, and without what may be null."""
    return re.sub(r"\d+: |required |optional ", "", str(field.field_type))
