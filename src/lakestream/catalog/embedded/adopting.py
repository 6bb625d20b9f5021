"""How a table that is there already becomes a topic's here, where nobody but us can write its properties."""

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import SetPropertiesUpdate

from lakestream.catalog.engines.changes import apply_updates
from lakestream.errors import InvalidSetting
from lakestream.table.schema import FRONTIER_PROPERTY, TOPIC_ID_PROPERTY, TOPIC_PROPERTY, parse_frontier


def said_frontier(metadata: TableMetadata) -> tuple[int, ...] | None:
    """As the table's properties say it, where nobody else can write them; None: there are no rows. Raises
    `InvalidSetting`."""
    if not metadata.snapshots:
        return None
    text = metadata.properties.get(FRONTIER_PROPERTY)
    if text is None:
        raise InvalidSetting("it has rows that no stream wrote, which have no offsets to be read at")
    try:
        return parse_frontier(text)
    except ValueError as error:
        raise InvalidSetting(f"a stream wrote it, and it was changed since: {error}") from error


def adopted_metadata(metadata: TableMetadata, first: TableMetadata, location: str) -> TableMetadata:
    """The table as the stream's. `first` is what a table of the stream would begin with at the same place: one without
    rows keeps of itself its identity, and properties that a stream does not set."""
    if not metadata.snapshots:
        properties = {**metadata.properties, **first.properties}
        return first.model_copy(update={"table_uuid": metadata.table_uuid, "properties": properties})
    ours = {key: first.properties[key] for key in (TOPIC_ID_PROPERTY, TOPIC_PROPERTY, FRONTIER_PROPERTY)}
    return apply_updates(metadata, [SetPropertiesUpdate(updates=ours)], location, validate=False)
