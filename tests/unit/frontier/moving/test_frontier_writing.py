"""From WAL bytes to Parquet files: what is read, what is checked, how files are cut and named."""

import io
import re
from uuid import UUID

import pyarrow.parquet as pq
import pytest
from support.clients.batches import batch
from support.worlds.memory import Hands

from lakestream.errors import CorruptObject, ObjectMissing, RequestError
from lakestream.frontier.moving.tiles import writing
from lakestream.frontier.moving.tiles.naming import parse_file_name
from lakestream.frontier.moving.tiles.reading import MAX_GAP_BYTES, Read, reads
from lakestream.frontier.moving.tiles.tile import Slice, Tile
from lakestream.frontier.moving.tiles.writing import attempt_tile, write_files
from lakestream.metadata.log.head import Extent
from lakestream.model import WrittenFile
from lakestream.objects import MemoryObjects
from lakestream.records import control_batch, crc32c

TOPIC = UUID(int=9)
FILE = UUID(int=3)


class Bucket:
    """Objects made of extents that are described as they are added."""

    def __init__(self) -> None:
        self.store = MemoryObjects(Hands(), "memory://unit")

    async def put(self, key: str, *runs: tuple[int, int, bytes]) -> list[Extent]:
        """Each run is (base offset, end offset, batches)."""
        extents, position = [], 0
        for base, end, run in runs:
            extents.append(Extent(base, end, ("main",), key, position, len(run), 0, crc32c(run)))
            position += len(run)
        await self.store.put(key, [run for _, _, run in runs])
        return extents

    async def write(self, *slices: Slice, **sizes: int) -> list[WrittenFile]:
        return [*(await write_files(tile(*slices, **sizes), self.store, FILE)).files]

    async def rows(self, file: WrittenFile) -> list[tuple[int, int, bytes | None]]:
        data = await self.store.get(file.path.removeprefix("memory://unit/"))
        assert len(data) == file.size_bytes
        table = pq.ParquetFile(io.BytesIO(data)).read(["_stream_partition", "_offset", "_value"], use_threads=False)
        return [tuple(row.values()) for row in table.to_pylist()]


def tile(
    *slices: Slice,
    own_file_bytes: int = 1 << 30,
    target_file_bytes: int = 1 << 30,
    location: str = "memory://unit/tables/t",
) -> Tile:
    return Tile(TOPIC, "orders", "memory://unit", location, slices, own_file_bytes, target_file_bytes)


def slice_of(partition: int, start: int, extents: list[Extent]) -> Slice:
    return Slice(partition, start, extents[-1].end_offset, tuple(extents))


async def test_adjacent_partitions_of_an_object_are_one_read() -> None:
    bucket = Bucket()
    one, two = await bucket.put("wal/1", (0, 1, batch(b"a")), (0, 1, batch(b"b")))
    found = reads([slice_of(0, 0, [one]), slice_of(1, 0, [two])])
    assert found == [Read("wal/1", 0, two.position + two.length, two.stores)]


def test_ranges_far_apart_are_read_apart_and_inline_batches_not_at_all() -> None:
    near = Extent(0, 1, ("main",), "wal/1", 0, 10, 0, 0)
    far = Extent(0, 1, ("main",), "wal/1", 11 + MAX_GAP_BYTES, 10, 0, 0)
    inline = Extent(1, 2, ("main",), "", 0, 0, 0, 0, b"x")
    assert len(reads([slice_of(0, 0, [near, inline]), slice_of(1, 0, [far])])) == 2


async def test_small_partitions_share_one_unpartitioned_file() -> None:
    bucket = Bucket()
    first = await bucket.put("wal/1", (5, 7, batch(b"a", b"b")), (0, 1, batch(b"c")))
    second = await bucket.put("wal/2", (7, 8, batch(b"d")))
    [file] = await bucket.write(slice_of(0, 5, [first[0], *second]), slice_of(3, 0, [first[1]]))
    assert await bucket.rows(file) == [(0, 5, b"a"), (0, 6, b"b"), (0, 7, b"d"), (3, 0, b"c")]
    assert re.fullmatch(rf"memory://unit/tables/t/_data/00000-{7:020d}-{FILE}\.[0-9a-f]{{8}}\.parquet", file.path)
    assert (file.spec_id, file.record_count) == (0, 4)
    assert (file.partition_min, file.partition_max, file.offset_min, file.offset_max) == (0, 3, 0, 7)


async def test_a_big_partition_gets_a_file_per_offset_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "OFFSET_WINDOW", 4)
    bucket = Bucket()
    extents = await bucket.put("wal/1", (2, 5, batch(b"a", b"b", b"c")), (5, 9, batch(b"d", b"e", b"f", b"g")))
    small = await bucket.put("wal/2", (0, 1, batch(b"s")))
    files = await bucket.write(slice_of(0, 0, small), slice_of(4, 2, extents), own_file_bytes=100)
    assert [(file.spec_id, file.partition_min, file.offset_min, file.offset_max) for file in files] == [
        (0, 0, 0, 0),
        (1, 4, 2, 3),
        (1, 4, 4, 7),
        (1, 4, 8, 8),
    ]
    names = [file.path.split("/")[-1] for file in files]
    assert [parse_file_name(name) for name in names] == [(0, 0), (4, 8), (4, 8), (4, 8)]
    assert len({name.rsplit(".", 2)[0] for name in names}) == len(names)
    assert [row[2] for file in files[1:] for row in await bucket.rows(file)] == [
        b"a",
        b"b",
        b"c",
        b"d",
        b"e",
        b"f",
        b"g",
    ]


