"""The Avro schema whose values are the columns of a table, by version 1 of the mapping: each field may be null, and is
if it is left out."""

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from lakestream.errors import InvalidSchema
from lakestream.table.shape import TableColumn

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TYPES: Final[dict[str, Any]] = {
    "boolean": "boolean",
    "int": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "date": {"type": "int", "logicalType": "date"},
    "timestamp": {"type": "long", "logicalType": "local-timestamp-micros"},
    "timestamptz": {"type": "long", "logicalType": "timestamp-micros"},
    "string": "string",
    "binary": "bytes",
}


def avro_text(name: str, columns: Sequence[TableColumn]) -> str:
    """Raises `InvalidSchema`."""
    return json.dumps(_Deriver().record(name, columns), ensure_ascii=False)


def avro_type(name: str, column: TableColumn, taken: set[str]) -> Any:
    """What may be null of one column. `name` is for a record that it needs, unless that is `taken`."""
    deriver = _Deriver()
    deriver.taken = taken
    return deriver.optional(name, column)


class _Deriver:
    def __init__(self) -> None:
        self.taken: set[str] = set()

    def record(self, name: str, columns: Sequence[TableColumn]) -> dict[str, Any]:
        own = self._free(name)
        return {"type": "record", "name": own, "fields": [self._field(own, column) for column in columns]}

    def _field(self, record: str, column: TableColumn) -> dict[str, Any]:
        if not _NAME.fullmatch(column.name):
            raise InvalidSchema(f"{column.name!r} cannot be a field in Avro: use letters, digits and _, no digit first")
        return {"name": column.name, "type": self.optional(f"{record}_{column.name}", column), "default": None}

    def optional(self, name: str, column: TableColumn) -> list[Any]:
        return ["null", self._type(name, column)]

    def _type(self, name: str, column: TableColumn) -> Any:
        if column.kind == "struct":
            return self.record(name, column.below)
        if column.kind == "list":
            return {"type": "array", "items": self.optional(name, column.below[0])}
        if column.kind == "map":
            key, value = column.below
            if key.kind != "string":
                raise InvalidSchema(f"{column.name} has keys of type {key.kind}: keys of a map are text in Avro")
            return {"type": "map", "values": self.optional(name, value)}
        if column.kind == "decimal":
            digits = {"precision": column.precision, "scale": column.scale}
            return {"type": "bytes", "logicalType": "decimal", **digits}
        return _TYPES[column.kind]

    def _free(self, name: str) -> str:
        found, number = name, 2
        while found in self.taken:
            found, number = f"{name}_{number}", number + 1
        self.taken.add(found)
        return found
