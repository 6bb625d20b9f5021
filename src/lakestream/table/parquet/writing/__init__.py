"""Rows of Arrow to Parquet. Arrow's own writer does the same and takes longer: docs/decisions has the figures."""

from lakestream.table.parquet.writing.compressor import Compressor
from lakestream.table.parquet.writing.file import ParquetFile
from lakestream.table.parquet.writing.pages import Rules

__all__ = ["Compressor", "ParquetFile", "Rules"]
