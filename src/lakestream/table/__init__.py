"""The shape of a stream's table: its schema, records to Parquet (`StreamFileWriter`) and Parquet back to records
(`HistoryReader`), whatever engine wrote or rewrote the files.

Nothing above this room sees Arrow: it hands out record batches, offsets and file statistics.
"""

from lakestream.table.history import History, HistoryReader
from lakestream.table.writer import StreamFileWriter, WrittenStats

__all__ = ["History", "HistoryReader", "StreamFileWriter", "WrittenStats"]
