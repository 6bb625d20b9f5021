"""Tiles: cut from a topic's tail, read from the WAL, written as Parquet files."""
