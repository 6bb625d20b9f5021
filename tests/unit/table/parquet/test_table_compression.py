"""A table's own properties say how its files are compressed, as with any other writer of Iceberg."""

import io

import pyarrow.parquet as pq
import pytest
from support.tables import foreign as lake

from lakestream.frontier.moving.tiles.tile import Tile, pack, unpack_tile
from lakestream.runtime import system
from lakestream.table.parquet.compression import Compression, chosen, chosen_or_default
from lakestream.table.parquet.writer import StreamFileWriter
from lakestream.table.rewriting.rewriter import Rewriter
from lakestream.table.shape import RAW

COUNT = 1000
CODEC, LEVEL = "write.parquet.compression-codec", "write.parquet.compression-level"


def codecs(data: bytes) -> set[str]:
    """Of all columns but the checksums, which nothing makes smaller."""
    metadata = pq.read_metadata(io.BytesIO(data))
    chunks = [metadata.row_group(0).column(index) for index in range(metadata.num_columns)]
    return {chunk.compression for chunk in chunks if chunk.path_in_schema != "_crc"}


def written(compression: Compression) -> bytes:
    sink = io.BytesIO()
    writer = StreamFileWriter(sink, RAW, compression)
    writer.write_rows(lake.table(range(COUNT), value_bytes=30))
    writer.close()
    return sink.getvalue()


@pytest.mark.parametrize(
    ("properties", "codec"),
    [
        ({}, "ZSTD"),
        ({CODEC: "zstd"}, "ZSTD"),
        ({CODEC: "ZSTD", LEVEL: "19"}, "ZSTD"),
        ({LEVEL: "7"}, "ZSTD"),
        ({CODEC: "gzip"}, "GZIP"),
        ({CODEC: "gzip", LEVEL: "9"}, "GZIP"),
        ({CODEC: "brotli", LEVEL: "0"}, "BROTLI"),
        ({CODEC: "snappy", LEVEL: "3"}, "SNAPPY"),
        ({CODEC: "lz4"}, "LZ4"),
        ({CODEC: "lz4_raw"}, "LZ4"),
        ({CODEC: "uncompressed"}, "UNCOMPRESSED"),
    ],
)
def test_files_have_the_codec_that_the_table_asks_for(properties: dict[str, str], codec: str) -> None:
    data = written(chosen(properties))
    assert codecs(data) == {codec}
    assert pq.read_table(io.BytesIO(data)).column("_offset").to_pylist() == list(range(COUNT))


def test_a_higher_level_makes_smaller_files() -> None:
    assert len(written(chosen({LEVEL: "19"}))) < len(written(chosen({})))


@pytest.mark.parametrize(
    ("properties", "sentence"),
    [
        ({CODEC: "lzo"}, "'lzo', and streams write zstd, gzip"),
        ({CODEC: ""}, "is '', and"),
        ({LEVEL: "23"}, "'23', and zstd has the levels 1 to 22"),
        ({LEVEL: "fast"}, "'fast'"),
        ({LEVEL: "-3"}, "'-3'"),
        ({LEVEL: "²"}, "'²'"),
        ({CODEC: "gzip", LEVEL: "10"}, "gzip has the levels 1 to 9"),
    ],
)
def test_what_no_file_can_have_is_an_error_or_counts_as_unsaid(properties: dict[str, str], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        chosen(properties)
    assert chosen_or_default(properties) == chosen({})


async def test_rewritten_files_have_it_too() -> None:
    town = lake.Lake()
    files = [await town.add(lake.table(range(start, start + 50))) for start in (0, 50)]
    [merged] = await Rewriter(town.store, max_bytes=1 << 30).rewrite(
        files, (), shape=RAW, own_file_bytes=1, compression=chosen({CODEC: "gzip"})
    )
    assert codecs(bytes(merged.data)) == {"GZIP"}


def test_a_tile_takes_it_along() -> None:
    tile = Tile(system().new_id(), "t", "file:///b", "file:///b/t", (), 5, 6, chosen({CODEC: "gzip", LEVEL: "3"}))
    assert unpack_tile(pack(tile)) == tile
