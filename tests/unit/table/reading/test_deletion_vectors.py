"""Deletion vectors of other engines: no row that one names is served, and what is wrong with one is an error in a
sentence. Nothing in such a file may end the process that reads it, or eat its memory."""

import random
import resource
import struct
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64
from support.properties import examples
from support.tables.foreign import Lake, table
from support.tables.puffin import Puffin

from lakestream.catalog.manifests.deletions import placed
from lakestream.errors import CorruptObject, LakestreamError, StorageError
from lakestream.model import DeletionVector, PositionDeletes
from lakestream.table.reading.deletion_vectors import MAX_FILE_BYTES
from lakestream.table.reading.history import HistoryReader
from lakestream.table.sandbox import SANDBOX

ROWS = 60
KEY = "tables/t/data/vectors.puffin"
MUTATIONS = 300


@pytest.fixture(autouse=True, scope="module")
def _no_process_is_left() -> Iterator[None]:
    yield
    SANDBOX.close()


async def lake_of(files: int = 1) -> Lake:
    lake = Lake()
    for number in range(files):
        await lake.add(table(range(number * ROWS, (number + 1) * ROWS)), row_group_size=7)
    return lake


def puffin_of(lake: Lake) -> Puffin:
    return Puffin(f"{lake.store.url}/{KEY}")


async def store(lake: Lake, puffin: Puffin, data: bytes | None = None) -> None:
    """The file as it is, or damaged, and the deletes as the view has them. Nothing is remembered of earlier ones."""
    await lake.store.delete([KEY])
    await lake.store.put(KEY, [puffin.data() if data is None else data])
    lake.deletes = puffin.deletes({file.path: file.record_count for file in lake.files})
    lake.reader = HistoryReader(lake.store)


async def offsets(lake: Lake) -> set[int]:
    return {record.offset for record in (await lake.read(0, ROWS * len(lake.files)))[0]}


async def refused(lake: Lake, words: str) -> None:
    with pytest.raises(StorageError, match=words):
        await offsets(lake)


@examples(20)
@given(st.lists(st.sets(st.integers(0, ROWS - 1)), min_size=1, max_size=3))
async def test_no_row_that_a_vector_names_is_served_and_every_other_is(gone: list[set[int]]) -> None:
    lake = await lake_of(len(gone))
    puffin = puffin_of(lake)
    for file, rows in zip(lake.files, gone, strict=True):
        puffin.add(file.path, rows)
    await store(lake, puffin)
    left = {number * ROWS + row for number, rows in enumerate(gone) for row in range(ROWS) if row not in rows}
    assert await offsets(lake) == left


async def test_a_newer_vector_takes_the_place_of_an_older_one_in_the_same_reader() -> None:
    """In the same Puffin file even, which no engine writes: rows are kept by what was deleted when they were read."""
    lake = await lake_of()
    path = lake.files[0].path
    await store(lake, puffin_of(lake).add(path, [3]).add(path, [3, 8]))
    older, newer = lake.deletes
    for deletes, gone in (([older], {3}), ([newer], {3, 8}), ([older], {3}), ([], set())):
        lake.deletes = list(deletes)
        assert await offsets(lake) == {*range(ROWS)} - gone


async def test_vectors_and_position_deletes_add_up() -> None:
    lake = await lake_of()
    path = lake.files[0].path
    await store(lake, puffin_of(lake).add(path, [3, 58]))
    vectors = lake.deletes
    lake.deletes = []
    await lake.delete((path, 4))
    lake.deletes += vectors
    assert await offsets(lake) == {*range(ROWS)} - {3, 4, 58}


async def test_what_is_wrong_with_a_vector_is_an_error_that_names_it() -> None:
    lake = await lake_of(2)
    mine, other = (file.path for file in lake.files)
    await store(lake, puffin_of(lake).add(mine, [3], **{"referenced-data-file": other}))
    await refused(lake, rf"the deletion vector at 4 of .*{KEY} is of .*1\.parquet, not of .*0\.parquet")
    await store(lake, puffin_of(lake).add(mine, [3], **{"referenced-data-file": ""}))
    await refused(lake, "is of no file")
    await store(lake, puffin_of(lake).add(mine, [3, 4], 1))
    await refused(lake, "it has 2 rows where 1 were deleted")
    await store(lake, puffin_of(lake).add(mine, [3], cardinality="2"))
    await refused(lake, "has 2 rows by its own words, and 1 by the manifest's")
    await store(lake, puffin_of(lake).add(mine, [3, ROWS]))
    await refused(lake, f"deletes row {ROWS} of .*, which has {ROWS}: it is another file's, or damaged")
    await store(lake, puffin_of(lake).add(mine, [3], type="apache-datasketches-theta-v1"))
    await refused(lake, "only deletion-vector-v1 is read")
    await store(lake, puffin_of(lake).add(mine, [3], **{"compression-codec": "zstd"}))
    await refused(lake, "only deletion-vector-v1 is read")
    await store(lake, puffin_of(lake).add(mine, [3], offset=5))
    await refused(lake, "is not there")
    whole = puffin_of(lake).add(mine, [3])
    data = whole.data()
    await store(lake, whole, data.replace(b"PFA1{", b"PFA1}"))
    await refused(lake, "the footer of .* cannot be read")
    await store(lake, whole, data[:30] + bytes([data[30] ^ 1]) + data[31:])
    await refused(lake, "the deletion vector at 4 of .* is damaged: its checksum does not hold")
    await store(lake, whole, data[:-1])
    await refused(lake, "is cut short")
    await store(lake, whole, data + b"more")
    assert await offsets(lake) == {*range(2 * ROWS)} - {3}
    await lake.store.delete([KEY])
    lake.reader = HistoryReader(lake.store)
    with pytest.raises(LakestreamError, match=KEY):
        await offsets(lake)


