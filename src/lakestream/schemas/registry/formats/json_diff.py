"""What keeps a reader's JSON Schema from taking what a writer's allows.

A schema is open if properties that it does not name may be anything. A reader of an open writer may not say anything of
a property that the writer did not name: there may be such values already. It is as strict as Confluent's registry.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from lakestream.schemas.registry.formats.json_kinds import Classified, JsonKind, SchemaPlace, classify, resolved

_MOST_STEPS: Final = 200_000


class Differences:
    """One comparison. Where a schema contains itself, the pair that is being compared is taken as compatible."""

    def __init__(self) -> None:
        self._open: set[tuple[int, int]] = set()
        self._steps = 0

    def between(self, writer: SchemaPlace, reader: SchemaPlace, path: str = "#") -> list[str]:
        writer, reader = resolved(writer), resolved(reader)
        pair = (id(writer.schema), id(reader.schema))
        if pair in self._open or writer.schema is reader.schema:
            return []
        self._steps += 1
        if self._steps > _MOST_STEPS:
            return [f"{path}: the schemas are too complicated to be compared"]
        self._open.add(pair)
        try:
            return self._kinds(classify(writer), classify(reader), path)
        finally:
            self._open.discard(pair)

    def _kinds(self, writer: Classified, reader: Classified, path: str) -> list[str]:
        if not writer.kind.is_combined and reader.kind.is_combined:
            tried = reader.parts if reader.kind is not JsonKind.ALL or len(reader.parts) == 1 else ()
            if any(not self.between(writer.place, part, path) for part in tried):
                return []
        elif writer.kind.is_combined and not reader.kind.is_combined:
            tried = writer.parts if writer.kind is JsonKind.ALL or len(writer.parts) == 1 else ()
            if any(not self.between(part, reader.place, path) for part in tried):
                return []
        if writer.kind is JsonKind.NOTHING or reader.kind is JsonKind.ANYTHING:
            return []
        if writer.kind.is_combined and reader.kind.is_combined:
            return self._combined(writer, reader, path)
        if writer.kind is not reader.kind:
            return [f"{path}: the type was {writer.kind.value} and is {reader.kind.value}"]
        match writer.kind:
            case JsonKind.STRING:
                return _strings(writer.schema, reader.schema, path)
            case JsonKind.NUMBER:
                return _numbers(writer.schema, reader.schema, path)
            case JsonKind.OBJECT:
                return self._objects(writer, reader, path)
            case JsonKind.ARRAY:
                return self._arrays(writer, reader, path)
            case JsonKind.CONST if writer.schema["const"] != reader.schema["const"]:
                return [f"{path}/const: it has changed"]
            case JsonKind.ENUM if any(value not in reader.schema["enum"] for value in writer.schema["enum"]):
                return [f"{path}/enum: values were removed"]
            case JsonKind.NOT:
                inside = self.between(
                    reader.place.at(reader.schema["not"]), writer.place.at(writer.schema["not"]), path
                )
                return [f"{path}/not: it forbids more than before"] if inside else []
        return []

    def _combined(self, writer: Classified, reader: Classified, path: str) -> list[str]:
        before, after = len(writer.parts), len(reader.parts)
        widened = (
            writer.kind is reader.kind
            or reader.kind is JsonKind.ANY
            or (before == after == 1)
            or (before == 1 and reader.kind is JsonKind.ONE)
            or (after == 1 and writer.kind is JsonKind.ALL)
        )
        if not widened:
            return [f"{path}: {writer.kind.value} became {reader.kind.value}"]
        found = []
        if before < after and reader.kind is JsonKind.ALL:
            found.append(f"{path}/allOf: schemas were added")
        if before > after and writer.kind is not JsonKind.ALL:
            found.append(f"{path}/{writer.kind.value}: schemas were removed")
        fits = [
            [not self.between(one, other, f"{path}/{writer.kind.value}/{index}") for other in reader.parts]
            for index, one in enumerate(writer.parts)
        ]
        if _matched(fits) < min(before, after):
            found.append(f"{path}/{writer.kind.value}: a schema has changed in a way that is not compatible")
        return found

    # Objects

    def _objects(self, writer: Classified, reader: Classified, path: str) -> list[str]:
        old, new = writer.schema, reader.schema
        found = self._properties(writer, reader, path)
        found += self._dependencies(writer, reader, f"{path}/dependencies")
        found += self._remainder(writer, reader, "additionalProperties", path)
        found += self._unevaluated(writer, reader, "unevaluatedProperties", path)
        found += _raised(old, new, "minProperties", path) + _lowered(old, new, "maxProperties", path)
        return found

    def _properties(self, writer: Classified, reader: Classified, path: str) -> list[str]:
        old, new = _mapping(writer.schema, "properties"), _mapping(reader.schema, "properties")
        was_required, is_required = set(_listed(writer.schema, "required")), set(_listed(reader.schema, "required"))
        found = []
        for name in [*old, *(name for name in new if name not in old)]:
            where = f"{path}/properties/{name}"
            if name in old and name in new:
                found += self.between(writer.place.at(old[name]), reader.place.at(new[name]), where)
                if name in is_required - was_required and not _has_default(reader.place.at(new[name])):
                    found.append(f"{where}: it is required now and has no default")
            elif name in old:
                found += self._removed(writer.place.at(old[name]), reader, name, where)
            else:
                found += self._added(writer, reader.place.at(new[name]), name, where, required=name in is_required)
        return found

    def _removed(self, old: SchemaPlace, reader: Classified, name: str, path: str) -> list[str]:
        if _is_open_object(reader):
            return []
        rest = _covering(reader, name)
        if rest is not None:
            return self.between(old, rest, path)
        return [] if old.schema is False else [f"{path}: it was removed, and no other properties are allowed"]

    def _added(self, writer: Classified, new: SchemaPlace, name: str, path: str, *, required: bool) -> list[str]:
        if _is_open_object(writer):
            if classify(new).kind is JsonKind.ANYTHING:
                return []
            return [f"{path}: it was added to a schema that allowed anything under that name"]
        rest = _covering(writer, name)
        found = self.between(rest, new, path) if rest is not None else []
        if required and not _has_default(new):
            found.append(f"{path}: a required property was added that has no default")
        return found

    def _dependencies(self, writer: Classified, reader: Classified, path: str) -> list[str]:
        old, new = _dependencies_of(writer.schema), _dependencies_of(reader.schema)
        found = []
        for name, wanted in new.items():
            had = old.get(name)
            if had is None or isinstance(had, list) != isinstance(wanted, list):
                found.append(f"{path}/{name}: it was added")
            elif isinstance(wanted, list):
                found += [f"{path}/{name}: it asks for more than before"] if set(wanted) - set(had) else []
            else:
                found += self.between(writer.place.at(had), reader.place.at(wanted), f"{path}/{name}")
        return found

    def _remainder(self, writer: Classified, reader: Classified, word: str, path: str) -> list[str]:
        """Of properties or items that are not named."""
        old, new = writer.schema.get(word, True), reader.schema.get(word, True)
        where = f"{path}/{word}"
        if new is True or old is False:
            return []
        if new is False:
            return [f"{where}: it is not allowed any more"]
        if old is True:
            return [f"{where}: it is narrower than before"]
        return self.between(writer.place.at(old), reader.place.at(new), where)

    def _unevaluated(self, writer: Classified, reader: Classified, word: str, path: str) -> list[str]:
        old, new = writer.schema.get(word), reader.schema.get(word)
        where = f"{path}/{word}"
        if new is None or old is False:
            return []
        if old is None:
            return [f"{where}: it is narrower than before"]
        return self.between(writer.place.at(old), reader.place.at(new), where)

    # Arrays

    def _arrays(self, writer: Classified, reader: Classified, path: str) -> list[str]:
        old, new = writer.schema, reader.schema
        found = []
        if _every_item(new) is not None:
            if _every_item(old) is None:
                found.append(f"{path}/items: it was added")
            else:
                found += self.between(
                    writer.place.at(_every_item(old)), reader.place.at(_every_item(new)), f"{path}/items"
                )
        found += self._tuples(writer, reader, path)
        found += self._rest_of_items(writer, reader, path)
        found += self._unevaluated(writer, reader, "unevaluatedItems", path)
        for low, high in (("minItems", "maxItems"), ("minContains", "maxContains")):
            found += _raised(old, new, low, path) + _lowered(old, new, high, path)
        if new.get("uniqueItems") and not old.get("uniqueItems"):
            found.append(f"{path}/uniqueItems: it was added")
        return found

    def _tuples(self, writer: Classified, reader: Classified, path: str) -> list[str]:
        old, new = _tuple(writer.schema), _tuple(reader.schema)
        found = []
        for index in range(max(len(old), len(new))):
            where = f"{path}/items/{index}"
            if index < min(len(old), len(new)):
                found += self.between(writer.place.at(old[index]), reader.place.at(new[index]), where)
            elif index < len(old):
                rest = _rest(reader)
                if rest is False and old[index] is not False:
                    found.append(f"{where}: it was removed, and no other items are allowed")
                elif not isinstance(rest, bool):
                    found += self.between(writer.place.at(old[index]), reader.place.at(rest), where)
            else:
                rest = _rest(writer)
                if rest is True and classify(reader.place.at(new[index])).kind is not JsonKind.ANYTHING:
                    found.append(f"{where}: it was added to a schema that allowed any item there")
                elif not isinstance(rest, bool):
                    found += self.between(writer.place.at(rest), reader.place.at(new[index]), where)
        return found

    def _rest_of_items(self, writer: Classified, reader: Classified, path: str) -> list[str]:
        words = ("items", "additionalItems")
        sides = [
            each.schema["items"]
            if "prefixItems" in each.schema and "items" in each.schema
            else each.schema.get("additionalItems", True)
            for each in (writer, reader)
        ]
        named = [
            Classified(each.kind, each.place.at({words[1]: rest}))
            for each, rest in zip((writer, reader), sides, strict=True)
        ]
        return self._remainder(named[0], named[1], words[1], path)


def _strings(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> list[str]:
    found = _raised(old, new, "minLength", path) + _lowered(old, new, "maxLength", path)
    if "pattern" in new and new["pattern"] != old.get("pattern"):
        found.append(f"{path}/pattern: it was added or has changed")
    return found


def _numbers(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> list[str]:
    found = []
    for word in ("minimum", "exclusiveMinimum"):
        found += _raised(old, new, word, path)
    for word in ("maximum", "exclusiveMaximum"):
        found += _lowered(old, new, word, path)
    had, wanted = old.get("multipleOf"), new.get("multipleOf")
    if wanted is not None and (had is None or not _divides(wanted, had)):
        found.append(f"{path}/multipleOf: values that were allowed are no multiples of {wanted}")
    if new.get("type") == "integer" and old.get("type") != "integer":
        found.append(f"{path}: the type was number and is integer")
    return found


def _divides(step: float, value: float) -> bool:
    ratio = value / step
    return abs(ratio - round(ratio)) < 1e-9


def _raised(old: Mapping[str, Any], new: Mapping[str, Any], word: str, path: str) -> list[str]:
    """Of a least value, which may only go down."""
    had, wanted = old.get(word), new.get(word)
    if wanted is None or had == wanted:
        return []
    if had is None:
        return [f"{path}/{word}: it was added"]
    return [f"{path}/{word}: it was raised from {had} to {wanted}"] if wanted > had else []


def _lowered(old: Mapping[str, Any], new: Mapping[str, Any], word: str, path: str) -> list[str]:
    """Of a greatest value, which may only go up."""
    had, wanted = old.get(word), new.get(word)
    if wanted is None or had == wanted:
        return []
    if had is None:
        return [f"{path}/{word}: it was added"]
    return [f"{path}/{word}: it was lowered from {had} to {wanted}"] if wanted < had else []


def _matched(fits: Sequence[Sequence[bool]]) -> int:
    """The most pairs of a row and a column that fit, none of either twice."""
    taken: dict[int, int] = {}

    def place(row: int, tried: set[int]) -> bool:
        for column, fit in enumerate(fits[row]):
            if fit and column not in tried:
                tried.add(column)
                if column not in taken or place(taken[column], tried):
                    taken[column] = row
                    return True
        return False

    return sum(place(row, set()) for row in range(len(fits)))


def _mapping(schema: Mapping[str, Any], word: str) -> Mapping[str, Any]:
    found = schema.get(word)
    return found if isinstance(found, Mapping) else {}


def _listed(schema: Mapping[str, Any], word: str) -> Sequence[Any]:
    found = schema.get(word)
    return found if isinstance(found, list) else ()


def _has_default(place: SchemaPlace) -> bool:
    schema = resolved(place).schema
    return isinstance(schema, Mapping) and "default" in schema


def _is_open_object(found: Classified) -> bool:
    schema = found.schema
    rest = schema.get("unevaluatedProperties", True)
    return (
        schema.get("additionalProperties", True) is True
        and not _mapping(schema, "patternProperties")
        and classify(found.place.at(rest)).kind is JsonKind.ANYTHING
    )


def _covering(found: Classified, name: str) -> SchemaPlace | None:
    """What is said of a property by its pattern, or by what is said of all others. None: nothing is."""
    for pattern, schema in _mapping(found.schema, "patternProperties").items():
        with suppress(re.error):
            if re.search(pattern, name):
                return found.place.at(schema)
    for word in ("additionalProperties", "unevaluatedProperties"):
        rest = found.schema.get(word)
        if isinstance(rest, Mapping) and (word == "additionalProperties" or rest):
            return found.place.at(rest)
    return None


def _dependencies_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    words = ("dependencies", "dependentRequired", "dependentSchemas")
    return {name: wanted for word in words for name, wanted in _mapping(schema, word).items()}


def _every_item(schema: Mapping[str, Any]) -> Any:
    """The schema of all items alike, if there is one."""
    items = schema.get("items")
    return None if isinstance(items, list) or "prefixItems" in schema else items


def _tuple(schema: Mapping[str, Any]) -> Sequence[Any]:
    return _listed(schema, "prefixItems") or _listed(schema, "items")


def _rest(found: Classified) -> Any:
    """What is said of items beyond those that have a schema each."""
    schema = found.schema
    rest = schema.get("items", True) if "prefixItems" in schema else schema.get("additionalItems", True)
    if rest is True or rest == {}:
        return schema.get("unevaluatedItems", True) or {}
    return rest
