"""What a topic's table must still be in a catalog that knows nothing of streams. Pure.

Such a catalog takes every commit. So each load looks whether the table is still the topic's, and nothing is committed
to one that is not: what is wrong would become part of the log.
"""

from collections.abc import Collection
from uuid import UUID

from pyiceberg.table.metadata import TableMetadata

from lakestream.catalog.rules import check_columns, check_specs
from lakestream.errors import StorageError, TableRefused
from lakestream.table.schema import PROPERTIES, TOPIC_ID_PROPERTY

_FORMAT = int(PROPERTIES["format-version"])
_READ_FORMATS = (_FORMAT, 3)


def is_of(topic_id: UUID, metadata: TableMetadata) -> bool:
    """Whether this is the topic's table, under whatever name: it has the topic's UUID."""
    return metadata.table_uuid == topic_id


def check_present(topic_id: UUID, table: str, place: str, bucket_url: str, metadata: TableMetadata) -> None:
    """Raises `StorageError` with what is wrong and what its owner can do. Its format may be one that is only read."""
    _refuse(table, place, _trouble(topic_id, bucket_url, metadata))


def check_format(table: str, place: str, metadata: TableMetadata) -> None:
    """The same for a format that is not written."""
    _refuse(table, place, _format_trouble(metadata, (_FORMAT,)))


def _refuse(table: str, place: str, trouble: str) -> None:
    if trouble:
        raise StorageError(
            f"{table} in catalog {place}: {trouble}; nothing is committed to it until its owner has taken that back"
        )


def _format_trouble(metadata: TableMetadata, formats: Collection[int]) -> str:
    if metadata.format_version in formats:
        return ""
    return f"it was upgraded to format version {metadata.format_version}, and the engine writes {_FORMAT} only"


def _trouble(topic_id: UUID, bucket_url: str, metadata: TableMetadata) -> str:
    if not is_of(topic_id, metadata):
        return f"its UUID is {metadata.table_uuid}, not the topic's {topic_id}: another table has taken its place"
    bound_to = metadata.properties.get(TOPIC_ID_PROPERTY)
    if bound_to != str(topic_id):
        return f"property {TOPIC_ID_PROPERTY} is {bound_to!r}, not {topic_id}"
    unread = _format_trouble(metadata, _READ_FORMATS)
    if unread:
        return unread
    inside, folder = metadata.location.startswith(f"{bucket_url}/tables/"), metadata.location.endswith
    if not inside or not folder(f"__{topic_id.hex[:8]}"):
        return f"its location was moved to {metadata.location}"
    try:
        check_columns(metadata.schema())
        check_specs(metadata)
    except TableRefused as error:
        return str(error)
    return ""
