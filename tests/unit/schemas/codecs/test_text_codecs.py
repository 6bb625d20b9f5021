"""Values that are text as a whole: what is text is a column alone, anything else keeps its bytes."""

import json

import hypothesis.strategies as st
import pytest
from hypothesis import example, given
from support.properties import examples
from support.schemas.values import Values, parquet_of, read_parquet, rows_of, values_of

from lakestream.schemas.codecs import install
from lakestream.schemas.codecs.texts import JSON_TEXT, TEXT, TextCodec
from lakestream.schemas.shapes import text_shape
from lakestream.table.shape import KIND_RAW, KIND_TOMBSTONE, KIND_TYPED

install()
_TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda below: st.lists(below) | st.dictionaries(st.text(), below),
)
_WRITTEN = st.builds(
    lambda tree, is_ascii, indent: json.dumps(tree, ensure_ascii=is_ascii, indent=indent).encode(errors="replace"),
    _TREES,
    st.booleans(),
    st.sampled_from([None, 2]),
)
_ANY = st.lists(st.none() | st.binary(max_size=20) | st.text(max_size=20).map(lambda text: text.encode()) | _WRITTEN)


def is_json(value: bytes) -> bool:
    try:
        json.loads(value.decode(), parse_constant=lambda _: json.loads(""))
    except ValueError:
        return False
    return True


def is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


@examples(200)
@given(_ANY)
@example([b"[1,]", b'"\\ud800"', b"nul", b'{"a":1}x', b"\xef\xbb\xbf1", b" [] \n", b"-", b"0.", b"1e", b'{"a"}', b"01"])
def test_values_are_columns_if_they_are_text_and_come_back(values: Values) -> None:
    for codec, holds in ((TEXT, is_text), (JSON_TEXT, is_json)):
        shape = text_shape(codec)
        rows = rows_of(values, shape)
        kinds = [KIND_TOMBSTONE if value is None else KIND_TYPED if holds(value) else KIND_RAW for value in values]
        assert rows["_kind"].to_pylist() == kinds
        assert rows["value"].to_pylist() == [
            value.decode() if value is not None and kind == KIND_TYPED else None
            for value, kind in zip(values, kinds, strict=True)
        ]
        assert [value is None for value in rows["_value"].to_pylist()] == [kind != KIND_RAW for kind in kinds]
        assert values_of(rows, shape) == values
        if values:
            assert values_of(read_parquet(parquet_of(rows, shape)), shape) == values
            assert values_of(rows.slice(1), shape) == values[1:]


@pytest.mark.parametrize(
    ("codec", "value", "told"),
    [
        (TEXT, b"ab\xff", "not UTF-8: invalid start byte at byte 2"),
        (JSON_TEXT, b"ab\xff", "not UTF-8"),
        (JSON_TEXT, b"{'a': 1}", "not JSON"),
        (JSON_TEXT, b"[" * 200 + b"]" * 200, "128 levels"),
        (JSON_TEXT, b"NaN", "not JSON"),
    ],
)
def test_what_stays_bytes_is_explained(codec: str, value: bytes, told: str) -> None:
    assert rows_of([value], text_shape(codec))["_kind"].to_pylist() == [KIND_RAW]
    assert told in TextCodec(is_json=codec == JSON_TEXT).explain(value, text_shape(codec))


def test_depth_and_length() -> None:
    shape = text_shape(JSON_TEXT)
    values: Values = [
        b"[" * 128 + b"]" * 128,
        b'{"a":' * 128 + b"1" + b"}" * 128,
        b'[{"a":' * 64 + b"1" + b"}]" * 64,
        b'[{"a":' * 64 + b"1" + b"]}" * 64,
        b"[" * 129 + b"]" * 129,
        b'"' + b"x" * 20_000_000 + b'"',
        b"[" * 10_000_000,
    ]
    rows = rows_of(values, shape)
    assert rows["_kind"].to_pylist() == [2, 2, 2, 0, 0, 2, 0]
    assert values_of(rows, shape) == values
