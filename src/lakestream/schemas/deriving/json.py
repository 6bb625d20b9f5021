"""The JSON Schema whose values are the columns of a table, by version 1 of the mapping: each field may be null or left
out, and there are no others, so that later versions can have more."""

import json
from collections.abc import Sequence
from typing import Any, Final

from lakestream.errors import InvalidSchema
from lakestream.table.shape import TableColumn

_DRAFT: Final = "http://json-schema.org/draft-07/schema#"
_TYPES: Final[dict[str, dict[str, str]]] = {
    "boolean": {"type": "boolean"},
    "long": {"type": "integer"},
    "double": {"type": "number"},
    "string": {"type": "string"},
    "date": {"type": "string", "format": "date"},
    "timestamptz": {"type": "string", "format": "date-time"},
}
_INSTEAD: Final[dict[str, str]] = {
    "int": "use long",
    "float": "use double",
    "decimal": "use double, or string for all digits",
    "timestamp": "use one with a time zone",
    "binary": "use string",
}


def json_text(name: str, columns: Sequence[TableColumn]) -> str:
    """Raises `InvalidSchema`."""
    schema = {"$schema": _DRAFT, "title": name, "type": "object", **_fields(columns)}
    return json.dumps(schema, ensure_ascii=False)


def json_type(column: TableColumn) -> dict[str, Any]:
    """What a column's values are, null among them. Raises `InvalidSchema`."""
    found = _type(column)
    return {**found, "type": ["null", found["type"]]}


def _fields(columns: Sequence[TableColumn]) -> dict[str, Any]:
    return {"properties": {column.name: json_type(column) for column in columns}, "additionalProperties": False}


def _type(column: TableColumn) -> dict[str, Any]:
    if column.kind == "struct":
        return {"type": "object", **_fields(column.below)}
    if column.kind == "list":
        return {"type": "array", "items": json_type(column.below[0])}
    if column.kind == "map":
        key, value = column.below
        if key.kind != "string":
            raise InvalidSchema(f"{column.name} has keys of type {key.kind}: keys of a map are text in JSON")
        return {"type": "object", "additionalProperties": json_type(value)}
    found = _TYPES.get(column.kind)
    if found is None:
        raise InvalidSchema(f"column {column.name} cannot be {column.kind} in JSON: {_INSTEAD[column.kind]}")
    return found
