"""The Delta mirror of tables: the same Parquet files in a Delta log beside the Iceberg metadata.

`difference` says what one mirror commit is (pure), `mirror` runs it for all topics that ask for Delta, `rs` keeps the
logs with delta-rs.
"""

from lakestream.frontier.delta.mirror import Mirrored, Mirrors
from lakestream.frontier.delta.port import DeltaLog, MirroredTables

__all__ = ["DeltaLog", "Mirrored", "MirroredTables", "Mirrors"]
