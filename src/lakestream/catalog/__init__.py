"""The tables of streams behind one port: load a view, commit against it. `PyIcebergTables` keeps real Iceberg
tables with their pointers in the metadata store; `SimulatedTables` keeps none, for the simulator. `EngineTables`
is how outside engines see the same tables, by name."""

from lakestream.catalog.commit import Commits
from lakestream.catalog.engines import EngineTables
from lakestream.catalog.port import Named, TableCatalog, View
from lakestream.catalog.simulated import SimulatedTables
from lakestream.catalog.tables import PyIcebergTables

__all__ = ["Commits", "EngineTables", "Named", "PyIcebergTables", "SimulatedTables", "TableCatalog", "View"]
