"""Protobuf values to columns and back, beside Google's own library: every value comes back to the byte, or its bytes
stay, and columns hold what the library reads."""

from datetime import UTC, datetime
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message import DecodeError, Message
from hypothesis import HealthCheck, given, settings
from support.schemas.avro import damaged
from support.schemas.orders import CODECS, EMPTY, ORDERS, Order, again, decoded, order, proto, raw, rows, shape_of
from support.schemas.protobuf import framed, kept, kept_class, message_class, row_agrees, schemas, values
from support.schemas.values import Values

from lakestream.schemas.mapping.protobuf import flat_message
from lakestream.schemas.protobuf import parse_descriptors
from lakestream.schemas.shapes import with_kept_schema

PROPERTY = settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def _all(columns: Any) -> Any:
    for column in columns:
        yield column
        yield from _all(column.below)


@PROPERTY
@given(st.data(), schemas())
def test_any_value_of_any_schema_comes_back_to_the_byte(data: st.DataObject, files: FileDescriptorSet) -> None:
    """And nothing but text, numbers of enums without a symbol and other kinds of NaN keep bytes beside the columns."""
    shape = with_kept_schema(EMPTY, kept(files))
    assert not shape.schemas[0].trouble
    kind = message_class(files, _flat(files))
    sent = data.draw(st.lists(values(kind), max_size=5))
    index = [each.name for each in files.file[-1].message_type].index(kind.DESCRIPTOR.name)
    found = decoded(shape, [framed(1, index, each.SerializeToString(deterministic=True)) for each in sent])
    assert found.is_typed.all()
    columns = [column for column in shape.value_columns if column.source.isdecimal()]
    for row, message in zip(rows(found), sent, strict=True):
        assert row_agrees(columns, row, message)
    if not any(column.content in ("json", "enum") or column.kind in ("float", "double") for column in _all(columns)):
        assert found.is_exact.all()


def _flat(files: FileDescriptorSet) -> str:
    return flat_message(parse_descriptors(kept(files).text))


@PROPERTY
@given(st.data(), schemas())
def test_damage_never_spoils_anything_but_its_own_row(data: st.DataObject, files: FileDescriptorSet) -> None:
    """And what is read from damaged bytes is what the library reads."""
    shape = with_kept_schema(EMPTY, kept(files))
    kind = message_class(files, _flat(files))
    index = [each.name for each in files.file[-1].message_type].index(kind.DESCRIPTOR.name)
    sent = data.draw(st.lists(values(kind), min_size=1, max_size=4))
    good: list[bytes] = [each.SerializeToString(deterministic=True) for each in sent]
    bad = [data.draw(damaged(each)) for each in good]
    mixed = decoded(shape, [framed(1, index, each) for pair in zip(good, bad, strict=True) for each in pair])
    columns = [column for column in shape.value_columns if column.source.isdecimal()]
    found = rows(mixed)
    assert mixed.is_typed[::2].all()
    for row, message in zip(found[::2], sent, strict=True):
        assert row_agrees(columns, row, message)
    for number, value in enumerate(bad):
        if mixed.is_typed[2 * number + 1]:
            message = kind()
            message.ParseFromString(value)
            assert row_agrees(columns, found[2 * number + 1], message), value
        assert CODECS.explain(framed(1, index, value), shape)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.none() | st.binary(max_size=30) | st.binary(max_size=30).map(lambda each: b"\0\0\0\0\1" + each)))
def test_bytes_of_any_kind_are_kept(sent: Values) -> None:
    decoded(ORDERS, sent)


