"""Columns that the values of a schema become.

The mapping has a version, which is a part of the codec's name in a table's shape: under a table it never changes.
Version 1 of Avro: fields of the root record are top-level columns, any other root is the column `value`. Records are
structs, arrays lists, maps maps; `[null, T]` is an optional T, any other union a struct with an optional field for each
branch; enums and uuids are text; fixed is binary (Delta has no other); decimals of up to 38 digits are decimals; times
of day are numbers (Spark reads no table with a time), timestamps are those with or without zone. What refers to
itself, nests too deep or holds nothing is JSON text. Every column is optional: a value that is not of its schema has
none of them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import Final

import msgspec

from lakestream.errors import InvalidSchema
from lakestream.schemas.avro import AvroSchema, AvroType
from lakestream.table.shape import SYSTEM_NAMES, Content, Encoding, Kind, TableColumn

FIRST_VALUE_ID: Final = 100
ROOT: Final = "value"
"""The column of a value that is no record."""
MAX_COLUMNS: Final = 4_000
MAX_LEVELS: Final = 12
MAX_DECIMAL_DIGITS: Final = 38
MAX_DECIMAL_BYTES: Final = 16
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

_KINDS: Final[dict[str, Kind]] = {
    "boolean": "boolean",
    "int": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "fixed": "binary",
    "string": "string",
    "null": "string",
}
_LOGICAL: Final[dict[str, Kind]] = {
    "date": "date",
    "time-millis": "long",
    "time-micros": "long",
    "timestamp-millis": "timestamptz",
    "timestamp-micros": "timestamptz",
    "local-timestamp-millis": "timestamp",
    "local-timestamp-micros": "timestamp",
    "uuid": "string",
}
_DELTA: Final = frozenset[Kind]({"int", "long", "date", "timestamp", "timestamptz"})
_BOUNDED: Final = _DELTA | {"boolean"}


def is_decimal(found: AvroType) -> bool:
    """That a column can hold as one."""
    return found.logical == "decimal" and found.precision <= MAX_DECIMAL_DIGITS and found.size <= MAX_DECIMAL_BYTES


def branches(schema: AvroSchema, union: AvroType) -> list[tuple[int, str, AvroType]]:
    """(number, name, type) of those that are not null."""
    found = enumerate(map(schema.resolved, union.below))
    return [(number, each.name or each.kind, each) for number, each in found if each.kind != "null"]


def columns_of(schema: AvroSchema) -> tuple[TableColumn, ...]:
    """What the schema alone asks for, under its own names, without ids. Raises `InvalidSchema` for what is too much."""
    maker = _Maker(schema)
    root = schema.resolved(schema.root)
    if root.kind == "record" and root.below:
        return maker.fields(root, (root.name,))
    return (maker.column(ROOT, root, ()),)


class _Maker:
    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self._made = 0

    def fields(self, record: AvroType, path: tuple[str, ...]) -> tuple[TableColumn, ...]:
        return tuple(self.column(name, each, path) for name, each in zip(record.names, record.below, strict=True))

    def column(self, name: str, found: AvroType, path: tuple[str, ...], *, repeated: bool = False) -> TableColumn:
        self._made += 1
        if self._made > MAX_COLUMNS:
            raise InvalidSchema(f"the schema has more than {MAX_COLUMNS} columns")
        found = self._schema.resolved(found)
        if found.kind == "record":
            if found.name in path or len(path) >= MAX_LEVELS or not found.below:
                return _leaf(name, "string", "json")
            return TableColumn(0, name, "struct", below=self.fields(found, (*path, found.name)))
        if found.kind == "union":
            return self._union(name, found, path)
        if found.kind in ("array", "map"):
            if len(path) >= MAX_LEVELS:
                return _leaf(name, "string", "json")
            inner = (*path, "")
            if found.kind == "array":
                return TableColumn(
                    0, name, "list", below=(self.column("element", found.below[0], inner, repeated=True),)
                )
            key = TableColumn(0, "key", "string", is_required=True, encoding="dictionary")
            return TableColumn(0, name, "map", below=(key, self.column("value", found.below[0], inner, repeated=True)))
        if found.kind == "enum":
            return _leaf(name, "string", "enum")
        if is_decimal(found):
            return TableColumn(0, name, "decimal", precision=found.precision, scale=found.scale)
        content: Content = "uuid" if found.logical == "uuid" else ""
        return _leaf(name, _LOGICAL.get(found.logical) or _KINDS[found.kind], content, bounded=not repeated)

    def _union(self, name: str, union: AvroType, path: tuple[str, ...]) -> TableColumn:
        found = branches(self._schema, union)
        if not found:
            return _leaf(name, "string")
        if len(found) == 1:
            return self.column(name, found[0][2], path)
        if len(path) >= MAX_LEVELS:
            return _leaf(name, "string", "json")
        inner = (*path, "")
        return TableColumn(0, name, "struct", below=tuple(self.column(each, kind, inner) for _, each, kind in found))


def _leaf(name: str, kind: Kind, content: Content = "", *, bounded: bool = False) -> TableColumn:
    encoding: Encoding = "delta" if kind in _DELTA else "dictionary" if kind == "string" else "plain"
    statistics = bounded and kind in _BOUNDED
    return TableColumn(0, name, kind, encoding=encoding, has_statistics=statistics, content=content)


def merged(columns: Sequence[TableColumn], wanted: Sequence[TableColumn], last_id: int = 0) -> tuple[TableColumn, ...]:
    """The columns of a table, with what a schema wants: fields of one name are one column, wider where that holds both;
    new ones come behind, under ids beyond `last_id` and all that are there, and under names that are free. Raises
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
    found = {source_of(column): column for column in columns if column.name not in SYSTEM_NAMES or path}
    taken = {column.name.lower() for column in columns} | set(reserved)
    result = list(columns)
    for each in wanted:
        present = found.get(each.name)
        if present is not None:
            result[result.index(present)] = _widened(present, each, next_id, f"{path}{each.name}")
        else:
            name = _free_name(each.name, taken)
            taken.add(name.lower())
            source = "" if name == each.name else each.name
            below = _merge((), each.below, next_id, (), f"{path}{each.name}.")
            result.append(msgspec.structs.replace(each, field_id=next_id(), name=name, source=source, below=below))
    return tuple(result)


def _widened(present: TableColumn, wanted: TableColumn, next_id: Callable[[], int], path: str) -> TableColumn:
    kinds = (present.kind, wanted.kind)
    if kinds == ("int", "long"):
        return msgspec.structs.replace(present, kind="long")
    if kinds == ("long", "int") and not wanted.content:
        return present
    same = ("kind", "precision", "scale", "content")
    if any(getattr(present, each) != getattr(wanted, each) for each in same):
        raise InvalidSchema(f"{path} is {_told(present)} in the table and {_told(wanted)} in the schema")
    return msgspec.structs.replace(present, below=_merge(present.below, wanted.below, next_id, (), f"{path}."))


def source_of(column: TableColumn) -> str:
    """The name that schemas have for it."""
    return column.source or column.name


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
