"""WAL objects that keep the grammar and lie in its fields: an error or the truth, in bounded memory, no write."""

import tracemalloc
from typing import Any
from uuid import UUID

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples

from lakestream import wal
from lakestream.errors import CorruptObject
from lakestream.model import StreamPartition
from lakestream.objects import MemoryObjects
from lakestream.records import crc32c
from lakestream.runtime import system
from lakestream.wal import Footer, Placed, Receipt, Section, SectionReceipt

KEY = wal.object_key(7, "session", 3)
TOPIC = UUID(int=3)
MEMORY_BYTES = 8 << 20
"""More than any of these objects could honestly need."""

quick = examples(150, derandomize=True)
numbers = st.one_of(
    st.integers(-3, 70), st.sampled_from([2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**53, 2**63 - 1, -(2**63), 2**64 - 1])
)
anything = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, st.text(max_size=5), st.binary(max_size=16)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=12,
)
partitions = st.tuples(st.one_of(st.just(TOPIC.bytes), st.binary(max_size=17)), numbers)
spans = st.one_of(st.tuples(partitions, numbers, numbers, numbers, numbers, numbers), anything)
placed = st.one_of(st.tuples(numbers, numbers, numbers, numbers), anything)
refused = st.one_of(st.tuples(numbers, numbers, st.text(max_size=5)), anything)
outcomes = st.one_of(st.tuples(partitions, st.lists(placed, max_size=2), st.lists(refused, max_size=2)), anything)
receipts = st.one_of(st.tuples(st.text(max_size=5), st.lists(outcomes, max_size=3)), anything)
footers = st.one_of(
    st.tuples(st.text(max_size=5), numbers, numbers, st.lists(spans, max_size=4), st.lists(receipts, max_size=3)),
    anything,
)


def honest() -> bytes:
    sections = [Section(StreamPartition(TOPIC, index), [b"x" * (20 + index)], 1, 0) for index in range(3)]
    receipt = Receipt(
        wal.object_key(6, "session", 2), (SectionReceipt(StreamPartition(TOPIC, 1), (Placed(41, 1, 0, 9),)),)
    )
    return b"".join(wal.build(sections, [receipt], session="session", flush=3, generation=7).parts)


def assemble(body: bytes, footer: bytes, *, length: int | None = None, size: int | None = None, form: int = 3) -> bytes:
    """With checksums that hold, whatever the numbers say."""
    told = len(body) + len(footer) + 28 if size is None else size
    fields = ((len(footer) if length is None else length) & 0xFFFFFFFF).to_bytes(4, "little")
    fields += crc32c(footer).to_bytes(4, "little") + (told & (2**64 - 1)).to_bytes(8, "little")
    fields += form.to_bytes(2, "little") + bytes(2)
    return body + footer + fields + crc32c(fields).to_bytes(4, "little") + b"WSKL"


async def read(data: bytes) -> Footer | None:
    """None: it was refused, as damaged and in no other way. The bucket holds afterwards what it held before."""

    async def main() -> Footer | None:
        store = MemoryObjects(system().clock)
        await store.put(KEY, [data])
        try:
            return await wal.read_footer(store, KEY)
        except CorruptObject as error:
            told.append(str(error))
            return None
        finally:
            assert [info.key async for info in store.list("")] == [KEY]
            assert await store.get(KEY) == data

    told: list[str] = []
    tracemalloc.start()
    try:
        footer = await main()
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < MEMORY_BYTES
    assert all(KEY in message for message in told)
    return footer


def consistent(footer: Footer, data: bytes) -> bool:
    position = 0
    for span in footer.spans:
        if span.position != position or span.length < 0:
            return False
        position += span.length
    return position <= len(data)


@quick
@given(body=st.binary(max_size=60), footer=footers)
async def test_footers_of_any_shape(body: bytes, footer: Any) -> None:
    data = assemble(body, msgspec.msgpack.encode(footer))
    found = await read(data)
    assert found is None or consistent(found, data)


@quick
@given(body=st.binary(max_size=40), footer=st.binary(max_size=60), length=numbers, size=numbers, form=st.integers(0, 9))
async def test_trailers_that_lie(body: bytes, footer: bytes, length: int, size: int, form: int) -> None:
    data = assemble(body, footer, length=length, size=size, form=form)
    found = await read(data)
    assert found is None or consistent(found, data)


@quick
@given(st.data())
async def test_objects_cut_and_spliced(draw: st.DataObject) -> None:
    whole = honest()
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(whole)), min_size=2, max_size=4)))
    pieces = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    data = b"".join(draw.draw(st.lists(st.sampled_from(pieces), min_size=1, max_size=6)))
    assert (await read(data) is not None) == (data == whole)


@quick
@given(st.integers(2, 2**32 - 1), st.integers(1, 3))
async def test_array_headers_that_promise_more_than_there_is(count: int, depth: int) -> None:
    """MessagePack arrays and byte strings with a 32 bit length and nothing behind it."""
    promise = b"\xdd" + count.to_bytes(4, "big")
    for footer in (promise * depth, b"\xc6" + count.to_bytes(4, "big"), b"\x95\xa1s\x01\x01" + promise + b"\x90"):
        assert await read(assemble(b"", footer)) is None


async def test_nesting_without_end() -> None:
    for opening in (b"\x91", b"\x81\xa0"):
        assert await read(assemble(b"", opening * 100_000 + b"\xc0")) is None
        inside = b"\x95\xa1s\x01\x01" + opening * 100_000 + b"\xc0\x90"
        assert await read(assemble(b"", inside)) is None
