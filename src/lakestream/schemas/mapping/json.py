"""Columns that the values of a JSON Schema become, version 1.

Fields of an object are top-level columns, any other value is the column `value`. Objects are structs, those that only
have `additionalProperties` of a schema maps, arrays lists. Integers are longs, other numbers doubles; `date` is a date,
`date-time` a timestamp with zone, any other string text, enums and uuids included. What may be of several types, refers
to itself, nests too deep or says nothing is JSON text. Every column is optional: what is null or not there is null.
"""

import re
from typing import Final

import msgspec

from lakestream.errors import InvalidSchema
from lakestream.schemas.json import JsonType, JsonTypeName
from lakestream.schemas.mapping.merging import MAX_COLUMNS, MAX_LEVELS, ROOT, leaf
from lakestream.table.shape import Content, Kind, TableColumn

_KINDS: Final[dict[JsonTypeName, Kind]] = {
    "string": "string",
    "long": "long",
    "double": "double",
    "boolean": "boolean",
    "date": "date",
    "time": "timestamptz",
    "json": "string",
}
_NO_NAME: Final = re.compile(r"\W")
FORMAT: Final = TableColumn(0, "_format", "string", encoding="dictionary", content="format")
"""How the text of a row was written: `codecs.json.template`."""


def columns_of(root: JsonType) -> tuple[TableColumn, ...]:
    """What the schema alone asks for, under its own names, without ids. Raises `InvalidSchema` for what is too much."""
    maker = _Maker()
    if root.kind == "object":
        return maker.fields(root, 1)
    return (maker.column(ROOT, root, 0),)


class _Maker:
    def __init__(self) -> None:
        self._made = 0

    def fields(self, found: JsonType, level: int) -> tuple[TableColumn, ...]:
        return tuple(self.column(name, each, level) for name, each in zip(found.names, found.below, strict=True))

    def column(self, name: str, found: JsonType, level: int, *, repeated: bool = False) -> TableColumn:
        self._made += 1
        if self._made > MAX_COLUMNS:
            raise InvalidSchema(f"the schema has more than {MAX_COLUMNS} columns")
        if found.below and level >= MAX_LEVELS:
            found = JsonType("json")
        if found.kind == "object":
            return _named(name, TableColumn(0, name, "struct", below=self.fields(found, level + 1)))
        if found.kind == "array":
            below = self.column("element", found.below[0], level + 1, repeated=True)
            return _named(name, TableColumn(0, name, "list", below=(below,)))
        if found.kind == "map":
            key = TableColumn(0, "key", "string", is_required=True, encoding="dictionary")
            value = self.column("value", found.below[0], level + 1, repeated=True)
            return _named(name, TableColumn(0, name, "map", below=(key, value)))
        content: Content = "json" if found.kind == "json" else ""
        return _named(name, leaf(name, _KINDS[found.kind], content, bounded=not repeated))


def _named(name: str, column: TableColumn) -> TableColumn:
    """Any text may be a key, and not any a column's name for every engine."""
    plain = _NO_NAME.sub("_", name)
    return column if plain == name else msgspec.structs.replace(column, name=plain, source=name)
