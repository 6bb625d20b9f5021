"""Rows of Arrow to Parquet. Arrow's own writer does the same and takes longer: docs/decisions has the figures."""

from lakestream.table.writing.compressor import Compressor
from lakestream.table.writing.file import ParquetFile
from lakestream.table.writing.pages import Rules

__all__ = ["Compressor", "ParquetFile", "Rules"]
