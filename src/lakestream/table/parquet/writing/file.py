"""Rows of Arrow into one Parquet file, row group by row group."""

from collections.abc import Mapping
from typing import BinaryIO, Final

import pyarrow as pa

from lakestream.table.parquet.writing.compressor import Compressor
from lakestream.table.parquet.writing.footer import MAGIC, WrittenRowGroup, footer
from lakestream.table.parquet.writing.pages import PageScratch, Rules, write_chunk
from lakestream.table.parquet.writing.shred import shred

_USUAL: Final = Rules()


class ParquetFile:
    """Under way in `sink` from where that stands. `rules` are those of leaves by their paths; a column without any has
    no statistics and is compressed."""

    def __init__(self, sink: BinaryIO, schema: pa.Schema, compressor: Compressor, rules: Mapping[str, Rules]) -> None:
        self._sink = sink
        self._schema = schema
        self._compressor = compressor
        self._rules = rules
        self._scratch = PageScratch()
        self._groups: list[WrittenRowGroup] = []
        self._position = sink.write(MAGIC)

    def write(self, rows: pa.Table) -> None:
        """One row group, of at least one row."""
        if rows.schema != self._schema:
            raise ValueError(f"rows with the columns {rows.schema.names} are not what this file is for")
        start = self._position
        chunks = []
        for field, column in zip(self._schema, rows.columns, strict=True):
            for leaf in shred(field, column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)):
                rules = self._rules.get(".".join(leaf.path), _USUAL)
                pieces, chunk = write_chunk(leaf, rules, self._compressor, self._scratch)
                for piece in pieces:
                    self._position += self._sink.write(piece)
                chunks.append(chunk)
        self._groups.append(WrittenRowGroup(rows.num_rows, start, chunks))

    @property
    def checksums(self) -> list[int]:
        """CRC32C of the column chunks, row group by row group."""
        return [chunk.checksum for group in self._groups for chunk in group.chunks]

    def close(self, about: Mapping[str, str]) -> bytes:
        """Ends the file with its footer, which holds these keys and values; returns what was written last."""
        end = footer(self._schema, self._groups, about)
        self._sink.write(end)
        return end
