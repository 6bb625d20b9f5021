"""The rules of a JSON Schema that columns do not hold: `required`, `minimum`, `pattern` and the like. For topics whose
`lakestream.schema.validation` is `full`. Nothing is fetched from a network; `format` is a remark, unless it is a date
or a time, which have to be some to be columns.
"""

import json
from functools import lru_cache
from typing import Any, Final

import jsonschema_rs
import msgspec

from lakestream.table.shape import ValueSchema

_KEPT: Final = 256
_DRAFT: Final = "http://json-schema.org/draft-07/schema#"
_BACKTRACKS_MOST: Final = 10_000
_MESSAGE_MOST: Final = 300


class Rules:
    """Of one schema."""

    def __init__(self, validator: Any) -> None:
        self._validator = validator

    def are_kept(self, text: bytes) -> bool:
        """By a value that is columns of the schema."""
        return bool(self._validator.is_valid(_loaded(text)))

    def broken(self, text: bytes) -> str:
        """What is wrong with the value, in a sentence; empty: nothing."""
        found = next(iter(self._validator.iter_errors(_loaded(text))), None)
        if found is None:
            return ""
        where = "/".join(str(part) for part in found.instance_path)
        told = found.message if len(found.message) <= _MESSAGE_MOST else f"{found.message[:_MESSAGE_MOST]}…"
        return f"at /{where}: {told}"


@lru_cache(_KEPT)
def rules_of(schema: ValueSchema) -> Rules | None:
    """None: the schema is not JSON, or of draft 3, or has what the library does not take. Then its types count."""
    if schema.format != "JSON" or schema.trouble:
        return None
    try:
        return Rules(_validator(schema))
    except (ValueError, TypeError, RecursionError, jsonschema_rs.ReferencingError):
        return None


def _validator(schema: ValueSchema) -> Any:
    own = json.loads(schema.text)
    if isinstance(own, dict):
        own.setdefault("$schema", _DRAFT)
    others = [(name, json.loads(text)) for name, text in schema.references]
    known = jsonschema_rs.Registry(others, retriever=_nothing) if others else None
    try:
        return _made(own, known, jsonschema_rs.RegexOptions())
    except ValueError:
        # Patterns that look ahead take their time, which is bounded.
        return _made(own, known, jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACKS_MOST))


def _made(schema: Any, known: Any, patterns: Any) -> Any:
    return jsonschema_rs.validator_for(
        schema, registry=known, retriever=_nothing, validate_formats=False, pattern_options=patterns
    )


def _loaded(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        # Numbers of any length.
        return json.loads(text)


def _nothing(uri: str) -> Any:
    raise ValueError(f"{uri} is not among the schema's references")
