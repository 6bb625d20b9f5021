"""The Iceberg REST catalog over plain HTTP, as far as commands need it: find a topic's table, change its refs."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from lakestream.cli.console import fail
from lakestream.cli.doors import DoorError, ask
from lakestream.cli.tables.history import TableHistory, read_history
from lakestream.metadata.topics.tables import table_name

_LEVEL: Final = "\x1f"
_NOT_FOUND: Final = 404
_TIMEOUT_S: Final = 60.0
_SUFFIX: Final = re.compile(r"_[0-9a-f]{8}")

Name = tuple[str, ...]
"""Namespace levels, then the table."""


class CatalogError(DoorError):
    """Of the catalog."""


@dataclass(slots=True)
class RestTables:
    """Raises `CatalogError`."""

    catalog: str
    _prefix: str | None = field(default=None, init=False)

    def load(self, name: Name) -> TableHistory | None:
        """None: there is no such table."""
        try:
            answer = self._ask("GET", self._path(name))
        except CatalogError as error:
            if error.status == _NOT_FOUND:
                return None
            raise
        return read_history(name, answer["metadata"])

    def raw(self, table: TableHistory) -> Any:
        """The catalog's whole answer."""
        return self._ask("GET", self._path(table.name))

    def properties(self, name: Name) -> dict[str, str]:
        """With what the catalog tells of the table as it is answered."""
        found: dict[str, str] = self._ask("GET", self._path(name))["metadata"].get("properties", {})
        return found

    def find(self, text: str) -> TableHistory:
        """A table by `namespace.table`, else by its topic. Ends the command if there is none."""
        try:
            words = tuple(text.split("."))
            found = self.load(words) if len(words) > 1 else None
            found = found or self.of_topic(text)
        except CatalogError as error:
            fail(str(error))
        if found is None:
            fail(f"there is no table {text!r} yet: it appears with the topic's first commit")
        return found

    def of_topic(self, topic: str) -> TableHistory | None:
        """A table that was made before tables said their topic is known by its name alone."""
        wanted = table_name(topic)
        first = (*wanted.namespace, wanted.name)
        tried = self.load(first) or self.load((*wanted.namespace, topic))
        if tried is not None and tried.topic in (None, topic):
            return tried
        names = list(self.names())
        suffixed = [(name, name[-1].removeprefix(first[-1])) for name in names if name[:-1] == first[:-1]]
        likely = [name for name, suffix in suffixed if _SUFFIX.fullmatch(suffix)]
        for name in (*likely, *(name for name in names if name not in likely)):
            found = self.load(name)
            if found is not None and found.topic == topic:
                return found
        return None

    def change(
        self, table: TableHistory, requirements: Sequence[dict[str, Any]], updates: Sequence[dict[str, Any]]
    ) -> TableHistory:
        """One commit on exactly this table. A table that was changed meanwhile is refused."""
        body = {
            "requirements": [{"type": "assert-table-uuid", "uuid": table.uuid}, *requirements],
            "updates": list(updates),
        }
        answer = self._ask("POST", self._path(table.name), body)
        return read_history(table.name, answer["metadata"])

    def names(self) -> Iterator[Name]:
        """Of all tables."""
        for namespace in self._ask("GET", "namespaces")["namespaces"]:
            path = f"namespaces/{quote(_LEVEL.join(namespace), safe='')}/tables"
            for found in self._ask("GET", path)["identifiers"]:
                yield (*found["namespace"], found["name"])

    def _path(self, name: Name) -> str:
        namespace, table = quote(_LEVEL.join(name[:-1]), safe=""), quote(name[-1], safe="")
        return f"namespaces/{namespace}/tables/{table}"

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        if self._prefix is None:
            config = self._send("GET", "config", None)
            prefix = config.get("overrides", {}).get("prefix") or config.get("defaults", {}).get("prefix")
            self._prefix = f"{prefix}/" if prefix else ""
        return self._send(method, self._prefix + path, body)

    def _send(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        url = f"{self.catalog.rstrip('/')}/v1/{path}"
        try:
            return ask(f"catalog at {self.catalog}", method, url, body, timeout_s=_TIMEOUT_S)
        except DoorError as error:
            raise CatalogError(str(error), error.status) from error
