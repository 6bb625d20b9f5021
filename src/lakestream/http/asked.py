"""A table's metadata as it is told to an engine that has waited for it."""

from typing import Final

from pyiceberg.table.metadata import TableMetadata

_TRANSACTION_MS: Final = 1_000
"""How long before its request a transaction may have begun that is to see what was committed for it. Less than the
minute for which engines allow clocks to differ."""


def as_asked(metadata: TableMetadata, asked_ms: int) -> TableMetadata:
    """The metadata as one that was there when the engine's transaction began: DuckDB compares the two times, and else
    looks for an older one, so that the commit which was made for it would be for the next to see. The stored file, and
    the snapshots in both, keep their own times."""
    updated_ms = min(metadata.last_updated_ms, asked_ms - _TRANSACTION_MS)
    return metadata.model_copy(update={"last_updated_ms": updated_ms})
