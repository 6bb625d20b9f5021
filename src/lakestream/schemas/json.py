"""JSON Schemas as what their values are made of: objects with fields, arrays, maps, and what is text or a number.

Only what tells a value's type is read; rules that a value has to keep are not. What may be of several types, refers to
itself or says nothing is `json`: any value.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from lakestream.errors import InvalidSchema, RegistryRefused
from lakestream.schemas.registry.formats.format import Dependency
from lakestream.schemas.registry.formats.json_kinds import SchemaPlace, resolved
from lakestream.schemas.registry.formats.json_schema import JsonFormat

JsonTypeName = Literal["object", "array", "map", "string", "long", "double", "boolean", "date", "time", "json"]
MAX_LEVELS: Final = 12
MAX_FIELDS: Final = 4_000


@dataclass(frozen=True, slots=True)
class JsonType:
    """`names` are of an object's fields, whose types are `below`; an array has that of its items there, a map that of
    its values. `required`: the fields that every value has."""

    kind: JsonTypeName
    names: tuple[str, ...] = ()
    below: "tuple[JsonType, ...]" = ()
    required: frozenset[str] = frozenset()


ANY: Final = JsonType("json")
_SIMPLE: Final[Mapping[str, JsonTypeName]] = {
    "string": "string",
    "integer": "long",
    "number": "double",
    "boolean": "boolean",
}
_FORMATS: Final[Mapping[str, JsonTypeName]] = {"date-time": "time", "date": "date"}
_LISTS: Final = ("anyOf", "oneOf")
_ABOUT_TYPES: Final = ("type", "properties", "items", "additionalProperties", "enum", "const", "$ref", "allOf", *_LISTS)
"""Words that say what a value is, or may be."""


def parse_json_schema(text: str, references: Mapping[str, str]) -> JsonType:
    """Raises `InvalidSchema`."""
    try:
        parsed = JsonFormat().parse(text, [Dependency(name, other) for name, other in references.items()])
        return _Reader().type_of(parsed.root, ())
    except RegistryRefused as error:
        raise InvalidSchema(str(error)) from error
    except RecursionError as error:
        raise InvalidSchema("the schema is nested too deeply") from error


class _Reader:
    def __init__(self) -> None:
        self._made = 0

    def type_of(self, place: SchemaPlace, path: tuple[int, ...]) -> JsonType:
        """`path`: the schemas that it is in."""
        self._made += 1
        if self._made > 4 * MAX_FIELDS:
            raise InvalidSchema(f"the schema has more than {MAX_FIELDS} fields")
        place = resolved(place)
        schema = place.schema
        if not isinstance(schema, Mapping) or id(schema) in path or len(path) >= 2 * MAX_LEVELS:
            return ANY
        path = (*path, id(schema))
        if isinstance(schema.get("allOf"), list):
            return self._all(place, path)
        for word in _LISTS:
            if isinstance(schema.get(word), list):
                found = self._either(place, word, path)
                if found is not None:
                    return found
        return self._plain(place, path)

    def _all(self, place: SchemaPlace, path: tuple[int, ...]) -> JsonType:
        rest = {word: said for word, said in place.schema.items() if word != "allOf"}
        parts = [resolved(place.at(each)) for each in (rest, *place.schema["allOf"])]
        types = [self.type_of(each, path) for each in parts if _says_type(each.schema)]
        return _merged(types) if types else ANY

    def _either(self, place: SchemaPlace, word: str, path: tuple[int, ...]) -> JsonType | None:
        """What all branches but null are; None: they say nothing about types."""
        branches = [resolved(place.at(each)) for each in place.schema[word]]
        if not any(_says_type(each.schema) for each in branches):
            return None
        if any(key in place.schema for key in ("type", "properties", "items")):
            return ANY
        types = [self.type_of(each, path) for each in branches if not _is_null(each.schema)]
        if types and all(each == types[0] for each in types):
            return types[0]
        return JsonType("double") if {each.kind for each in types} == {"long", "double"} else ANY

    def _plain(self, place: SchemaPlace, path: tuple[int, ...]) -> JsonType:
        schema = place.schema
        kind = _type_name(schema)
        if kind == "string":
            return JsonType(_FORMATS.get(str(schema.get("format")), "string"))
        if kind in _SIMPLE:
            return JsonType(_SIMPLE[kind])
        if kind == "object":
            return self._object(place, path)
        items = schema.get("items")
        if kind == "array" and isinstance(items, Mapping) and "prefixItems" not in schema:
            return JsonType("array", below=(self.type_of(place.at(items), path),))
        return ANY

    def _object(self, place: SchemaPlace, path: tuple[int, ...]) -> JsonType:
        schema = place.schema
        fields = schema.get("properties")
        if isinstance(fields, Mapping) and any(fields):
            if len(fields) > MAX_FIELDS:
                raise InvalidSchema(f"the schema has more than {MAX_FIELDS} fields")
            names = tuple(name for name in fields if name)
            below = tuple(self.type_of(place.at(fields[name]), path) for name in names)
            return JsonType("object", names, below, frozenset(_required(schema)))
        more = schema.get("additionalProperties")
        if isinstance(more, Mapping) and "patternProperties" not in schema:
            return JsonType("map", below=(self.type_of(place.at(more), path),))
        return ANY


def _required(schema: Mapping[str, Any]) -> Iterator[str]:
    """Draft 3 says it of each field, later ones in a list."""
    listed = schema.get("required")
    if isinstance(listed, list):
        yield from (name for name in listed if isinstance(name, str))
    for name, field in schema.get("properties", {}).items():
        if isinstance(field, Mapping) and field.get("required") is True:
            yield name


def _says_type(schema: Any) -> bool:
    return isinstance(schema, Mapping) and any(word in schema for word in _ABOUT_TYPES)


def _is_null(schema: Any) -> bool:
    return isinstance(schema, Mapping) and (
        schema.get("type") in ("null", ["null"]) or schema.get("enum") == [None] or schema.get("const", 0) is None
    )


def _type_name(schema: Mapping[str, Any]) -> str:
    """The one type of its values but null; empty: there are several, or none is known."""
    named = schema.get("type")
    names = [named] if isinstance(named, str) else named if isinstance(named, list) else _implied(schema)
    if not all(isinstance(name, str) for name in names):
        return ""
    found = {name for name in names if name != "null"}
    if found == {"integer", "number"}:
        return "number"
    return found.pop() if len(found) == 1 else ""


def _implied(schema: Mapping[str, Any]) -> Sequence[str]:
    if "enum" in schema or "const" in schema:
        values = [schema["const"]] if "const" in schema else schema["enum"]
        return [_VALUE_TYPES.get(type(value), "any") for value in values]
    if "properties" in schema:
        return ["object"]
    return ["array"] if isinstance(schema.get("items"), Mapping) else []


_VALUE_TYPES: Final[Mapping[type, str]] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
}


def _merged(types: Sequence[JsonType]) -> JsonType:
    """What is all of these: objects are one with the fields of all."""
    if all(each.kind == "object" for each in types):
        fields: dict[str, JsonType] = {}
        for each in types:
            for name, below in zip(each.names, each.below, strict=True):
                if fields.setdefault(name, below) != below:
                    fields[name] = ANY
        required = frozenset(name for each in types for name in each.required)
        return JsonType("object", tuple(fields), tuple(fields.values()), required)
    return types[0] if all(each == types[0] for each in types) else ANY
