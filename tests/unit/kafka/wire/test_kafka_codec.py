"""Our writer and our zero-copy reader against kio's own, in every version."""

import contextlib
import dataclasses
import datetime as dt
import io
import struct
import types
import typing
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer
from support.clients.batches import batch
from support.clients.wire import compose, frame, span
from support.properties import examples

from lakestream.kafka.apis.registry import APIS
from lakestream.kafka.errors import MalformedRequest
from lakestream.kafka.wire import codec
from lakestream.kafka.wire.writing import RecordParts, Sink, writer
from lakestream.records.varint import varint

VERSIONS = [(key, version) for key, api in APIS.items() for version in range(api.min_version, api.max_version + 1)]
_INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def _ours(kind: Any, kafka_type: str | None, nullable: bool, draw: st.DrawFn) -> Any:
    """A value as our handlers give it."""
    arguments = [argument for argument in typing.get_args(kind) if argument not in (types.NoneType, ...)]
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        if kafka_type != "datetime_i64" and draw(st.booleans()):
            return None
        return _ours(arguments[0], kafka_type, True, draw)
    if typing.get_origin(kind) is tuple:
        count = draw(st.sampled_from([0, 1, 2, 130]) if kafka_type else st.integers(0, 2))
        return [_ours(arguments[0], kafka_type, False, draw) for _ in range(count)]
    if dataclasses.is_dataclass(kind):
        return draw(_fields(kind))
    if kafka_type in _INTEGERS:
        bits = _INTEGERS[kafka_type]
        return draw(st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1))
    if kafka_type == "bool":
        return draw(st.booleans())
    if kafka_type == "error_code":
        return draw(st.sampled_from(ErrorCode))
    if kafka_type == "uuid":
        return draw(st.one_of(st.none(), st.uuids(allow_nil=False)))
    if kafka_type == "uint16":
        return draw(st.integers(0, 2**16 - 1))
    if kafka_type == "float64":
        return draw(st.floats(allow_nan=False))
    if kafka_type in ("timedelta_i32", "timedelta_i64"):
        return draw(st.integers(0, 2**31 - 1))
    if kafka_type == "datetime_i64":
        return draw(st.sampled_from([-1, 1_700_000_000_000] if nullable else [0, 1_700_000_000_000]))
    if kafka_type in ("bytes", "records"):
        return draw(st.binary(max_size=200))
    return draw(st.text(max_size=140))


@st.composite
def _fields(draw: st.DrawFn, kind: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {
        field.name: _ours(hints[field.name], field.metadata.get("kafka_type"), False, draw)
        for field in dataclasses.fields(kind)
        if "tag" not in field.metadata
    }


def _kios(value: Any, kind: Any, kafka_type: str | None = None) -> Any:
    """The same as kio wants it: times are no numbers there."""
    arguments = [argument for argument in typing.get_args(kind) if argument not in (types.NoneType, ...)]
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        return _kios(value, arguments[0], kafka_type)
    if value is None:
        return None
    if typing.get_origin(kind) is tuple:
        return [_kios(each, arguments[0], kafka_type) for each in value]
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        types_of = {field.name: field.metadata.get("kafka_type") for field in dataclasses.fields(kind)}
        return {name: _kios(each, hints[name], types_of[name]) for name, each in value.items()}
    if kafka_type in ("timedelta_i32", "timedelta_i64"):
        return dt.timedelta(milliseconds=value)
    if kafka_type == "datetime_i64":
        return None if value == -1 else dt.datetime.fromtimestamp(value / 1000, dt.UTC)
    return value


@examples(5)
@given(st.data())
@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_what_we_write_is_what_kio_writes(key: int, version: int, data: st.DataObject) -> None:
    schema = load_response_schema(key, version)
    fields = data.draw(_fields(schema))
    sink = Sink()
    writer(schema)(sink, fields)  # type: ignore[arg-type]
    expected = io.BytesIO()
    entity_writer(schema)(expected, compose(schema, _kios(fields, schema)))
    assert b"".join(sink.finish())[4:] == expected.getvalue()


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 2**21, 2**31 - 1])
def test_varints(value: int) -> None:
    decoded = sum((byte & 0x7F) << (7 * position) for position, byte in enumerate(varint(value)))
    assert decoded == value
    assert all(byte & 0x80 for byte in varint(value)[:-1])


