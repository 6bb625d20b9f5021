"""Where an engine's table or view goes if it does not say so, and a namespace's tables if the engine names them."""

import re
from typing import Final
from uuid import UUID

from lakestream.metadata.names.rows import Namespace, TableName

_PLAIN: Final = re.compile(r"[^A-Za-z0-9._-]")


def namespace_folder(namespace: Namespace) -> str:
    """Some engines, Trino first of all, put tables into a folder of their namespace, under unique names."""
    return _PLAIN.sub("_", ".".join(namespace))


def folder_of(name: TableName, unique: UUID) -> str:
    """Readable, and never that of another."""
    return _PLAIN.sub("_", f"{'.'.join(name.namespace)}.{name.name}__{unique.hex[:8]}")
