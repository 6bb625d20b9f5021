"""The tables of streams behind one port: load a view, commit against it. `embedded` keeps their pointers in the
metadata store, `external` in a catalog of somebody else; `engines` is how outside engines see the same tables, by name.

Only the port is exported here: brokers know it before they have loaded PyIceberg."""

from lakestream.catalog.port import Named, OpenCatalog, TableCatalog, TableViews

__all__ = ["Named", "OpenCatalog", "TableCatalog", "TableViews"]
