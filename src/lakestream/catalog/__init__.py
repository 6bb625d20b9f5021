"""The tables of streams behind one port: load a view, commit against it. `PyIcebergTables` keeps real Iceberg
tables with their pointers in the metadata store; `SimulatedTables` keeps none, for the simulator."""

from lakestream.catalog.port import TableCatalog, View
from lakestream.catalog.simulated import SimulatedTables
from lakestream.catalog.tables import PyIcebergTables

__all__ = ["PyIcebergTables", "SimulatedTables", "TableCatalog", "View"]
