"""How far a table goes when anybody may write its properties. Pure.

In an external catalog a commit of somebody else may set, lower or remove `lakestream.frontier`. So the engine writes it
together with a checksum, and the same vector into the summary of each snapshot it makes, which nobody can change
afterwards. Neither is enough alone: some catalogs show the newest snapshot only, and one that another engine made has
no vector.
"""

from collections.abc import Iterator
from itertools import zip_longest
from typing import Final
from uuid import UUID

from pyiceberg.table.metadata import TableMetadata

from lakestream.catalog.stamp import vector_of
from lakestream.errors import StorageError
from lakestream.records import crc32c
from lakestream.table.schema import FRONTIER_PROPERTY, parse_frontier

SEAL_PROPERTY: Final = "lakestream.frontier-checksum"


def sealed_frontier(topic_id: UUID, text: str) -> dict[str, str]:
    """The properties that say the frontier."""
    return {FRONTIER_PROPERTY: text, SEAL_PROPERTY: _checksum(topic_id, text)}


def proven_frontier(topic_id: UUID, table: str, metadata: TableMetadata) -> tuple[int, ...]:
    """The farthest that the sealed property and the snapshots' vectors say, by partition. A property without its seal
    says nothing. Raises `StorageError` if nothing says anything."""
    frontier: tuple[int, ...] = ()
    for vector in _vectors(topic_id, metadata):
        frontier = tuple(max(pair) for pair in zip_longest(frontier, vector, fillvalue=0))
    if not frontier:
        raise StorageError(
            f"{table}: property {FRONTIER_PROPERTY} is {metadata.properties.get(FRONTIER_PROPERTY)!r}, which is not"
            " what the pipeline wrote, and no snapshot says how far the table goes: set both"
            f" {FRONTIER_PROPERTY} and {SEAL_PROPERTY} back to what they were"
        )
    return frontier


def _vectors(topic_id: UUID, metadata: TableMetadata) -> Iterator[tuple[int, ...]]:
    text = metadata.properties.get(FRONTIER_PROPERTY, "")
    sealed = metadata.properties.get(SEAL_PROPERTY) == _checksum(topic_id, text)
    for each in (text if sealed else None, *map(vector_of, metadata.snapshots)):
        try:
            yield parse_frontier(each or "")
        except ValueError:
            continue


def _checksum(topic_id: UUID, text: str) -> str:
    return f"{crc32c(f'{topic_id} {text}'.encode()):08x}"
