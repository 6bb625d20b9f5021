"""Citations: one changed character is refused, and the key is the cluster's for good."""

from typing import Any

import msgspec
import pytest

from lakestream.errors import CitationRefused
from lakestream.metadata.keys import citation_key
from lakestream.metadata.stores.memory import MemoryStore
from lakestream.query.citations import Citation, CitedTable, as_token, check, from_token, signed
from lakestream.runtime import system

KEY = b"k" * 32
CITATION = Citation(
    cluster="c",
    query="SELECT 'é' FROM orders",
    parameters=(1, "a", None, 2.5),
    tables=(CitedTable(name="default.orders", table_id="t", snapshot_id=str(2**62), offsets=(1, 2)),),
    time="2026-01-01T00:00:00Z",
    max_rows=10,
    row_count=1,
    truncated=False,
    repeatable=True,
    digest="sha256:0",
)


def test_a_citation_goes_around_the_world_and_comes_back() -> None:
    given = signed(CITATION, KEY)
    check(given, "c", KEY)
    assert from_token(as_token(given)) == given
    # As a client has it that knows JSON only.
    again = msgspec.json.decode(msgspec.json.encode(msgspec.json.decode(msgspec.json.encode(given))), type=Citation)
    check(again, "c", KEY)


@pytest.mark.parametrize(
    "change",
    [
        {"query": "SELECT 2"},
        {"parameters": (2, "a", None, 2.5)},
        {"tables": ()},
        {"time": "2026-01-01T00:00:01Z"},
        {"max_rows": 11},
        {"row_count": 2},
        {"truncated": True},
        {"repeatable": False},
        {"digest": "sha256:1"},
        {"signature": ""},
        {"cluster": "d"},
        {"version": 0},
    ],
)
def test_a_changed_one_is_refused(change: dict[str, Any]) -> None:
    given = msgspec.structs.replace(signed(CITATION, KEY), **change)
    with pytest.raises(CitationRefused):
        check(given, "c", KEY)


def test_another_key_signs_nothing_of_ours() -> None:
    with pytest.raises(CitationRefused, match="signature"):
        check(signed(CITATION, b"x" * 32), "c", KEY)


@pytest.mark.parametrize("token", ["", "é", "a", "====", "e30", "W10", "bnVsbA"])
def test_no_citation_at_all(token: str) -> None:
    with pytest.raises(CitationRefused):
        from_token(token)


async def test_the_key_is_whose_who_came_first() -> None:
    store = MemoryStore(system())
    assert await citation_key(store, b"a" * 32) == b"a" * 32
    assert await citation_key(store, b"b" * 32) == b"a" * 32
