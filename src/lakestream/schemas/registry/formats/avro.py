"""Avro schemas, parsed and compared by Apache Avro's own library.

The library does not look at default values; they are checked here, as Java's parser does.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from avro.errors import AvroException
from avro.name import Names
from avro.schema import Schema as AvroTree
from avro.schema import make_avsc_object

from lakestream.schemas.registry.formats.avro_text import AvroStyle, written
from lakestream.schemas.registry.formats.format import MOST_MESSAGES, Dependency, ParsedSchema, invalid

_INT: Final = range(-(1 << 31), 1 << 31)
_LONG: Final = range(-(1 << 63), 1 << 63)
_YOUNGER: Final = ("local-timestamp-", "timestamp-nanos")
_NESTED: Final = ("type", "fields", "items", "values")


@dataclass(frozen=True, slots=True)
class ParsedAvro:
    tree: AvroTree
    source: Any
    """The schema's own JSON."""

    @property
    def text(self) -> str:
        return _compact(written(self.source, AvroStyle.AS_IS))

    def normalized(self) -> str:
        return _compact(written(self.source, AvroStyle.NORMALIZED))

    def incompatibilities(self, writer: ParsedSchema) -> list[str]:
        assert isinstance(writer, ParsedAvro)
        try:
            found = ReaderWriterCompatibilityChecker().get_compatibility(  # type: ignore[no-untyped-call]
                self.tree, writer.tree
            )
        except RecursionError:
            return ["the schemas are nested too deeply to be compared"]
        if found.compatibility is SchemaCompatibilityType.compatible:
            return []
        kinds = ", ".join(sorted({each.name.upper() for each in found.incompatibilities}))
        places = ", ".join(sorted(found.locations))
        return [f"{kinds} at {places}: {message}" for message in sorted(found.messages)][:MOST_MESSAGES]


class AvroFormat:
    def parse(self, text: str, dependencies: Sequence[Dependency]) -> ParsedAvro:
        names = Names(validate_names=True)
        for each in dependencies:
            _tree(_json(each.text), names)
        source = _json(text)
        tree = _tree(source, names)
        _check_defaults(tree, set())
        return ParsedAvro(tree, source)


def _json(text: str) -> Any:
    """A primitive type may be written without quotes."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        if text.strip().isidentifier():
            return text.strip()
        raise invalid(f"it is not JSON: {error}") from error


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


def _tree(source: Any, names: Names) -> AvroTree:
    try:
        return make_avsc_object(_without_unknown(source), names)
    except (AvroException, ValueError, TypeError, KeyError, AttributeError) as error:
        raise invalid(str(error) or type(error).__name__) from error
    except RecursionError as error:
        raise invalid("it is nested too deeply") from error


def _without_unknown(source: Any) -> Any:
    """Without logical types that are younger than the library, which warns of each: they say nothing of the bytes."""
    if isinstance(source, list):
        return [_without_unknown(each) for each in source]
    if not isinstance(source, dict):
        return source
    unknown = str(source.get("logicalType", "")).startswith(_YOUNGER)
    return {
        name: _without_unknown(each) if name in _NESTED else each
        for name, each in source.items()
        if not (unknown and name == "logicalType")
    }


def _check_defaults(tree: Any, seen: set[int]) -> None:
    if id(tree) in seen:
        return
    seen.add(id(tree))
    if tree.type in ("record", "error"):
        for field in tree.fields:
            if field.has_default and not _fits(field.default, field.type):
                told = json.dumps(field.default)
                raise invalid(f"the default of field {field.name} of {tree.fullname} does not fit its type: {told}")
            _check_defaults(field.type, seen)
    elif tree.type == "array":
        _check_defaults(tree.items, seen)
    elif tree.type == "map":
        _check_defaults(tree.values, seen)
    elif tree.type in ("union", "error_union"):
        for branch in tree.schemas:
            _check_defaults(branch, seen)


def _fits(value: Any, tree: Any) -> bool:
    match tree.type:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "int" | "long":
            return _is_integer(value) and value in (_INT if tree.type == "int" else _LONG)
        case "float" | "double":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "string":
            return isinstance(value, str)
        case "bytes" | "fixed":
            latin = isinstance(value, str) and all(ord(letter) < 256 for letter in value)
            return latin and (tree.type == "bytes" or len(value) == tree.size)
        case "enum":
            return value in tree.symbols
        case "array":
            return isinstance(value, list) and all(_fits(each, tree.items) for each in value)
        case "map":
            return isinstance(value, Mapping) and all(_fits(each, tree.values) for each in value.values())
        case "union" | "error_union":
            return any(_fits(value, branch) for branch in tree.schemas)
        case _:
            return isinstance(value, Mapping) and all(
                _fits(value[field.name], field.type) if field.name in value else field.has_default
                for field in tree.fields
            )


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _compact(tree: Any) -> str:
    return json.dumps(tree, separators=(",", ":"), ensure_ascii=False)