def test_record_bytes_are_neither_copied_nor_joined() -> None:
    parts = [memoryview(bytes(1000)), memoryview(bytes(2000))]
    fields = {
        "responses": [
            {
                "topic": "t",
                "partitions": [
                    {
                        "partition_index": 0,
                        "high_watermark": 1,
                        "aborted_transactions": None,
                        "records": RecordParts(parts),
                    }
                ],
            }
        ]
    }
    written = codec.write_response(codec.wire(1, 11), 5, fields)
    assert any(part is parts[0] for part in written)
    assert any(part is parts[1] for part in written)
    assert struct.unpack_from(">i", written[0])[0] == sum(map(len, written)) - 4


def test_a_field_that_a_handler_forgot_is_an_error() -> None:
    with pytest.raises(KeyError, match="partition_responses"):
        codec.write_response(codec.wire(0, 9), 1, {"responses": [{"name": "t"}]})


def _large(version: int, topic_id: UUID) -> tuple[bytes, list[bytes]]:
    records = [batch(bytes([index]) * 40_000) for index in range(3)]
    parts = [{"index": index, "records": each} for index, each in enumerate(records)]
    fields = {
        "transactional_id": "tx",
        "acks": 1,
        "timeout": span(1_234),
        "topic_data": [
            {"name": "t", "topic_id": topic_id, "partition_data": [*parts, {"index": 9, "records": None}]},
            {"name": "u", "topic_id": topic_id, "partition_data": ()},
        ],
    }
    return frame(0, version, fields)[4:], records


@pytest.mark.parametrize("version", range(3, 14))
def test_large_requests_are_read_like_small_ones_and_share_the_frames_memory(version: int) -> None:
    data, records = _large(version, UUID(int=7))
    buffer = memoryview(bytearray(data))
    wire = codec.wire(0, version)
    client_id, request = codec.read_request(wire, buffer)
    _, small = codec.read_request(wire._replace(read_large=wire.read_request), buffer)
    assert client_id == "t"
    assert request == small
    views = [part.records for part in request.topic_data[0].partition_data]
    assert [bytes(view) for view in views[:3]] == records
    assert all(view.obj is buffer.obj for view in views[:3])
    assert views[3] is None


@examples(60)
@given(st.sampled_from([3, 9, 13]), st.data())
def test_large_requests_that_lie_are_malformed_and_nothing_worse(version: int, data: st.DataObject) -> None:
    whole, _ = _large(version, UUID(int=7))
    wire = codec.wire(0, version)
    cut = data.draw(st.integers(codec._VIEW_FROM_BYTES, len(whole) - 1))
    with pytest.raises(MalformedRequest):
        codec.read_request(wire, memoryview(bytearray(whole[:cut])))
    broken = bytearray(whole)
    position = data.draw(st.one_of(st.integers(8, 60), st.integers(8, len(whole) - 5)))
    broken[position : position + 4] = data.draw(st.binary(min_size=4, max_size=4))
    with contextlib.suppress(MalformedRequest):
        codec.read_request(wire, memoryview(broken))


def test_unknown_tagged_fields_of_large_requests_are_skipped() -> None:
    whole, _ = _large(9, UUID(int=7))
    tagged = whole[:-1] + bytes([2, 40, 3]) + b"abc" + bytes([41, 0])
    _, request = codec.read_request(codec.wire(0, 9), memoryview(bytearray(tagged)))
    assert len(request.topic_data) == 2
