"""Columns that the values of an Avro schema become, version 1.

Fields of the root record are top-level columns, any other root is the column `value`. Records are structs, arrays
lists, maps maps; `[null, T]` is an optional T, any other union a struct with an optional field for each branch; enums
and uuids are text; fixed is binary (Delta has no other); decimals of up to 38 digits are decimals; times of day are
numbers (Spark reads no table with a time), timestamps are those with or without zone. What refers to itself, nests too
deep or holds nothing is JSON text. Every column is optional: a value that is not of its schema has none of them.
"""

from typing import Final

from lakestream.errors import InvalidSchema
from lakestream.schemas.avro import AvroSchema, AvroType
from lakestream.schemas.mapping.merging import MAX_COLUMNS, MAX_LEVELS, ROOT, leaf
from lakestream.table.shape import Content, Kind, TableColumn

MAX_DECIMAL_DIGITS: Final = 38
MAX_DECIMAL_BYTES: Final = 16

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
                return leaf(name, "string", "json")
            return TableColumn(0, name, "struct", below=self.fields(found, (*path, found.name)))
        if found.kind == "union":
            return self._union(name, found, path)
        if found.kind in ("array", "map"):
            if len(path) >= MAX_LEVELS:
                return leaf(name, "string", "json")
            inner = (*path, "")
            if found.kind == "array":
                return TableColumn(
                    0, name, "list", below=(self.column("element", found.below[0], inner, repeated=True),)
                )
            key = TableColumn(0, "key", "string", is_required=True, encoding="dictionary")
            return TableColumn(0, name, "map", below=(key, self.column("value", found.below[0], inner, repeated=True)))
        if found.kind == "enum":
            return leaf(name, "string", "enum")
        if is_decimal(found):
            return TableColumn(0, name, "decimal", precision=found.precision, scale=found.scale)
        content: Content = "uuid" if found.logical == "uuid" else ""
        return leaf(name, _LOGICAL.get(found.logical) or _KINDS[found.kind], content, bounded=not repeated)

    def _union(self, name: str, union: AvroType, path: tuple[str, ...]) -> TableColumn:
        found = branches(self._schema, union)
        if not found:
            return leaf(name, "string")
        if len(found) == 1:
            return self.column(name, found[0][2], path)
        if len(path) >= MAX_LEVELS:
            return leaf(name, "string", "json")
        inner = (*path, "")
        return TableColumn(0, name, "struct", below=tuple(self.column(each, kind, inner) for _, each, kind in found))
