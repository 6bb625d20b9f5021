"""The next JSON Schema of a table whose columns were changed: the latest one with just that changed. Pure."""

import json
from collections.abc import Sequence
from typing import Any

from lakestream.errors import InvalidSchema
from lakestream.schemas.deriving.json import json_type
from lakestream.schemas.deriving.outlines import elsewhere, outline
from lakestream.schemas.mapping import names_of
from lakestream.table.shape import TableColumn


def edited_json(text: str, before: Sequence[TableColumn], after: Sequence[TableColumn]) -> str:
    """`before`: the value's columns as they are in the table, `after`: as they shall be, those that stay by their ids.
    Raises `InvalidSchema` with a sentence for what the schema cannot follow."""
    source = json.loads(text)
    if not isinstance(source, dict) or not isinstance(source.get("properties"), dict):
        raise InvalidSchema("the schema does not list its fields itself: register the next version of the subject")
    return json.dumps(_object(source, before, after), ensure_ascii=False)


def _object(source: dict[str, Any], before: Sequence[TableColumn], after: Sequence[TableColumn]) -> dict[str, Any]:
    old = {column.field_id: column for column in before}
    kept = {column.field_id for column in after}
    left = dict(source["properties"])
    gone = {name for column in before if column.field_id not in kept for name in names_of(column)}
    fields: dict[str, Any] = {}
    for column in after:
        present = old.get(column.field_id)
        if present is None:
            if column.name in left:
                raise InvalidSchema(f"the schema has a field {column.name} already, which the table is to get")
            fields[column.name] = json_type(column)
            continue
        if present.name != column.name:
            raise InvalidSchema(
                f"column {present.name} cannot be called {column.name}: fields in JSON are known by their names. Add a"
                " column of that name"
            )
        name = next((name for name in names_of(present) if name in left), None)
        if name is not None:
            found = left.pop(name)
            fields[name] = found if outline(present) == outline(column) else _changed(found, present, column)
    fields |= {name: field for name, field in left.items() if name not in gone}
    changed = {**source, "properties": fields}
    if isinstance(source.get("required"), list):
        changed["required"] = [name for name in source["required"] if name in fields]
    return changed


def _changed(source: Any, before: TableColumn, after: TableColumn) -> dict[str, Any]:
    """Fields inside of structs are added; types stay."""
    if not isinstance(source, dict) or before.kind != after.kind:
        raise elsewhere(after)
    if before.kind == "struct" and isinstance(source.get("properties"), dict):
        names = [each.name for each in before.below]
        if [each.name for each in after.below][: len(names)] != names:
            raise InvalidSchema(f"fields inside of {after.name} can be added behind the others, which stay")
        return _object(source, before.below, after.below)
    if before.kind == "list" and "items" in source:
        return {**source, "items": _changed(source["items"], before.below[0], after.below[0])}
    if before.kind == "map" and "additionalProperties" in source:
        value = _changed(source["additionalProperties"], before.below[1], after.below[1])
        return {**source, "additionalProperties": value}
    raise elsewhere(after)
