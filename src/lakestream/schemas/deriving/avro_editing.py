"""The next Avro schema of a table whose columns were changed: the latest one with just that changed, so that whatever
else it says stays. Pure."""

import json
from collections.abc import Sequence
from typing import Any, Final

from lakestream.errors import InvalidSchema
from lakestream.schemas.deriving.avro import avro_type
from lakestream.schemas.deriving.outlines import elsewhere, outline
from lakestream.schemas.mapping import names_of
from lakestream.table.shape import TableColumn

_NAMED: Final = ("record", "error", "enum", "fixed")


def edited_avro(text: str, before: Sequence[TableColumn], after: Sequence[TableColumn]) -> str:
    """`before`: the value's columns as they are in the table, `after`: as they shall be, those that stay by their ids.
    Raises `InvalidSchema` with a sentence for what the schema cannot follow."""
    source = json.loads(text)
    if not isinstance(source, dict) or source.get("type") not in ("record", "error"):
        raise InvalidSchema("values that are no records have one column, which stays as it is")
    editor = _Editor(source)
    return json.dumps(editor.record(source, before, after), ensure_ascii=False)


class _Editor:
    def __init__(self, source: Any) -> None:
        self._names = set(_type_names(source))

    def record(
        self, source: dict[str, Any], before: Sequence[TableColumn], after: Sequence[TableColumn]
    ) -> dict[str, Any]:
        old = {column.field_id: column for column in before}
        kept = {column.field_id for column in after}
        left = {field["name"]: field for field in source["fields"]}
        gone = {name for column in before if column.field_id not in kept for name in names_of(column)}
        fields = []
        for column in after:
            present = old.get(column.field_id)
            if present is None:
                if column.name in left:
                    raise InvalidSchema(f"the schema has a field {column.name} already, which the table is to get")
                fields.append(self._added(source["name"], column))
                continue
            name = next((name for name in names_of(present) if name in left), None)
            if name is not None:
                fields.append(self._changed(left.pop(name), present, column))
        fields += [field for name, field in left.items() if name not in gone]
        return {**source, "fields": fields}

    def _added(self, record: str, column: TableColumn) -> dict[str, Any]:
        kind = avro_type(f"{record}_{column.name}", column, self._names)
        return {"name": column.name, "type": kind, "default": None}

    def _changed(self, field: dict[str, Any], before: TableColumn, after: TableColumn) -> dict[str, Any]:
        changed = dict(field)
        if before.name != after.name:
            changed["name"] = after.name
            aliases = [each for each in (*field.get("aliases", ()), field["name"]) if each != after.name]
            changed["aliases"] = list(dict.fromkeys(aliases))
        if outline(before) != outline(after):
            changed["type"] = self._type(field["type"], before, after)
        return changed

    def _type(self, source: Any, before: TableColumn, after: TableColumn) -> Any:
        if isinstance(source, list):
            others = [each for each in source if each != "null"]
            if len(others) != 1:
                raise elsewhere(after)
            return [each if each == "null" else self._type(each, before, after) for each in source]
        if (before.kind, after.kind) == ("int", "long") and source in ("int", {"type": "int"}):
            return "long"
        if not isinstance(source, dict):
            raise elsewhere(after)
        kind = source.get("type")
        if kind in ("record", "error") and after.kind == "struct":
            return self._struct(source, before, after)
        if kind == "array" and after.kind == "list":
            return {**source, "items": self._type(source["items"], before.below[0], after.below[0])}
        if kind == "map" and after.kind == "map":
            return {**source, "values": self._type(source["values"], before.below[1], after.below[1])}
        if kind == "bytes" and before.kind == after.kind == "decimal" and before.scale == after.scale:
            return {**source, "precision": after.precision}
        raise elsewhere(after)

    def _struct(self, source: dict[str, Any], before: TableColumn, after: TableColumn) -> dict[str, Any]:
        """Fields inside of a struct are added and widened: files of engines have them by their names."""
        names = [(each.field_id, each.name) for each in before.below]
        if [(each.field_id, each.name) for each in after.below][: len(names)] != names:
            raise InvalidSchema(
                f"fields inside of {after.name} can be added behind the others and widened: others keep name and place"
            )
        return self.record(source, before.below, after.below)


def _type_names(source: Any) -> list[str]:
    if isinstance(source, list):
        return [name for each in source for name in _type_names(each)]
    if not isinstance(source, dict):
        return []
    own = [source["name"]] if source.get("type") in _NAMED else []
    below = [source.get("items"), source.get("values"), source.get("type")]
    below += [field["type"] for field in source.get("fields", ())]
    return own + [name for each in below for name in _type_names(each)]
