"""A table's own properties say how its files are compressed, as with any other writer of Iceberg."""

import asyncio
import io
import random

import pyarrow.parquet as pq
import pytest
import zstandard
from support import lake

from lakestream.frontier.moving.tile import Tile, pack, unpack_tile
from lakestream.runtime import system
from lakestream.table.parquet.compression import DEFAULT_COMPRESSION, Compression, chosen, chosen_or_default
from lakestream.table.parquet.writer import StreamFileWriter
from lakestream.table.parquet.writing import Compressor
from lakestream.table.rewriting.rewriter import Rewriter
from lakestream.table.shape import RAW

CODEC, LEVEL = "write.parquet.compression-codec", "write.parquet.compression-level"


def codecs(data: bytes) -> set[str]:
    """Of all columns but the checksums, which nothing makes smaller."""
    metadata = pq.read_metadata(io.BytesIO(data))
    chunks = [metadata.row_group(0).column(index) for index in range(metadata.num_columns)]
    return {chunk.compression for chunk in chunks if chunk.path_in_schema != "_crc"}


def written(compression: Compression) -> bytes:
    sink = io.BytesIO()
    writer = StreamFileWriter(sink, RAW, Compressor(compression))
    writer.write_rows(lake.table(range(200), value_bytes=500))
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
    assert pq.read_table(io.BytesIO(data)).column("_offset").to_pylist() == list(range(200))


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


def test_rewritten_files_have_it_too() -> None:
    town = lake.Lake()
    files = [town.add(lake.table(range(start, start + 50))) for start in (0, 50)]
    [merged] = asyncio.run(
        Rewriter(town.store, max_bytes=1 << 30).rewrite(
            files, (), shape=RAW, own_file_bytes=1, compression=chosen({CODEC: "gzip"})
        )
    )
    assert codecs(bytes(merged.data)) == {"GZIP"}


def test_a_tile_takes_it_along() -> None:
    tile = Tile(system().new_id(), "t", "file:///b", "file:///b/t", (), 5, 6, chosen({CODEC: "gzip", LEVEL: "3"}))
    assert unpack_tile(pack(tile)) == tile


def pages(kind: str, count: int) -> list[bytes]:
    """Events that repeat what was just there, or prose that repeats what was said long ago."""
    rng = random.Random(7)
    words = ["".join(rng.choices("etaoinshrdlu", k=rng.randrange(3, 9))) for _ in range(40_000)]

    def page() -> bytes:
        made = []
        size = 0
        while size < 400_000:
            one = (
                f'{{"sku":"{rng.getrandbits(48):012x}","price":{rng.random()}}}'
                if kind == "events"
                else rng.choice(words)
            )
            made.append(one)
            size += len(one)
        return " ".join(made).encode()

    return [page() for _ in range(count)]


@pytest.mark.parametrize(("kind", "is_smaller"), [("events", True), ("prose", False)])
def test_a_column_gets_the_table_that_suits_it(kind: str, is_smaller: bool) -> None:
    compressor = Compressor(DEFAULT_COMPRESSION)
    usual = zstandard.ZstdCompressor(level=1)
    made = pages(kind, 3)
    found = [compressor.compress(page, "_value") for page in made]
    assert [zstandard.decompress(page) for page in found] == made
    assert all((len(page) < len(usual.compress(plain))) == is_smaller for page, plain in zip(found, made, strict=True))
    assert is_smaller or [*found] == [usual.compress(page) for page in made]


def test_columns_are_tried_each_by_itself_and_again_when_their_data_changes() -> None:
    compressor = Compressor(DEFAULT_COMPRESSION)
    usual = zstandard.ZstdCompressor(level=1)
    (events,), (prose,) = pages("events", 1), pages("prose", 1)
    compressor.compress(events, "_value")
    assert compressor.compress(prose, "_key") == usual.compress(prose)
    assert len(compressor.compress(prose, "_value")) > len(usual.compress(prose))
    later = [compressor.compress(prose, "_value") for _ in range(64)]
    assert later[-1] == usual.compress(prose)


def test_what_an_owner_chose_is_left_alone() -> None:
    (events,) = pages("events", 1)
    for level in (2, 9):
        made = Compressor(Compression("zstd", level)).compress(events, "_value")
        assert made == zstandard.ZstdCompressor(level=level).compress(events)
