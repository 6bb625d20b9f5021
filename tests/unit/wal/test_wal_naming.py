"""Names of WAL objects."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakestream.wal import WAL_PREFIX, ObjectName, object_key, parse_key

sessions = st.from_regex(r"[0-9A-Za-z_][0-9A-Za-z_-]{0,20}", fullmatch=True)
counts = st.integers(0, 10**12)


@given(counts, sessions, counts)
def test_names_are_read_back(generation: int, session: str, flush: int) -> None:
    key = object_key(generation, session, flush)
    assert key.startswith(WAL_PREFIX)
    assert parse_key(key) == ObjectName(generation, session, flush)


def test_the_name_is_the_documented_one() -> None:
    assert object_key(12, "a1b2", 345) == "wal/0000000012/a1b2-0000000345.wal"


@given(st.integers(0, 10**10 - 2), sessions, sessions)
def test_key_order_is_the_order_of_generations(generation: int, first: str, second: str) -> None:
    assert object_key(generation, first, 7) < object_key(generation + 1, second, 3)


@pytest.mark.parametrize("session", ["", "a/b", "..", "a b", "-a", "é", "a.b", "a\n"])
def test_a_session_that_is_no_name_is_refused(session: str) -> None:
    with pytest.raises(ValueError, match="no valid name"):
        object_key(1, session, 1)


@pytest.mark.parametrize("key", [(-1, "s", 1), (1, "s", -1)])
def test_negative_counts_are_refused(key: tuple[int, str, int]) -> None:
    with pytest.raises(ValueError, match="no valid name"):
        object_key(*key)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "wal/",
        "wal/0000000001/s-0000000001",
        "wal/1/s-1.wal",
        "wal/00000000001/s-0000000001.wal",
        "wal/0000000001/s-0000000001.wal\n",
        "wal/0000000001/-0000000001.wal",
        "wal/000000000١/s-0000000001.wal",
        "tables/0000000001/s-0000000001.wal",
        "wal/0000000001/x/s-0000000001.wal",
    ],
)
def test_other_names_are_refused(key: str) -> None:
    with pytest.raises(ValueError, match="not the name of a WAL object"):
        parse_key(key)
