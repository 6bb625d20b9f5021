"""The movement of records from the WAL into their tables, in a broker or under Spark.

`plan` cuts a topic's tail into tiles (pure), `writing` turns a tile into Parquet files, `advance` is the chain that
commits them and tells the log, `worker` runs it for all topics, `collector` deletes dead WAL objects,
`orphans` table files that no table names. `fresh` commits a tail for an engine that loads the table, `delta` mirrors
tables. `maintenance` keeps tables in shape: `retention`, `compaction`, `merging`, the latter two by way of `rewrite`.
Nothing is re-exported here: settings are read by processes that need none of the rest.
"""
