"""Where an engine's table or view goes if it does not say so."""

import re
from typing import Final
from uuid import UUID

from lakestream.metadata.pointers import TableName

_PLAIN: Final = re.compile(r"[^A-Za-z0-9._-]")


def folder_of(name: TableName, unique: UUID) -> str:
    """Readable, and never that of another."""
    return _PLAIN.sub("_", f"{'.'.join(name.namespace)}.{name.name}__{unique.hex[:8]}")
