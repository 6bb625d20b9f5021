"""An Avro schema as a tree of types.

Only what binary values depend on is kept: names, order and kinds; documentation, defaults and sort orders are not.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from lakestream.errors import InvalidSchema

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
MAX_DEPTH: Final = 100
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")


@dataclass(frozen=True, slots=True)
class AvroType:
    """`kind` is Avro's word, or `named` for a type that is defined elsewhere in the schema. `below`: the fields of a
    record (in the order of `names`), branches of a union, items of an array, values of a map. `names` are of fields or
    symbols. A logical type that its type cannot have is none, as Avro wants it."""

    kind: str
    name: str = ""
    logical: str = ""
    precision: int = 0
    scale: int = 0
    size: int = 0
    names: tuple[str, ...] = ()
    below: "tuple[AvroType, ...]" = ()


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """`named` are the types with names by their full ones."""

    root: AvroType
    named: Mapping[str, AvroType]

    def resolved(self, found: AvroType) -> AvroType:
        return self.named[found.name] if found.kind == "named" else found


NULL: Final = AvroType("null")


def parse_avro(text: str, references: Mapping[str, str] | None = None) -> AvroSchema:
    """Raises `InvalidSchema` with a sentence for what is none. `references` are other schemas that it uses, by name, in
    an order in which each needs only those before it."""
    parser = _Parser()
    for name, other in (references or {}).items():
        parser.parse(_document(other, f"the reference {name}"))
    return AvroSchema(parser.parse(_document(text, "the schema")), parser.named)


def _document(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        # A schema may be a bare name, without the quotation marks that JSON wants.
        if _NAME.fullmatch(text.strip()):
            return text.strip()
        raise InvalidSchema(f"{what} is no JSON: {error}") from error


@dataclass(slots=True)
class _Parser:
    named: dict[str, AvroType] = field(default_factory=dict)
    _open: set[str] = field(default_factory=set)

    def parse(self, document: Any, space: str = "", depth: int = 0) -> AvroType:
        if depth > MAX_DEPTH:
            raise InvalidSchema(f"the schema nests more than {MAX_DEPTH} levels")
        if isinstance(document, str):
            return self._reference(document, space)
        if isinstance(document, list):
            return self._union(document, space, depth)
        if not isinstance(document, dict):
            raise InvalidSchema(f"a type is a name, a list or an object, not {json.dumps(document)[:80]}")
        kind = document.get("type")
        if isinstance(kind, (dict, list)):
            return self.parse(kind, space, depth + 1)
        if kind in ("record", "error"):
            return self._record(document, space, depth)
        if kind == "enum":
            return self._enum(document, space)
        if kind == "fixed":
            return self._fixed(document, space)
        if kind == "array":
            return AvroType("array", below=(self.parse(_needed(document, "items"), space, depth + 1),))
        if kind == "map":
            return AvroType("map", below=(self.parse(_needed(document, "values"), space, depth + 1),))
        if isinstance(kind, str):
            found = self._reference(kind, space)
            return _logical(found, document) if found.kind in PRIMITIVES else found
        raise InvalidSchema(f"an object without a type: {json.dumps(document)[:80]}")

    def _reference(self, name: str, space: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name)
        for full in (_full(name, space), name):
            if full in self.named or full in self._open:
                return AvroType("named", full)
        raise InvalidSchema(f"the type {name} is not defined")

    def _union(self, branches: list[Any], space: str, depth: int) -> AvroType:
        if not branches:
            raise InvalidSchema("a union without branches")
        found = tuple(self.parse(branch, space, depth + 1) for branch in branches)
        if any(each.kind == "union" for each in found):
            raise InvalidSchema("a union directly in a union")
        names = [each.name or each.kind for each in found]
        if len(set(names)) != len(names):
            raise InvalidSchema(f"a union has a branch twice: {', '.join(names)}")
        return AvroType("union", below=found)

    def _define(self, document: dict[str, Any], space: str) -> tuple[str, str]:
        """Full name and namespace of a new one."""
        name, own = _needed(document, "name"), document.get("namespace", space)
        if not isinstance(name, str) or not isinstance(own, str) or not _NAME.fullmatch(name):
            raise InvalidSchema(f"{name!r} is no name")
        full = _full(name, own)
        if full in self.named or full in self._open:
            raise InvalidSchema(f"the type {full} is defined twice")
        return full, full.rpartition(".")[0]

    def _record(self, document: dict[str, Any], space: str, depth: int) -> AvroType:
        full, inner = self._define(document, space)
        fields = _needed(document, "fields")
        if not isinstance(fields, list) or not all(isinstance(each, dict) for each in fields):
            raise InvalidSchema(f"the fields of {full} are no list of objects")
        self._open.add(full)
        names = tuple(_needed(each, "name") for each in fields)
        if not all(isinstance(name, str) and _NAME.fullmatch(name) for name in names) or len(set(names)) != len(names):
            raise InvalidSchema(f"the record {full} has a field twice, or one without a name")
        below = tuple(self.parse(_field_type(each), inner, depth + 1) for each in fields)
        self._open.remove(full)
        self.named[full] = AvroType("record", full, names=names, below=below)
        return self.named[full]

    def _enum(self, document: dict[str, Any], space: str) -> AvroType:
        full, _ = self._define(document, space)
        symbols = _needed(document, "symbols")
        if not isinstance(symbols, list) or not symbols or not all(isinstance(each, str) for each in symbols):
            raise InvalidSchema(f"the symbols of {full} are no list of names")
        if len(set(symbols)) != len(symbols):
            raise InvalidSchema(f"the enum {full} has a symbol twice")
        self.named[full] = AvroType("enum", full, names=tuple(symbols))
        return self.named[full]

    def _fixed(self, document: dict[str, Any], space: str) -> AvroType:
        full, _ = self._define(document, space)
        size = _needed(document, "size")
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= 0x7FFFFFFF:
            raise InvalidSchema(f"the size of {full} is {size!r}")
        self.named[full] = _logical(AvroType("fixed", full, size=size), document)
        return self.named[full]


def _needed(document: dict[str, Any], key: str) -> Any:
    if key not in document:
        raise InvalidSchema(f"{json.dumps(document)[:80]} lacks its {key}")
    return document[key]


def _field_type(document: dict[str, Any]) -> Any:
    """A field may carry its type's logical type itself."""
    kind = _needed(document, "type")
    if isinstance(kind, str) and "logicalType" in document:
        return {key: document[key] for key in ("type", "logicalType", "precision", "scale") if key in document}
    return kind


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


_LOGICAL: Final[Mapping[str, frozenset[str]]] = {
    "date": frozenset({"int"}),
    "time-millis": frozenset({"int"}),
    "time-micros": frozenset({"long"}),
    "timestamp-millis": frozenset({"long"}),
    "timestamp-micros": frozenset({"long"}),
    "local-timestamp-millis": frozenset({"long"}),
    "local-timestamp-micros": frozenset({"long"}),
    "uuid": frozenset({"string", "fixed"}),
    "decimal": frozenset({"bytes", "fixed"}),
}


def _logical(found: AvroType, document: dict[str, Any]) -> AvroType:
    logical = document.get("logicalType")
    if not isinstance(logical, str) or found.kind not in _LOGICAL.get(logical, ()):
        return found
    precision, scale = document.get("precision", 0), document.get("scale", 0)
    if logical == "decimal":
        if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision > 0:
            return found
    elif logical == "uuid" and found.kind == "fixed" and found.size != 16:
        return found
    else:
        precision = scale = 0
    return AvroType(found.kind, found.name, logical, precision, scale, found.size)
