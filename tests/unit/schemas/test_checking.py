"""Values decoded by their schemas before a batch is taken: exactly those that are none are named, with a reason."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clients.batches import batch
from support.clients.records import parse
from support.properties import examples
from support.schemas.avro import damaged, framed, records, written

from lakestream.errors import InvalidRecords
from lakestream.schemas import checking
from lakestream.schemas.checking import check_values
from lakestream.table.shape import ValueSchema

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, {"name": "n", "type": "string"}]}
ITEM = {"type": "record", "name": "Item", "fields": [{"name": "item", "type": "boolean"}]}
SCHEMAS = {7: ValueSchema(7, json.dumps(ORDER)), 9: ValueSchema(9, json.dumps(ITEM))}


def order(number: int) -> bytes:
    return framed(7, written(ORDER, {"id": number, "n": f"n{number}"}))


def faults(run: bytes, schemas: dict[int, ValueSchema] = SCHEMAS) -> dict[int, str]:
    try:
        check_values(schemas, run)
    except InvalidRecords as error:
        return dict(error.records)
    return {}


@pytest.mark.parametrize("compression", range(5))
def test_good_values_pass_and_bad_ones_are_named(compression: int) -> None:
    item = framed(9, b"\1")
    good = [order(1), item, None, order(2), item]
    assert faults(batch(*good, compression=compression)) == {}
    told = faults(batch(order(1), framed(7, b"\2"), item, None, framed(9, b"\7"), order(3), compression=compression))
    assert list(told) == [1, 4]
    assert told[1].startswith("the value does not decode: ")
    assert "schema 7" in told[1]
    assert told[4].startswith("the value does not decode: ")
    assert all(len(text) > 35 for text in told.values())


def test_only_the_first_faults_have_their_own_reason() -> None:
    told = faults(batch(*[framed(7, b"\2")] * 300))
    assert list(told) == list(range(300))
    with pytest.raises(
        InvalidRecords, match=r"^300 of its records are at fault, the first is number 0: the value does"
    ):
        check_values(SCHEMAS, batch(*[framed(7, b"\2")] * 300))
    assert len({text for number, text in told.items() if number >= checking.EXPLAINED}) == 1


def test_a_large_batch_is_looked_at_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "_PIECE_BYTES", 100)
    values: list[bytes | None] = [order(number) for number in range(500)]
    values[3] = values[499] = framed(7, b"")
    values[250] = None
    values[251] = framed(7, b"\xff" * 1000)
    assert list(faults(batch(*values, compression=1))) == [3, 251, 499]


def test_a_schema_that_cannot_be_columns_takes_nothing_and_says_why() -> None:
    odd = ValueSchema(7, "", trouble="what it refers to cannot be found")
    [text] = faults(batch(order(1)), {7: odd}).values()
    assert "what it refers to cannot be found" in text
    assert "lakestream.schema.validation=id" in text


@examples(60)
@given(st.data(), records())
def test_exactly_what_the_codec_decodes_is_taken(data: st.DataObject, typed: Any) -> None:
    schema, values = typed
    known = {3: ValueSchema(3, json.dumps(schema))}
    good = [framed(3, written(schema, each)) for each in data.draw(st.lists(values, min_size=1, max_size=4))]
    assert faults(batch(*good), known) == {}
    bad = framed(3, data.draw(damaged(good[0][5:])))
    run = batch(*good, bad)
    assert set(faults(run, known)) <= {len(good)}
    assert [record.value for record in parse([run])][-1] == bad


RULES = {
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "code": {"type": "string", "pattern": "^[a-z]{2,3}$"},
        "kind": {"enum": ["a", "b"]},
        "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True, "maxItems": 2},
        "other": {"$ref": "other.json"},
    },
    "required": ["id"],
    "additionalProperties": False,
}
OTHER = {"type": "object", "properties": {"x": {"type": "number", "exclusiveMaximum": 5}}}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"id": 1, "code": "ab", "kind": "a", "tags": ["x", "y"], "other": {"x": 4.5}}', ""),
        ("{}", '"id" is a required property'),
        ('{"id": 0}', "at /id: 0 is less than the minimum of 1"),
        ('{"id": 1, "code": "AB"}', "at /code: "),
        ('{"id": 1, "kind": "c"}', "at /kind: "),
        ('{"id": 1, "tags": ["x", "x"]}', "at /tags: "),
        ('{"id": 1, "tags": ["x", "y", "z"]}', "at /tags: "),
        ('{"id": 1, "other": {"x": 5}}', "at /other/x: "),
        ('{"id": 1, "more": 1}', "'more'"),
        ('{"id": "1"}', "the value does not decode"),
    ],
)
def test_rules_of_a_json_schema_hold(text: str, told: str) -> None:
    schema = ValueSchema(7, json.dumps(RULES), (("other.json", json.dumps(OTHER)),), format="JSON")
    found = faults(batch(framed(7, text.encode())), {7: schema})
    assert len(found) == bool(told)
    assert told in found.get(0, "")


def test_a_schema_that_the_library_does_not_take_is_its_types() -> None:
    """Draft 3, say. Nothing is fetched for it, either."""
    third = {
        "$schema": "http://json-schema.org/draft-03/schema#",
        "type": "object",
        "properties": {"a": {"minimum": 3}},
    }
    schema = ValueSchema(7, json.dumps(third), format="JSON")
    assert faults(batch(framed(7, b'{"a": 1}')), {7: schema}) == {}
