"""The movement of records from the WAL into their tables, in a broker or under Spark.

`moving` takes what is due from the log into the table, `upkeep` keeps tables in shape, `collecting` deletes what
nothing names any more, `delta` mirrors tables.
Nothing is re-exported here: settings are read by processes that need none of the rest.
"""
