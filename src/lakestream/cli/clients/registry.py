"""A schema registry over plain HTTP, as far as commands need it."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from lakestream.cli.console import fail
from lakestream.cli.doors import DoorError, ask
from lakestream.table.shape import ValueSchema

_TIMEOUT_S: Final = 30.0
_PAUSE_S: Final = 0.3
_TYPES: Final = {".avsc": "AVRO", ".proto": "PROTOBUF", ".json": "JSON"}
_CONTENT: Final = "application/vnd.schemaregistry.v1+json"


class RegistryError(DoorError):
    """Of the registry."""


@dataclass(frozen=True, slots=True)
class SchemaText:
    type: str
    text: str

    @property
    def body(self) -> dict[str, str]:
        return {"schema": self.text, "schemaType": self.type}


def read_schema(path: Path) -> SchemaText:
    """By the file's name: .avsc, .proto or .json (JSON Schema). Ends the command."""
    if path.suffix not in _TYPES:
        fail(f"{path} is no schema: its name ends in {', '.join(_TYPES)}")
    try:
        return SchemaText(_TYPES[path.suffix], path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{path} cannot be read: {error}")


@dataclass(frozen=True, slots=True)
class Registry:
    """Raises `RegistryError`."""

    url: str

    def register(self, subject: str, schema: SchemaText, *, wait_s: float = 0) -> int:
        """The id. `wait_s`: how long to wait for a registry that does not answer yet."""
        deadline = time.monotonic() + wait_s
        while True:
            try:
                return int(self._ask("POST", f"subjects/{_quoted(subject)}/versions", schema.body)["id"])
            except RegistryError as error:
                if error.status or time.monotonic() >= deadline:
                    raise
                time.sleep(_PAUSE_S)

    def incompatibilities(self, subject: str, schema: SchemaText) -> list[str]:
        """What keeps the schema from being the subject's next version."""
        path = f"compatibility/subjects/{_quoted(subject)}/versions?verbose=true"
        answer = self._ask("POST", path, schema.body)
        if answer["is_compatible"]:
            return []
        return [str(each) for each in answer.get("messages") or ["it is not compatible"]]

    def subjects(self) -> list[str]:
        return list(self._ask("GET", "subjects"))

    def versions(self, subject: str) -> list[int]:
        return list(self._ask("GET", f"subjects/{_quoted(subject)}/versions"))

    def version(self, subject: str, number: int | str = "latest") -> dict[str, Any]:
        found: dict[str, Any] = self._ask("GET", f"subjects/{_quoted(subject)}/versions/{number}")
        return found

    def by_id(self, schema_id: int) -> ValueSchema:
        return self.as_value_schema(schema_id, self._ask("GET", f"schemas/ids/{schema_id}"))

    def as_value_schema(self, schema_id: int, answer: dict[str, Any]) -> ValueSchema:
        """Of an answer of the registry, with all that the schema refers to."""
        found: dict[str, str] = {}
        self._collect(answer.get("references") or (), found)
        kind = answer.get("schemaType") or "AVRO"
        return ValueSchema(schema_id, answer["schema"], tuple(found.items()), format=kind)

    def _collect(self, references: Sequence[dict[str, Any]], found: dict[str, str]) -> None:
        for each in references:
            if each["name"] not in found:
                answer = self.version(each["subject"], each["version"])
                self._collect(answer.get("references") or (), found)
                found[each["name"]] = answer["schema"]

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        url = f"{self.url.rstrip('/')}/{path}"
        try:
            return ask(f"schema registry at {self.url}", method, url, body, timeout_s=_TIMEOUT_S, content=_CONTENT)
        except DoorError as error:
            raise RegistryError(str(error), error.status) from error


def _quoted(subject: str) -> str:
    return quote(subject, safe="")
