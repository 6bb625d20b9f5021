"""Lakestream: a streaming engine whose log is the table."""
