"""The tables of streams over the metadata store's pointers: load, commit, adopt."""
