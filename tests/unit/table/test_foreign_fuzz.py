"""Footers and manifests of other engines are under no checksum: whatever is in them, this process lives on and names
the file. Parsed right here, some of these would end it."""

import io
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.clients.records import parse
from support.tables.foreign import Lake, table
from support.tables.stream_table import StreamTable, renamed, run_with_table

from lakestream.catalog.manifests.index import ManifestIndex, read_entries, read_manifests
from lakestream.catalog.sealed import SealedIO
from lakestream.errors import CorruptObject, LakestreamError
from lakestream.table.sandbox import SANDBOX
from lakestream.table.shape import RAW
from lakestream.table.view import View

MUTATIONS = 250
KEY = "tables/t/data/0.parquet"
ROWS = 30


@pytest.fixture(autouse=True)
def _no_process_is_left() -> Iterator[None]:
    yield
    SANDBOX.close()


def footer_start(data: bytes) -> int:
    return len(data) - 8 - int.from_bytes(data[-8:-4], "little")


def mutated(data: bytes, start: int, rng: random.Random) -> bytes:
    """A few bytes from `start` on are not what they were."""
    damaged = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        position = rng.randrange(start, len(data))
        match rng.randrange(4):
            case 0 | 1:
                damaged[position] ^= 1 << rng.randrange(8)
            case 2:
                damaged[position] = rng.choice((0, 1, 127, 128, 255))
            case _:
                damaged[position : position + 4] = rng.randbytes(len(damaged[position : position + 4]))
    return bytes(damaged)


async def rewrite(lake: Lake, data: bytes, key: str = KEY) -> None:
    await lake.store.put(key, [data], overwrite=True)


async def read(lake: Lake) -> list[int]:
    """The offsets that a consumer with nothing cached gets."""
    lake.__post_init__()
    history = await lake.reader.read(lake.view, partition=0, offset=0, end_offset=ROWS, max_bytes=1 << 20)
    return [record.offset for record in parse(history.parts)]


async def is_refused(lake: Lake, key: str) -> bool:
    """Whether reading fails over that file, by its name."""
    try:
        found = await read(lake)
    except LakestreamError as error:
        complaint = str(error)
    else:
        assert set(found) <= set(range(ROWS))
        return False
    assert key in complaint
    return True


async def stored(lake: Lake, key: str = KEY) -> bytes:
    return await lake.store.get(key)


@pytest.mark.parametrize("options", [{"compression": "zstd"}, {"data_page_version": "2.0", "use_dictionary": False}])
async def test_no_footer_ends_this_process(options: dict[str, object]) -> None:
    lake = Lake()
    await lake.add(table(range(ROWS)), row_group_size=10, **options)
    whole = await stored(lake)
    assert await read(lake) == list(range(ROWS))
    rng = random.Random(33)
    refused = 0
    for _ in range(MUTATIONS):
        await rewrite(lake, mutated(whole, footer_start(whole), rng))
        refused += await is_refused(lake, KEY)
    assert refused > MUTATIONS / 4
    await rewrite(lake, whole)
    assert await read(lake) == list(range(ROWS))


async def test_a_footer_that_crashes_who_reads_it_is_named() -> None:
    """A byte array that says it is a float: Arrow throws where its binding for Python cannot catch."""
    lake = Lake()
    await lake.add(table(range(ROWS)), compression="zstd")
    whole = await stored(lake)
    start = footer_start(whole)
    at = whole.index(b"\x15\x0c\x19", start)
    await rewrite(lake, whole[: at + 1] + b"\x08" + whole[at + 2 :])
    for _ in range(2):
        with pytest.raises(CorruptObject, match=rf"{KEY} is damaged: it makes the process that reads it crash"):
            await read(lake)
    await rewrite(lake, whole)
    assert await read(lake) == list(range(ROWS))


