"""A task's memory does not depend on what the batches hold: measured in a process of its own."""

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import asyncio, resource, sys
from uuid import UUID
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from lakestream.frontier.moving.tiles.tile import Slice, Tile
from lakestream.frontier.moving.tiles.writing import warm_up, write_files
from lakestream.metadata.log.head import Extent
from lakestream.objects import LocalObjects
from lakestream.records import crc32c

def peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

def batch(value):
    builder = DefaultRecordBatchBuilder(2, 4, 0, -1, -1, -1, 1 << 30)
    builder.append(0, 1, b"k", value, [])
    return bytes(builder.build())

async def write(store, key, batches, partitions):
    await store.put(key, batches)
    extents, position = [], 0
    for number, run in enumerate(batches):
        extents.append(Extent(number, number + 1, ("main",), key, position, len(run), 0, crc32c(run)))
        position += len(run)
    if partitions:
        moved = [Extent(0, 1, ("main",), key, each.position, each.length, 0, each.checksum) for each in extents]
        slices = [Slice(number, 0, 1, (extent,)) for number, extent in enumerate(moved)]
    else:
        slices = [Slice(0, 0, len(extents), tuple(extents))]
    tile = Tile(UUID(int=1), "t", store.url, store.url + "/tables/t", tuple(slices), 1 << 30, 16 << 20)
    return sum(file.record_count for file in (await write_files(tile, store, UUID(int=2))).files)

warm_up()
store = LocalObjects(sys.argv[1])
large = batch(bytes(30_000_000))
before = peak_mb()
few = asyncio.run(write(store, "wal/1", [large] * 2, False))
of_two = peak_mb() - before
many = asyncio.run(write(store, "wal/2", [large] * 8, False))
of_eight = peak_mb() - before
apart = asyncio.run(write(store, "wal/3", [batch(b"x" * 2000)] * 1000, True))
print(few, many, apart, of_two, of_eight, peak_mb() - before)
"""


def test_eight_batches_that_unfold_to_thirty_megabytes_take_what_two_take(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    few, many, apart, of_two, of_eight, of_all = map(int, done.stdout.split())
    assert (few, many, apart) == (2, 8, 1_000)
    assert of_two < 300, f"{of_two} MB for one batch of 30 MB at a time"
    assert of_eight < of_two + 60, (of_two, of_eight)
    assert of_all < of_eight + 60, (of_eight, of_all)
