"""Schemas to columns: a module for each format, and what a table's columns become by `merging`."""

from lakestream.schemas.mapping.merging import (
    FIRST_VALUE_ID,
    MAX_COLUMNS,
    MAX_LEVELS,
    RESERVED_NAMES,
    ROOT,
    leaf,
    merged,
    names_of,
    source_of,
)

__all__ = [
    "FIRST_VALUE_ID",
    "MAX_COLUMNS",
    "MAX_LEVELS",
    "RESERVED_NAMES",
    "ROOT",
    "leaf",
    "merged",
    "names_of",
    "source_of",
]