async def test_a_vector_beside_a_damaged_one_is_read() -> None:
    lake = await lake_of(2)
    puffin = puffin_of(lake).add(lake.files[0].path, b"no bitmap", 1).add(lake.files[1].path, [3])
    await store(lake, puffin)
    await refused(lake, "is damaged")
    lake.deletes = lake.deletes[1:]
    assert await offsets(lake) == {*range(2 * ROWS)} - {ROWS + 3}


async def test_damage_anywhere_never_brings_a_row_back_nor_ends_this_process() -> None:
    lake = await lake_of(2)
    whole = puffin_of(lake).add(lake.files[0].path, range(0, ROWS, 2)).add(lake.files[1].path, [3, 4])
    data = whole.data()
    left = {*range(1, ROWS, 2)} | {*range(ROWS, 2 * ROWS)} - {ROWS + 3, ROWS + 4}
    rng = random.Random(5)
    errors: list[str] = []
    for _ in range(MUTATIONS):
        damaged = bytearray(data)
        for _ in range(rng.choice([1, 1, 2, 8])):
            damaged[rng.randrange(len(data))] = rng.randrange(256)
        if rng.random() < 0.2:
            at = rng.randrange(len(data))
            damaged[at:] = rng.randbytes(len(data) - at)
        await store(lake, whole, bytes(damaged))
        try:
            assert await offsets(lake) == left
        except LakestreamError as error:
            errors.append(str(error))
    assert len(errors) > MUTATIONS * 0.6
    assert all(KEY in error for error in errors)


async def test_no_bitmap_ends_this_process_though_its_checksum_holds() -> None:
    """What somebody wrote on purpose: it is refused, or deletes as many rows as were told, and no other."""
    lake = await lake_of()
    path = lake.files[0].path
    bitmaps = [BitMap64(range(0, ROWS, 2)).serialize(), BitMap64([1, 2, 3, 1 << 33]).serialize()]
    runs = BitMap64(range(ROWS // 2))
    runs.run_optimize()
    bitmaps.append(runs.serialize())
    rng = random.Random(6)
    errors = 0
    for _ in range(MUTATIONS):
        forged = bytearray(rng.choice(bitmaps))
        for _ in range(rng.choice([1, 2, 4])):
            forged[rng.randrange(len(forged))] = rng.choice([0, 1, 255, rng.randrange(256)])
        await store(lake, puffin_of(lake).add(path, bytes(forged), ROWS // 2))
        try:
            assert len(await offsets(lake)) == ROWS - ROWS // 2
        except CorruptObject:
            errors += 1
    assert errors > MUTATIONS / 3


async def test_bitmaps_of_billions_of_rows_are_refused_in_little_memory() -> None:
    everything = BitMap64()
    everything.add_range(0, 1 << 32)
    everything.run_optimize()
    far = struct.pack("<QI", 1, (1 << 31) - 1) + BitMap64([1]).serialize()[12:]
    many = struct.pack("<Q", 1 << 40) + BitMap64([1]).serialize()[8:]
    lake = await lake_of()
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for bitmap, count in ((everything.serialize(), 1 << 32), (far, 1), (many, 1)):
        await store(lake, puffin_of(lake).add(lake.files[0].path, bitmap, count))
        await refused(lake, "damaged")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 100_000


async def test_a_file_that_is_too_large_is_not_even_read() -> None:
    lake = await lake_of()
    await store(lake, puffin_of(lake).add(lake.files[0].path, [3]))
    [delete] = lake.deletes
    for size_bytes in (MAX_FILE_BYTES + 1, -1):
        lake.deletes = [replace(delete, vector=replace(delete.vector, file_bytes=size_bytes))]  # type: ignore[type-var]
        await refused(lake, f"has {size_bytes} bytes of deletion vectors")


async def test_vectors_get_their_place_in_a_view() -> None:
    lake = await lake_of(2)
    mine, other = (file.path for file in lake.files)

    def named(path: str, count: int = 1, at: int = 4) -> PositionDeletes:
        return PositionDeletes("p.puffin", count, vector=DeletionVector(path, at, 9, 99))

    plain = PositionDeletes("p.parquet", 7)
    [vector, same] = placed(lake.files, [named(mine), plain])
    assert vector.vector is not None
    assert (vector.trouble, vector.vector.row_count, same) == ("", ROWS, plain)
    for deletes, words in (
        ([named("s3://elsewhere/0.parquet")], "which is none of the table's files"),
        ([named(mine), named(mine, at=50)], "has 2 deletion vectors"),
        ([named(other, ROWS + 1)], f"deletes {ROWS + 1} rows of .*, which has {ROWS}"),
    ):
        lake.deletes = list(placed(lake.files, deletes))
        await refused(lake, words)
