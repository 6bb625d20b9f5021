"""The shape of a stream's table: its schema, records to Parquet (`parquet.writer`) and Parquet back to records
(`reading.history`), whatever engine wrote or rewrote the files.

Nothing above this room sees Arrow: it hands out record batches, offsets and file statistics. Only the port is exported
here: brokers know it before they have loaded Arrow.
"""

from lakestream.table.port import History, HistorySource

__all__ = ["History", "HistorySource"]
