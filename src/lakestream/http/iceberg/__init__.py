"""The Iceberg REST catalog, as engines speak to it."""