def test_columns_hold_what_the_producer_wrote() -> None:
    found = decoded(
        ORDERS,
        [
            order(
                id=5,
                who="é",
                items=[{"sku": "s", "count": -3, "prices": [1.5]}, {}],
                counts={"k": 0},
                kind=5,
                at={"seconds": 1_700_000_000, "nanos": 123_456_000},
                most={"value": 0},
                item={"sku": "q"},
                flag=False,
                large=2**64 - 1,
                deltas=[-1, 5],
                notes=[{"value": "x"}, {}],
                empty={},
                by_number={0: {}},
                small=2**32 - 1,
            ),
            order(),
        ],
    )
    assert found.is_exact.all()
    empty = {"sku": "", "count": 0, "prices": []}
    first, second = rows(found)
    assert first | {"large": int(first["large"])} == {
        "id": 5,
        "who": "é",
        "items": [{"sku": "s", "count": -3, "prices": [1.5]}, empty],
        "counts": [("k", 0)],
        "kind": "OLD",
        "at": datetime(2023, 11, 14, 22, 13, 20, 123456, UTC),
        "most": 0,
        "text": None,
        "item": {"sku": "q", "count": 0, "prices": []},
        "flag": False,
        "large": 2**64 - 1,
        "parent": None,
        "deltas": [-1, 5],
        "notes": ["x", ""],
        "empty": "{}",
        "by_number": [(0, empty)],
        "small": 2**32 - 1,
        "Cancelled": None,
    }
    absent = {"at", "most", "text", "item", "flag", "parent", "empty", "Cancelled"}
    assert {name for name, value in second.items() if value is None} == absent
    assert (second["id"], second["who"], second["kind"], second["items"]) == (0, "", "NEW", [])


