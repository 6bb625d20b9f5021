"""What a table's columns become with those that a schema wants, and what the mappings of all formats share.

A mapping has a version, which is a part of the codec's name in a table's shape: under a table it never changes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import Final

import msgspec

from lakestream.errors import InvalidSchema
from lakestream.table.shape import SYSTEM_NAMES, Content, Encoding, Kind, TableColumn

FIRST_VALUE_ID: Final = 100
ROOT: Final = "value"
"""The column of a value that has no fields."""
MAX_COLUMNS: Final = 4_000
MAX_LEVELS: Final = 12
RESERVED_NAMES: Final = SYSTEM_NAMES | {
    "_partition",
    "_file",
    "_pos",
    "_deleted",
    "_spec_id",
    "_row_id",
    "_last_updated_sequence_number",
    "_change_type",
    "_change_ordinal",
    "_commit_snapshot_id",
    "_format",
}
"""The log's, and those that Iceberg keeps for itself."""

_DELTA: Final = frozenset[Kind]({"int", "long", "date", "timestamp", "timestamptz"})
_BOUNDED: Final = _DELTA | {"boolean"}


def leaf(name: str, kind: Kind, content: Content = "", *, bounded: bool = False) -> TableColumn:
    """A column without others below it. `bounded`: its rows have one value each, whose bounds prune files."""
    encoding: Encoding = "delta" if kind in _DELTA else "dictionary" if kind == "string" else "plain"
    statistics = bounded and kind in _BOUNDED
    return TableColumn(0, name, kind, encoding=encoding, has_statistics=statistics, content=content)


def merged(columns: Sequence[TableColumn], wanted: Sequence[TableColumn], last_id: int = 0) -> tuple[TableColumn, ...]:
    """The columns of a table, with what a schema wants: fields of one source are one column, wider where that holds
    both; new ones come behind, under ids beyond `last_id` and all that are there, and under names that are free. Raises
    `InvalidSchema` for a field that is of another type in the table."""
    first = max(FIRST_VALUE_ID, last_id + 1, *(each + 1 for each in _ids(columns)))
    ids = count(first)
    return _merge(columns, wanted, lambda: next(ids), RESERVED_NAMES, "")


def _merge(
    columns: Sequence[TableColumn],
    wanted: Sequence[TableColumn],
    next_id: Callable[[], int],
    reserved: Iterable[str],
    path: str,
) -> tuple[TableColumn, ...]:
    present_by = {
        name: column
        for column in columns
        if column.name not in SYSTEM_NAMES or path
        for name in reversed(names_of(column))
    }
    taken = {name.lower() for column in columns for name in (column.name, *column.former)} | set(reserved)
    result = list(columns)
    met: dict[int, str] = {}
    for each in wanted:
        present = present_by.get(source_of(each))
        if present is not None:
            other = met.setdefault(present.field_id, each.name)
            if other != each.name:
                raise InvalidSchema(f"{path}{each.name} and {other} are one column of the table, which was renamed")
            result[result.index(present)] = _widened(present, each, next_id, f"{path}{each.name}")
        else:
            name = _free_name(each.name, taken)
            taken.add(name.lower())
            source = each.source or ("" if name == each.name else each.name)
            below = _merge((), each.below, next_id, (), f"{path}{each.name}.")
            result.append(msgspec.structs.replace(each, field_id=next_id(), name=name, source=source, below=below))
    return tuple(result)


def _widened(present: TableColumn, wanted: TableColumn, next_id: Callable[[], int], path: str) -> TableColumn:
    kinds = (present.kind, wanted.kind)
    if kinds == ("int", "long"):
        return msgspec.structs.replace(present, kind="long")
    if kinds == ("long", "int") and not wanted.content:
        return present
    if present.content == "json" and wanted.kind == "struct":
        # It had no fields, or referred to itself: text holds it whatever it becomes.
        return present
    same = ("kind", "precision", "scale", "content")
    if kinds == ("decimal", "decimal") and present.scale == wanted.scale:
        return msgspec.structs.replace(present, precision=max(present.precision, wanted.precision))
    if any(getattr(present, each) != getattr(wanted, each) for each in same):
        raise InvalidSchema(f"{path} is {_told(present)} in the table and {_told(wanted)} in the schema")
    return msgspec.structs.replace(present, below=_merge(present.below, wanted.below, next_id, (), f"{path}."))


def source_of(column: TableColumn) -> str:
    """What schemas know it by: a name, or the number of a field of Protobuf."""
    return column.source or column.name


def names_of(column: TableColumn) -> tuple[str, ...]:
    """Everything that schemas may know it by: a column that was renamed has fields of several names."""
    return (source_of(column), column.name, *column.former) if column.former else (source_of(column),)


def _told(column: TableColumn) -> str:
    digits = f"({column.precision}, {column.scale})" if column.kind == "decimal" else ""
    return f"{column.content or column.kind}{digits}"


def _free_name(name: str, taken: set[str]) -> str:
    """Engines that do not tell upper from lower case must be able to name each column."""
    plain = name.rpartition(".")[2]
    if plain in RESERVED_NAMES:
        plain = f"value{plain}"
    return next(each for each in _numbered(plain) if each.lower() not in taken)


def _numbered(name: str) -> Iterator[str]:
    yield name
    for number in count(2):
        yield f"{name}_{number}"


def _ids(columns: Iterable[TableColumn]) -> Iterator[int]:
    for column in columns:
        yield column.field_id
        yield from _ids(column.below)
