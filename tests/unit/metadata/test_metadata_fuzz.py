"""Stored values that keep the grammar and lie in its fields: an error that names them or a value of the right type."""

import tracemalloc
import typing
from typing import Any
from uuid import UUID
from zlib import crc32

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples

from lakestream.errors import CorruptObject
from lakestream.metadata import codec
from lakestream.metadata.brokers import Broker
from lakestream.metadata.groups import CommittedOffset, GroupState, StoredMember
from lakestream.metadata.log.head import Extent, Head, ProducerState
from lakestream.metadata.names.pointers import Pointer, TableName
from lakestream.metadata.store import Address
from lakestream.metadata.topics.list import Topic

ADDRESS = Address("shard", "key")
KINDS: tuple[Any, ...] = (
    Head,
    Extent,
    ProducerState,
    Topic,
    Broker,
    GroupState,
    StoredMember,
    CommittedOffset,
    Pointer,
    TableName,
    UUID,
    dict[str, str],
    int,
    str,
)
MEMORY_BYTES = 4 << 20

quick = examples(120, derandomize=True)
numbers = st.one_of(st.integers(-3, 70), st.sampled_from([2**31, 2**32 - 1, 2**63 - 1, -(2**63), 2**64 - 1]))
anything = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, st.floats(), st.text(max_size=5), st.binary(max_size=16)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=9),
        st.dictionaries(st.sampled_from(["name", "topic_id", "partitions", "configs", "created_ms", "x"]), inner),
    ),
    max_leaves=15,
)


def stored(body: bytes, kind: Any = int) -> bytes:
    """With a checksum that holds."""
    form = bytes((getattr(kind, "stored_format", codec.FIRST_FORMAT),))
    seed = crc32(f"{ADDRESS.shard}\0{ADDRESS.key}".encode())
    checksum = crc32(body, seed if form[0] == codec.FIRST_FORMAT else crc32(form, seed))
    return form + checksum.to_bytes(4, "little") + body


def decode(data: bytes, kind: Any) -> Any:
    """`CorruptObject` if it was refused; the memory it took is bounded either way."""
    tracemalloc.start()
    try:
        try:
            found = codec.decode(data, kind, ADDRESS)
        except CorruptObject as error:
            assert "'key' of 'shard'" in str(error)  # noqa: PT017
            return error
        finally:
            _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < MEMORY_BYTES
    return found


@quick
@given(kind=st.sampled_from(KINDS), value=anything)
def test_values_of_any_shape(kind: Any, value: Any) -> None:
    found = decode(stored(msgspec.msgpack.encode(value), kind), kind)
    assert isinstance(found, (CorruptObject, typing.get_origin(kind) or kind))


@quick
@given(kind=st.sampled_from(KINDS), data=st.binary(max_size=80))
def test_bytes_of_any_kind(kind: Any, data: bytes) -> None:
    assert isinstance(decode(data, kind), CorruptObject)
    found = decode(stored(data), kind)
    assert isinstance(found, (CorruptObject, typing.get_origin(kind) or kind))


@quick
@given(st.data())
def test_values_cut_and_spliced(draw: st.DataObject) -> None:
    whole = codec.encode(Head(7, 1, 3, 2), ADDRESS)
    other = codec.encode(CommittedOffset(5, 0, "m", 9), ADDRESS)
    cut, join = draw.draw(st.integers(0, len(whole))), draw.draw(st.integers(0, len(other)))
    spliced = whole[:cut] + other[join:]
    found = decode(spliced, Head)
    assert isinstance(found, CorruptObject) == (spliced != whole)


@pytest.mark.parametrize("kind", KINDS)
def test_lengths_that_lie_and_nesting_without_end(kind: Any) -> None:
    for head in (b"\xdd", b"\xdf", b"\xc6", b"\xdb"):
        for count in (2**31, 2**32 - 1):
            assert isinstance(decode(stored(head + count.to_bytes(4, "big")), kind), CorruptObject)
    for opening in (b"\x91", b"\x81\xa0"):
        assert isinstance(decode(stored(opening * 50_000 + b"\xc0"), kind), CorruptObject)