@pytest.mark.parametrize(
    ("data", "state"),
    [
        (b"", "exact"),
        (b"\x08\x01", "exact"),
        (b"\x08\x81\0", "typed"),  # a number longer than need be
        (b"\x08\0", "typed"),  # a default that is written
        (b"\x08\x01\x08\x02", "typed"),  # a field twice
        (b"\x12\x01a\x08\x01", "typed"),  # out of order
        (b"\xa0\x06\x01", "typed"),  # an unknown field
        (b"\xa3\x06\x08\x01\xa4\x06", "typed"),  # an unknown group
        (b"\xa3\x06\xab\x06\xa4\x06\xac\x06", "raw"),  # groups that end in the wrong order
        (b"\xa3\x06", "raw"),
        (b"\xa4\x06", "raw"),
        (b"\x68\x01\x68\x02", "typed"),  # packed in the schema, and not here
        (b"\x6a\x02\x01\x02", "exact"),
        (b"\x6a\0", "typed"),
        (b"\x6a\x01\x01\x6a\x01\x02", "typed"),
        (b"\x6a\x02\x01\x80", "raw"),
        (b"\x6d\0\0\0\0", "raw"),  # the wrong wire type
        (b"\x09\0\0\0\0\0\0\0\0", "raw"),
        (b"\x0a\x01a", "raw"),
        (b"\x10\x01", "raw"),
        (b"\x12\x02a", "raw"),  # truncated
        (b"\x12", "raw"),
        (b"\x08", "raw"),
        (b"\x08" + b"\x80" * 10, "raw"),
        (b"\x08" + b"\xff" * 9 + b"\x01", "exact"),  # -1
        (b"\x08" + b"\xff" * 9 + b"\x02", "raw"),  # more than 64 bits
        (b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "raw"),  # a length of no end
        (b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "raw"),
        (b"\x12\x01\xff", "raw"),  # no text
        (b"\0\0", "raw"),  # the field 0
        (b"\x80\x80\x80\x80\x80\x01", "raw"),
        (b"\x0e", "raw"),  # wire types that there are not
        (b"\x0f", "raw"),
        (b"\x28\x02", "typed"),  # a number of the enum without a symbol
        (b"\x28\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "exact"),
        (b"\x28\xff\xff\xff\xff\x0f", "typed"),  # -1, not to all 64 bits
        (b"\x50\x02", "typed"),  # a boolean of 2
        (b"\x42\x01a\x4a\0", "typed"),  # two of a oneof
        (b"\x4a\x02\x10\x05\x4a\x03\x0a\x01x", "typed"),  # a message in two pieces
        (b"\x22\x03\x0a\x01k", "typed"),  # an entry of a map without its value
        (b"\x22\x05\x0a\x01k\x10\x01\x22\x05\x0a\x01k\x10\x02", "typed"),  # a key twice
        (b"\x82\x01\x02\x08\x07", "typed"),
        (b"\x32\0", "exact"),
        (b"\x32\x04\x10\x81\x80\x01", "typed"),  # nanoseconds
        (b"\x32\x02\x10\x01", "typed"),
        (b"\x32\x0b\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "typed"),  # before its second
        (b"\x32\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x10", "raw"),
        (b"\x32\x0a\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "typed"),  # a time that no column holds
        (b"\x3a\0", "exact"),
        (b"\x3a\x02\x08\0", "typed"),
        (b"\x7a\0", "exact"),
        (b"\x7a\x02\x08\x01", "typed"),
        (b"\x62\x02\x08\x01", "typed"),  # text
        (b"\x62\x01\x08", "raw"),
        (b"\x62\x04\x12\x02a\xff", "raw"),
    ],
)
def test_what_would_not_come_back_keeps_its_bytes(data: bytes, state: str) -> None:
    """The library reads all that has columns, and the columns hold what it reads."""
    sent: Values = [order(id=7), raw(data), order(id=8)]
    found = decoded(ORDERS, sent)
    assert found.is_typed.tolist() == [True, state != "raw", True]
    assert found.is_exact.tolist() == [True, state == "exact", True]
    assert found.columns["id"].to_pylist()[::2] == [7, 8]
    told = CODECS.explain(raw(data), ORDERS)
    assert (told == "the value is as it should be") == (state != "raw"), told
    if state != "raw":
        message = Order()
        message.ParseFromString(data)
        columns = [column for column in ORDERS.value_columns if column.source.isdecimal()]
        assert row_agrees(columns, rows(found)[1], message)


def test_all_sorts_of_values_beside_each_other() -> None:
    """One that has to be read again slowly does not disturb those around it."""
    sent: Values = [order(id=number, who="w" * number) for number in range(20)]
    sent[5] = raw(b"\x08\x01\x08\x02")
    sent[9], sent[10] = raw(b"\x08"), None
    sent[15] = raw(b"\x12\x01a\x12\x01b" * 3)
    found = decoded(ORDERS, sent)
    assert found.is_exact.tolist() == [number not in (5, 9, 10, 15) for number in range(20)]
    assert [found.columns["id"][5].as_py(), found.columns["who"][15].as_py()] == [2, "b"]


def test_a_long_value_with_a_field_twice_stays_bytes() -> None:
    long = raw(b"\x12\x01a" * 100_000)
    found = decoded(ORDERS, [long, order(id=3)])
    assert found.is_typed.tolist() == [False, True]


def test_wide_and_long_values() -> None:
    wide = proto("message W { " + " ".join(f"int64 c{n} = {n};" for n in range(1, 2001)) + " }")
    shape = shape_of(wide)
    kind = kept_class(shape.schemas[0], "t.W")
    full = kind(**{f"c{n}": n for n in range(1, 2001)}).SerializeToString()
    sparse = kind(c1=1, c900=5, c2000=7).SerializeToString()
    assert decoded(shape, [framed(1, 0, full), framed(1, 0, sparse)] * 3).is_exact.all()
    long = [order(who="x" * 20_000_000), order(), order(items=[{"prices": [0.5] * 1000}] * 1000), order(id=1)]
    assert decoded(ORDERS, [*long]).is_exact.all()


def test_lengths_of_all_sizes() -> None:
    """Of messages, whose length is known only after them."""
    sizes = [0, 1, 120, 125, 126, 127, 128, 129, 16_380, 16_384, 16_390, 2_097_160]
    sent = [order(item={"sku": "x" * size}, items=[{"sku": "y" * size}] * 2) for size in sizes]
    assert decoded(ORDERS, [*sent]).is_exact.all()


def test_the_library_reads_what_is_rebuilt() -> None:
    sent: Values = [order(id=number, counts={str(number): number}) for number in range(10)]
    found = CODECS.decode(pa.array(sent, pa.binary()), ORDERS)
    for number, value in enumerate(again(ORDERS, found, sent)):
        message: Any = Order()
        message.ParseFromString((value or b"")[7:])
        assert (message.id, message.counts[str(number)]) == (number, number)
    with pytest.raises(DecodeError):
        Message.ParseFromString(Order(), b"\x08")
