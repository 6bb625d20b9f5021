"""Rows of a stream's table in steps: every row that is there comes once, whatever layout an engine has left."""

import random
from dataclasses import replace

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples
from support.tables.foreign import Lake, shuffled, table

from lakestream.table.deriving.reading import StreamRows

COLUMNS = ("_stream_partition", "_offset", "_key", "_value")


@examples(40)
@given(
    seed=st.integers(0, 1 << 30),
    rows=st.integers(1, 40),
    files=st.integers(1, 5),
    most=st.integers(1, 50),
    bounds=st.booleans(),
)
async def test_each_row_comes_once(seed: int, rows: int, files: int, most: int, bounds: bool) -> None:
    chance = random.Random(seed)
    lake = Lake()
    places = [(partition, offset) for partition in range(3) for offset in range(rows) if chance.random() < 0.8]
    start = tuple(chance.randrange(rows + 1) for _ in range(3))
    gone: list[tuple[int, int]] = []
    for number in range(files):
        held = [place for at, place in enumerate(places) if at % files == number]
        if not held:
            continue
        tables = [
            table([offset for partition, offset in held if partition == index], partition=index)
            for index in sorted({partition for partition, _ in held})
        ]
        mixed = shuffled(pa.concat_tables(tables), seed)
        file = await lake.add(mixed, bounds=bounds, row_group_size=chance.randint(1, 9))
        dead = chance.randrange(mixed.num_rows)
        await lake.delete((file.path, dead))
        gone.append((mixed["_stream_partition"][dead].as_py(), mixed["_offset"][dead].as_py()))
    view = replace(lake.view, frontier=(rows, rows, rows))
    reader = StreamRows(lake.store, max_rows=most, max_bytes=1 << 20)
    found: list[tuple[int, int]] = []
    reached = start
    while (part := await reader.step(view, reached)) is not None:
        assert all(after >= before for before, after in zip(reached, part.end, strict=True))
        assert part.end != reached
        for each in await reader.read(view, part, COLUMNS):
            found += zip(each["_stream_partition"].to_pylist(), each["_offset"].to_pylist(), strict=True)
        reached = part.end
    left = set(places) - set(gone)
    assert sorted(found) == sorted(place for place in left if place[1] >= start[place[0]])
    assert reached == (rows, rows, rows)


async def test_a_step_is_bounded_by_bytes_too() -> None:
    lake = Lake()
    await lake.add(table(range(400), value_bytes=250), row_group_size=50)
    view = replace(lake.view, frontier=(400,))
    reader = StreamRows(lake.store, max_rows=1000, max_bytes=20_000)
    reached, steps = (0,), 0
    while (part := await reader.step(view, reached)) is not None:
        tables = await reader.read(view, part, COLUMNS)
        assert sum(each.nbytes for each in tables) < 60_000
        reached, steps = part.end, steps + 1
    assert 4 <= steps <= 16
