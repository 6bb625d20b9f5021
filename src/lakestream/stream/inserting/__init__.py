"""Rows that engines insert into the table of a topic, appended to its log as records."""