async def test_an_extent_that_straddles_the_frontier_starts_at_a_batch() -> None:
    bucket = Bucket()
    extents = await bucket.put("wal/1", (10, 14, batch(b"old", b"old") + batch(b"new", b"newer")))
    [file] = await bucket.write(slice_of(0, 12, extents))
    assert await bucket.rows(file) == [(0, 12, b"new"), (0, 13, b"newer")]
    with pytest.raises(CorruptObject, match="starts at 11"):
        await bucket.write(slice_of(0, 11, extents))


async def test_control_batches_take_offsets_and_make_no_rows() -> None:
    bucket = Bucket()
    marker = control_batch(1, 3)
    extents = await bucket.put("wal/1", (0, 1, batch(b"a")), (1, 4, marker), (4, 5, batch(b"b")))
    [file] = await bucket.write(slice_of(0, 0, extents))
    assert [row[1] for row in await bucket.rows(file)] == [0, 4]
    assert await bucket.write(slice_of(0, 1, [extents[1]])) == []


async def test_inline_batches_are_read_from_the_extent() -> None:
    run = batch(b"in the head")
    extent = Extent(0, 1, ("main",), "", 0, 0, 0, crc32c(run), run)
    bucket = Bucket()
    [file] = await bucket.write(slice_of(0, 0, [extent]))
    assert await bucket.rows(file) == [(0, 0, b"in the head")]


async def test_damage_is_named_and_nothing_is_written() -> None:
    bucket = Bucket()
    [extent] = await bucket.put("wal/1", (7, 8, batch(b"value")))
    data = bytearray(await bucket.store.get("wal/1"))
    data[-1] ^= 1
    await bucket.store.put("wal/1", [data], overwrite=True)
    with pytest.raises(CorruptObject, match=r"object wal/1.*topic orders.*partition 4, offsets 7 to 8"):
        await bucket.write(slice_of(4, 7, [extent]))
    assert await _keys(bucket) == ["wal/1"]


async def test_an_extent_that_claims_other_offsets_than_its_batches_is_refused() -> None:
    bucket = Bucket()
    extents = await bucket.put("wal/1", (0, 3, batch(b"a", b"b")))
    with pytest.raises(CorruptObject, match="offsets 0 to 2, not to 3"):
        await bucket.write(slice_of(0, 0, extents))


async def test_batches_that_do_not_decode_are_damage_of_the_object() -> None:
    bucket = Bucket()
    run = bytearray(batch(b"value"))
    run[-1] ^= 1
    extents = await bucket.put("wal/1", (0, 1, bytes(run)))
    with pytest.raises(CorruptObject, match="topic orders"):
        await bucket.write(slice_of(0, 0, extents))


async def test_a_missing_object_is_said() -> None:
    bucket = Bucket()
    extents = await bucket.put("wal/1", (0, 1, batch(b"a")))
    await bucket.store.delete(["wal/1"])
    with pytest.raises(ObjectMissing):
        await bucket.write(slice_of(0, 0, extents))


def test_an_attempt_carries_its_error_home() -> None:
    missing = Extent(0, 1, ("main",), "wal/none", 0, 1, 0, 0)
    outcome = attempt_tile(tile(slice_of(0, 0, [missing])), FILE)
    assert outcome.files == ()
    assert outcome.error.startswith("ObjectMissing: ")
    assert not outcome.retryable


async def test_a_table_outside_the_bucket_gets_a_store_of_its_own() -> None:
    bucket = Bucket()
    extents = await bucket.put("wal/1", (0, 1, batch(b"a")))
    outside = tile(slice_of(0, 0, extents), location="memory://elsewhere/t")
    [file] = (await write_files(outside, bucket.store, FILE)).files
    assert file.path.startswith("memory://elsewhere/t/_data/")
    nowhere = tile(slice_of(0, 0, extents), location="nowhere://t")
    with pytest.raises(RequestError):
        await write_files(nowhere, bucket.store, FILE)


async def _keys(bucket: Bucket) -> list[str]:
    return [info.key async for info in bucket.store.list("")]


async def test_a_file_ends_at_its_target_size_and_the_next_goes_on() -> None:
    """One row group is the grain: batches of a megabyte and more, whatever they were compressed to, make several."""
    runs = [(number, number + 1, batch(b"%d" % number + bytes(9_000_000))) for number in range(4)]
    for own_file_bytes in (1 << 30, 1):
        bucket = Bucket()
        extents = await bucket.put("wal/1", *runs)
        files = await bucket.write(slice_of(3, 0, extents), own_file_bytes=own_file_bytes, target_file_bytes=100)
        assert [row[:2] for file in files for row in await bucket.rows(file)] == [(3, 0), (3, 1), (3, 2), (3, 3)]
        assert len({file.path for file in files}) == len(files) == 4
