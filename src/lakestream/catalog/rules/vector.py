"""How far a table goes when anybody may write its properties. Pure.

In an external catalog a commit of somebody else may set, lower or remove `lakestream.frontier`. So the engine writes it
together with a checksum, and the same vector into the summary of each snapshot it makes, which nobody can change
afterwards. Neither is enough alone: some catalogs show the newest snapshot only, and one that another engine made has
no vector. Both name the cluster that wrote them: what another one gave out of the same offsets is not what this one's
log holds there, and must never be taken for it.
"""

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Final
from uuid import UUID

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from lakestream.catalog.rules.stamp import vector_of
from lakestream.errors import StorageError
from lakestream.records import crc32c
from lakestream.table.schema import CLUSTER_PROPERTY, FRONTIER_PROPERTY, parse_frontier

SEAL_PROPERTY: Final = "lakestream.frontier-checksum"


def sealed_frontier(topic_id: UUID, cluster: str, text: str) -> dict[str, str]:
    """The properties that say the frontier."""
    return {FRONTIER_PROPERTY: text, SEAL_PROPERTY: _seal(topic_id, cluster, text)}


def signed_summary(cluster: str, text: str) -> dict[str, str]:
    """What the summary of a snapshot says with it."""
    return {FRONTIER_PROPERTY: text, CLUSTER_PROPERTY: cluster}


def is_sealed(topic_id: UUID, cluster: str, metadata: TableMetadata) -> bool:
    """Whether this cluster was the last to say the frontier."""
    return _sealed(topic_id, cluster, metadata) is not None


def proven_frontier(topic_id: UUID, cluster: str, table: str, metadata: TableMetadata) -> tuple[int, ...]:
    """The farthest that the sealed property and the snapshots' vectors say, by partition. A property without this
    cluster's seal says nothing, nor does a snapshot that another cluster signed. Raises `StorageError` if nothing says
    anything."""
    ours = [snapshot for snapshot in metadata.snapshots if _signer(snapshot) in (None, cluster)]
    return _farthest(table, metadata, [_sealed(topic_id, cluster, metadata), *map(vector_of, ours)])


def left_frontier(table: str, metadata: TableMetadata) -> tuple[int, ...]:
    """The same, whoever wrote it: from there on another may go on."""
    signer, _, _ = metadata.properties.get(SEAL_PROPERTY, "").rpartition(" ")
    sealed = _sealed(metadata.table_uuid, signer, metadata)
    return _farthest(table, metadata, [sealed, *map(vector_of, metadata.snapshots)])


def _farthest(table: str, metadata: TableMetadata, texts: Iterable[str | None]) -> tuple[int, ...]:
    frontier: tuple[int, ...] = ()
    for vector in _parsed(texts):
        frontier = tuple(max(pair) for pair in zip_longest(frontier, vector, fillvalue=0))
    if not frontier:
        raise StorageError(
            f"{table}: property {FRONTIER_PROPERTY} is {metadata.properties.get(FRONTIER_PROPERTY)!r}, which is not"
            " what the pipeline wrote, and no snapshot says how far the table goes: set both"
            f" {FRONTIER_PROPERTY} and {SEAL_PROPERTY} back to what they were"
        )
    return frontier


def _parsed(texts: Iterable[str | None]) -> Iterator[tuple[int, ...]]:
    for text in texts:
        try:
            yield parse_frontier(text or "")
        except ValueError:
            continue


def _signer(snapshot: Snapshot) -> str | None:
    return None if snapshot.summary is None else snapshot.summary.get(CLUSTER_PROPERTY)


def _sealed(topic_id: UUID, cluster: str, metadata: TableMetadata) -> str | None:
    text = metadata.properties.get(FRONTIER_PROPERTY, "")
    return text if metadata.properties.get(SEAL_PROPERTY) == _seal(topic_id, cluster, text) else None


def _seal(topic_id: UUID, cluster: str, text: str) -> str:
    return f"{cluster} {crc32c(f'{topic_id} {cluster} {text}'.encode()):08x}"