async def test_no_file_of_deletes_ends_this_process() -> None:
    lake = Lake()
    file = await lake.add(table(range(ROWS)), row_group_size=10)
    await lake.delete((file.path, 3), (file.path, 4))
    key = "tables/t/data/0-deletes.parquet"
    whole = await stored(lake, key)
    assert 3 not in await read(lake)
    rng = random.Random(33)
    refused = 0
    for _ in range(MUTATIONS // 2):
        await rewrite(lake, mutated(whole, 4, rng), key)
        refused += await is_refused(lake, key)
    assert refused > MUTATIONS / 8


async def test_a_footer_that_asks_for_much_is_refused_within_bounds() -> None:
    """A schema of nothing but nesting: parsers that recurse over it run out of stack."""
    sink = io.BytesIO()
    deep: pa.DataType = pa.int32()
    for _ in range(300):
        deep = pa.struct([("a", deep)])
    pq.write_table(pa.table({"x": pa.nulls(1, deep)}), sink)
    lake = Lake()
    await lake.add(table(range(ROWS)))
    await rewrite(lake, sink.getvalue())
    with pytest.raises(LakestreamError):
        await read(lake)


async def test_no_manifest_ends_this_process(tmp_path: Path) -> None:
    """Flips, cuts and lies in both kinds of Avro file, read by their public doors."""

    async def test(made: StreamTable, view: View) -> None:
        view = await made.append(await made.append(view))
        folder = made.root / "_iceberg"
        files = SealedIO({})
        newest = max(folder.glob("snap-*.avro"), key=lambda path: path.name.split("-")[2])
        named = read_manifests(files, f"file://{newest}")
        assert len(named) == 2
        manifest = Path(named[0].manifest_path.removeprefix("file://")).read_bytes()
        foreign = folder / "foreign.avro"
        place = f"file://{foreign}"

        def as_list() -> int:
            return len(read_manifests(files, place))

        def as_manifest() -> int:
            found = renamed(named[0], place, len(foreign.read_bytes()))
            return len(ManifestIndex(files).get(found, RAW).files) + len(read_entries(files, found, live=False))

        for whole, door, count in ((newest.read_bytes(), as_list, 2), (manifest, as_manifest, 2)):
            foreign.write_bytes(whole)
            assert door() == count
            refused = sum(_refused(foreign, damaged, door) for damaged in _damage(whole))
            assert refused > MUTATIONS / 4

    await run_with_table(tmp_path, test)


async def test_a_manifest_of_another_size_than_it_is_named_with_is_refused(tmp_path: Path) -> None:
    """One that ends behind a block is well formed: only its size tells that entries are missing."""

    async def test(made: StreamTable, view: View) -> None:
        await made.append(view)
        folder = made.root / "_iceberg"
        [newest] = folder.glob("snap-*.avro")
        [named] = read_manifests(SealedIO({}), f"file://{newest}")
        whole = Path(named.manifest_path.removeprefix("file://")).read_bytes()
        foreign = folder / "foreign.avro"
        header_end = whole.index(whole[-16:]) + 16
        foreign.write_bytes(whole[:header_end])
        assert read_entries(SealedIO({}), renamed(named, f"file://{foreign}", header_end)) == []
        with pytest.raises(CorruptObject, match=rf"foreign.avro is damaged: it has {header_end} bytes"):
            read_entries(SealedIO({}), renamed(named, f"file://{foreign}", len(whole)))

    await run_with_table(tmp_path, test)


def _damage(whole: bytes) -> Iterator[bytes]:
    rng = random.Random(33)
    header_end = whole.index(whole[-16:])
    for _ in range(MUTATIONS):
        yield mutated(whole, rng.choice((0, header_end)), rng)
    for end in range(0, len(whole), 97):
        yield whole[:end]
    for position in rng.sample(range(header_end, len(whole)), 40):
        # The longest number there is, and one that never ends.
        yield whole[:position] + b"\xff" * 9 + b"\x01" + whole[position + 1 :]
        yield whole[:position] + b"\xff" * 30 + whole[position + 1 :]


def _refused(place: Path, damaged: bytes, door: Callable[[], int]) -> bool:
    place.write_bytes(damaged)
    try:
        door()
    except CorruptObject as error:
        complaint = str(error)
    else:
        return False
    assert place.name in complaint
    return True
