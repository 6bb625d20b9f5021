"""What an engine learns of a table that may lack acked records: among the table's properties, as they are
answered. Nothing of it is stored. The answer's `config` has none of it: DuckDB takes any for credentials, and fails."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from pyiceberg.table.metadata import TableMetadata

from lakestream.table.schema import FRONTIER_PROPERTY, parse_frontier

FRESHNESS: Final = "lakestream.freshness"
END_OFFSETS: Final = "lakestream.end-offsets"
LAG: Final = "lakestream.lag"
AS_OF: Final = "lakestream.as-of"


@dataclass(frozen=True, slots=True)
class Behind:
    """`freshness`: why the table may be behind its log. `ends`: where the partitions ended at `as_of_ms`; None: that
    is not known."""

    freshness: str
    ends: tuple[int, ...] | None
    as_of_ms: int


def freshness_properties(behind: Behind, metadata: TableMetadata) -> Mapping[str, str]:
    """Nothing if this metadata has all that was there: whoever moves records may have been faster."""
    as_of = datetime.fromtimestamp(behind.as_of_ms / 1000, UTC).isoformat(timespec="milliseconds")
    properties = {FRESHNESS: behind.freshness, AS_OF: as_of}
    if behind.ends is None:
        return properties
    frontier = _frontier(metadata)
    lag = sum(max(0, end - (frontier[index] if index < len(frontier) else 0)) for index, end in enumerate(behind.ends))
    return properties | {LAG: str(lag), END_OFFSETS: ",".join(map(str, behind.ends))} if lag else {}


def with_freshness(metadata: TableMetadata, properties: Mapping[str, str]) -> TableMetadata:
    return metadata.model_copy(update={"properties": {**metadata.properties, **properties}}) if properties else metadata


def _frontier(metadata: TableMetadata) -> tuple[int, ...]:
    try:
        return tuple(parse_frontier(metadata.properties.get(FRONTIER_PROPERTY, "")))
    except ValueError:
        return ()
