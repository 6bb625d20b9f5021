"""The upkeep of tables: retention, compaction, merges of small files, statistics."""
