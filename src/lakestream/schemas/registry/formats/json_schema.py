"""JSON Schema: checked against its draft's own schema; every `$ref` must be found in it or in its dependencies.

Nothing is ever fetched from a network. Without `$schema` it is draft 7.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from jsonschema import Draft7Validator
from jsonschema.exceptions import SchemaError
from jsonschema.validators import validator_for
from referencing import Registry as Documents
from referencing import Resource
from referencing.exceptions import CannotDetermineSpecification, Unresolvable
from referencing.jsonschema import DRAFT7, SchemaResource

from lakestream.schemas.registry.formats.format import MOST_MESSAGES, Dependency, ParsedSchema, invalid
from lakestream.schemas.registry.formats.json_diff import Differences
from lakestream.schemas.registry.formats.json_kinds import SchemaPlace

_NEWEST: Final = "http://json-schema.org/schema"
"""Whatever draft is the newest: draft 7 was, when schemas were still written so."""


@dataclass(frozen=True, slots=True)
class ParsedJson:
    root: SchemaPlace

    @property
    def text(self) -> str:
        return json.dumps(self.root.schema, separators=(",", ":"), ensure_ascii=False)

    def normalized(self) -> str:
        return json.dumps(self.root.schema, separators=(",", ":"), ensure_ascii=False, sort_keys=True)

    def incompatibilities(self, writer: ParsedSchema) -> list[str]:
        assert isinstance(writer, ParsedJson)
        try:
            return Differences().between(writer.root, self.root)[:MOST_MESSAGES]
        except RecursionError:
            return ["the schemas are nested too deeply to be compared"]


class JsonFormat:
    def parse(self, text: str, dependencies: Sequence[Dependency]) -> ParsedJson:
        schema = _load(text)
        try:
            known: Documents[Any] = Documents().with_resources(
                (name, _resource(_load(other))) for name, other in dependencies
            )
            own = _resource(schema)
            known = known.with_resource(own.id() or "", own).crawl()
            _validator(schema).check_schema(schema)
            root = SchemaPlace(schema, known.resolver(own.id() or ""))
            _check_references(root)
            for name, _ in dependencies:
                found = known.resolver().lookup(name)
                _check_references(SchemaPlace(found.contents, found.resolver))
        except SchemaError as error:
            where = "/".join(str(part) for part in error.absolute_path)
            raise invalid(f"at #/{where}: {error.message[:500]}") from error
        except Unresolvable as error:
            raise invalid(f"the reference {error.ref!r} is not found: name it in `references`") from error
        except RecursionError as error:
            raise invalid("it is nested too deeply") from error
        except (ValueError, TypeError, AttributeError) as error:
            raise invalid(error) from error
        return ParsedJson(root)


def _load(text: str) -> Any:
    try:
        schema = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise invalid(f"it is not JSON: {error}") from error
    if not isinstance(schema, dict | bool):
        raise invalid("a JSON Schema is an object, true or false")
    return schema


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


def _validator(schema: Any) -> Any:
    named = schema.get("$schema", _NEWEST) if isinstance(schema, dict) else _NEWEST
    if str(named).rstrip("#") == _NEWEST:
        return Draft7Validator
    found = validator_for({"$schema": named}, default=None)
    if found is None:
        raise invalid(f"the draft that its $schema names is not known: {str(named)[:200]}")
    return found


def _resource(schema: Any) -> SchemaResource:
    try:
        return Resource.from_contents(schema, default_specification=DRAFT7)
    except CannotDetermineSpecification as error:
        raise invalid(f"the draft of its $schema is not known: {error}") from error


def _check_references(root: SchemaPlace) -> None:
    for reference in _references(root.schema):
        root.resolver.lookup(reference)


def _references(schema: Any) -> Iterator[str]:
    """Values are no schemas: what looks like a reference there is none."""
    todo = [schema]
    while todo:
        tree = todo.pop()
        if isinstance(tree, Mapping):
            if isinstance(tree.get("$ref"), str):
                yield tree["$ref"]
            todo += [value for key, value in tree.items() if key not in ("enum", "const", "default", "examples")]
        elif isinstance(tree, list):
            todo += tree
