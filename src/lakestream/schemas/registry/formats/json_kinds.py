"""A JSON Schema as one of a few kinds, by which two are compared: a value's type, or a combination of schemas."""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

from referencing.exceptions import Unresolvable

_MOST_HOPS: Final = 100


class JsonKind(Enum):
    NOTHING = "false"
    ANYTHING = "true"
    STRING = "string"
    NUMBER = "number"
    BOOLEAN = "boolean"
    NULL = "null"
    OBJECT = "object"
    ARRAY = "array"
    CONST = "const"
    ENUM = "enum"
    NOT = "not"
    ALL = "allOf"
    ANY = "anyOf"
    ONE = "oneOf"

    @property
    def is_combined(self) -> bool:
        return self in (JsonKind.ALL, JsonKind.ANY, JsonKind.ONE)


class SchemaPlace(NamedTuple):
    """A schema, and where its references are looked up."""

    schema: Any
    resolver: Any

    def at(self, schema: Any) -> "SchemaPlace":
        return SchemaPlace(schema, self.resolver)


class Classified(NamedTuple):
    """`schema`: what is said of a value of that kind. `parts`: of a combination."""

    kind: JsonKind
    place: SchemaPlace
    parts: Sequence[SchemaPlace] = ()

    @property
    def schema(self) -> Mapping[str, Any]:
        return self.place.schema if isinstance(self.place.schema, Mapping) else {}


_TYPES: Final = {
    "string": JsonKind.STRING,
    "number": JsonKind.NUMBER,
    "integer": JsonKind.NUMBER,
    "boolean": JsonKind.BOOLEAN,
    "null": JsonKind.NULL,
    "object": JsonKind.OBJECT,
    "array": JsonKind.ARRAY,
}
_COMBINED: Final = (JsonKind.ALL, JsonKind.ANY, JsonKind.ONE)
_ABOUT: Final = {
    JsonKind.STRING: ("minLength", "maxLength", "pattern", "format"),
    JsonKind.NUMBER: ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    JsonKind.OBJECT: (
        *("properties", "patternProperties", "additionalProperties", "required", "minProperties", "maxProperties"),
        *("dependencies", "dependentRequired", "dependentSchemas", "propertyNames", "unevaluatedProperties"),
    ),
    JsonKind.ARRAY: (
        *("items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems", "contains"),
        *("minContains", "maxContains", "unevaluatedItems"),
    ),
}
"""What is said of values of one type, and so tells the type where none is named."""


def resolved(place: SchemaPlace) -> SchemaPlace:
    for _ in range(_MOST_HOPS):
        if not isinstance(place.schema, Mapping) or not isinstance(place.schema.get("$ref"), str):
            break
        try:
            found = place.resolver.lookup(place.schema["$ref"])
        except Unresolvable:
            return place.at({})
        place = SchemaPlace(found.contents, found.resolver)
    return place


def classify(place: SchemaPlace) -> Classified:
    """What a schema says of several kinds at once is their combination by allOf; of several types, by anyOf."""
    place = resolved(place)
    schema = place.schema
    if schema is False:
        return Classified(JsonKind.NOTHING, place)
    if schema is True or not isinstance(schema, Mapping):
        return Classified(JsonKind.ANYTHING, place)
    parts: list[Classified] = []
    if "const" in schema:
        parts.append(Classified(JsonKind.CONST, place))
    elif "enum" in schema:
        parts.append(Classified(JsonKind.ENUM, place))
    parts += _typed(place)
    if "not" in schema:
        parts.append(Classified(JsonKind.NOT, place))
    for kind in _COMBINED:
        listed = schema.get(kind.value)
        if isinstance(listed, list) and listed:
            parts.append(Classified(kind, place, [place.at(each) for each in _distinct(listed)]))
    if not parts:
        return Classified(JsonKind.ANYTHING, place)
    return parts[0] if len(parts) == 1 else Classified(JsonKind.ALL, place, [_only(part) for part in parts])


def _distinct(schemas: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    for schema in schemas:
        if schema not in found:
            found.append(schema)
    return found


def _typed(place: SchemaPlace) -> list[Classified]:
    named = place.schema.get("type")
    if isinstance(named, list) and len(named) > 1:
        return [Classified(JsonKind.ANY, place, [_only(_plain(place, each)) for each in named])]
    if isinstance(named, list):
        named = named[0] if named else None
    if named in _TYPES:
        return [_plain(place, named)]
    return [Classified(kind, place) for kind, words in _ABOUT.items() if any(word in place.schema for word in words)]


def _plain(place: SchemaPlace, named: str) -> Classified:
    return Classified(_TYPES.get(named, JsonKind.ANYTHING), place.at({**place.schema, "type": named}))


def _only(part: Classified) -> SchemaPlace:
    """A schema that says what this part says, and nothing of the others."""
    schema = part.schema
    if part.kind.is_combined:
        return part.place.at({part.kind.value: [each.schema for each in part.parts]})
    if part.kind in (JsonKind.CONST, JsonKind.ENUM, JsonKind.NOT):
        return part.place.at({part.kind.value: schema[part.kind.value]})
    words = ("type", "default", *_ABOUT.get(part.kind, ()))
    kept = {word: schema[word] for word in words if word in schema}
    return part.place.at({"type": part.kind.value} | kept)
