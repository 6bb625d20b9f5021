"""An Avro schema's JSON, written in one order: what is the same schema gets the same text."""

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
_ORDER: Final = ("type", "name", "namespace", "doc", "fields", "symbols", "items", "values", "size", "default", "order")


class AvroStyle(Enum):
    AS_IS = "as it is"
    """Only the order of attributes and superfluous wrapping go."""
    NORMALIZED = "normalized"
    """Names are full names, and attributes that are not Avro's are sorted, too."""


def written(source: Any, how: AvroStyle, namespace: str = "") -> Any:
    """`source` is a valid schema."""
    if isinstance(source, str):
        return _full(source, namespace) if how is AvroStyle.NORMALIZED else source
    if isinstance(source, list):
        return [written(branch, how, namespace) for branch in source]
    if set(source) == {"type"}:
        return written(source["type"], how, namespace)
    tree: dict[str, Any] = dict(source)
    kind = tree["type"]
    if kind in _NAMED:
        namespace = _namespace(tree, namespace)
        if how is AvroStyle.NORMALIZED:
            tree["name"] = tree["name"] if "." in tree["name"] or not namespace else f"{namespace}.{tree['name']}"
            tree.pop("namespace", None)
    elif not isinstance(kind, str) or (kind not in PRIMITIVES and kind not in ("array", "map")):
        tree["type"] = written(kind, how, namespace)
    if "fields" in tree and kind in ("record", "error"):
        tree["fields"] = [_field(field, how, namespace) for field in tree["fields"]]
    if kind == "array":
        tree["items"] = written(tree["items"], how, namespace)
    if kind == "map":
        tree["values"] = written(tree["values"], how, namespace)
    return _ordered(tree, how)


def _field(field: Mapping[str, Any], how: AvroStyle, namespace: str) -> dict[str, Any]:
    tree = {**field, "type": written(field["type"], how, namespace)}
    first = {"name": tree.pop("name")}
    if how is AvroStyle.NORMALIZED and tree.get("order") == "ascending":
        del tree["order"]
    return first | _ordered(tree, how)


def _ordered(tree: Mapping[str, Any], how: AvroStyle) -> dict[str, Any]:
    known = {key: tree[key] for key in _ORDER if key in tree}
    others = [key for key in tree if key not in known]
    return known | {key: tree[key] for key in (sorted(others) if how is AvroStyle.NORMALIZED else others)}


def _namespace(tree: Mapping[str, Any], around: str) -> str:
    name = str(tree["name"])
    if "." in name:
        return name.rpartition(".")[0]
    return str(tree.get("namespace", around) or "")


def _full(name: str, namespace: str) -> str:
    return name if name in PRIMITIVES or "." in name or not namespace else f"{namespace}.{name}"
