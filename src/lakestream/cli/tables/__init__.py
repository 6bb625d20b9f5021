"""`lakestream table`: a client of the REST catalog, with DuckDB for SQL."""
