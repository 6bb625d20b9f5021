"""The store of a cluster: one schema in a PostgreSQL database, shared by processes on any machine."""
