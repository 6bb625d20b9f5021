"""What a topic's table must still be in a catalog that knows nothing of streams. Pure.

Such a catalog takes every commit. So each load looks whether the table is still the topic's, and nothing is committed
to one that is not: what is wrong would become part of the log.
"""

from collections.abc import Collection
from uuid import UUID

from pyiceberg.table.metadata import TableMetadata

from lakestream.catalog.rules.streams import check_columns, check_specs
from lakestream.errors import StorageError, TableRefused
from lakestream.objects.paths import is_inside
from lakestream.table.schema import CLUSTER_PROPERTY, FORMAT_VERSION, LOCATION_PROPERTY, TOPIC_ID_PROPERTY, shape_of

_READ_FORMATS = (FORMAT_VERSION, 3)


def is_of(topic_id: UUID, metadata: TableMetadata) -> bool:
    """Whether this is the topic's table, under whatever name: it has the topic's UUID. Another cluster's topic may have
    the same: see `is_marked`."""
    return metadata.table_uuid == topic_id


def is_marked(cluster: str, metadata: TableMetadata) -> bool:
    """Whether this cluster made the table or took it over, and nobody has taken it since."""
    return metadata.properties.get(CLUSTER_PROPERTY) == cluster


def check_present(
    topic_id: UUID, cluster: str, table: str, place: str, bucket_url: str, metadata: TableMetadata
) -> None:
    """Raises `StorageError` with what is wrong and what its owner can do. Its format may be one that is only read."""
    _refuse(table, place, _trouble(topic_id, cluster, bucket_url, metadata))


def check_format(table: str, place: str, metadata: TableMetadata) -> None:
    """The same for a format that is not written."""
    _refuse(table, place, _format_trouble(metadata, (FORMAT_VERSION,)))


def _refuse(table: str, place: str, trouble: str) -> None:
    if trouble:
        raise StorageError(
            f"{table} in catalog {place}: {trouble}; nothing is committed to it until its owner has taken that back"
        )


def _format_trouble(metadata: TableMetadata, formats: Collection[int]) -> str:
    if metadata.format_version in formats:
        return ""
    return f"it was upgraded to format version {metadata.format_version}, and the engine writes {FORMAT_VERSION} only"


def _trouble(topic_id: UUID, cluster: str, bucket_url: str, metadata: TableMetadata) -> str:
    if not is_of(topic_id, metadata):
        return f"its UUID is {metadata.table_uuid}, not the topic's {topic_id}: another table has taken its place"
    if not is_marked(cluster, metadata):
        return _mark_trouble(cluster, metadata)
    bound_to = metadata.properties.get(TOPIC_ID_PROPERTY)
    if bound_to != str(topic_id):
        return f"property {TOPIC_ID_PROPERTY} is {bound_to!r}, not {topic_id}"
    unread = _format_trouble(metadata, _READ_FORMATS)
    if unread:
        return unread
    if not _is_at_home(topic_id, bucket_url, metadata):
        return f"its location was moved to {metadata.location}"
    try:
        check_columns(metadata.schema(), shape_of(metadata.properties))
        check_specs(metadata)
    except TableRefused as error:
        return str(error)
    return ""


def _is_at_home(topic_id: UUID, bucket_url: str, metadata: TableMetadata) -> bool:
    location, home = metadata.location, metadata.properties.get(LOCATION_PROPERTY)
    if home is not None:
        return location == home and is_inside(location, bucket_url)
    return is_inside(location, f"{bucket_url}/tables") and location.endswith(f"__{topic_id.hex[:8]}")


def _mark_trouble(cluster: str, metadata: TableMetadata) -> str:
    marked = metadata.properties.get(CLUSTER_PROPERTY)
    if marked is None:
        return f"property {CLUSTER_PROPERTY} was removed, so the table may be anybody's; this cluster's is {cluster}"
    return (
        f"cluster {marked} has taken it over and goes on in it ({CLUSTER_PROPERTY}; this cluster is {cluster}): what"
        " was produced here since then stays in the WAL here, and consumers here read it"
    )
