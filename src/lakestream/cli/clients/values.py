"""Values that name their schemas, as text for people."""

from importlib import import_module
from typing import Any, Final

from lakestream.cli.clients.registry import Registry, RegistryError
from lakestream.table.shape import ValueSchema

_PREFIX_BYTES: Final = 5
_SHOWING: Final = "lakestream.schemas.codecs.showing"
"""Loads Arrow, which takes longer than all else here: with the first value that needs it."""


class Readable:
    """Asks the registry once for each schema. What it cannot tell stays as it is."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._schemas: dict[int, ValueSchema | None] = {}
        self._is_away = False

    def text(self, value: bytes | None) -> bytes | None:
        """The value as JSON; itself if it has no schema that is known."""
        if value is None or len(value) < _PREFIX_BYTES or value[0] != 0:
            return value
        schema = self._schema(int.from_bytes(value[1:_PREFIX_BYTES], "big"))
        if schema is None:
            return value
        showing: Any = import_module(_SHOWING)
        shown: bytes | None = showing.as_json(value, schema)
        return value if shown is None else shown

    def _schema(self, schema_id: int) -> ValueSchema | None:
        if schema_id not in self._schemas and not self._is_away:
            try:
                self._schemas[schema_id] = self._registry.by_id(schema_id)
            except RegistryError as error:
                self._is_away = not error.status
                self._schemas[schema_id] = None
        return self._schemas.get(schema_id)
