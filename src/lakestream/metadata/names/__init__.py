"""Names of tables, views and namespaces, the pointers to their metadata, and the folders that are theirs."""
