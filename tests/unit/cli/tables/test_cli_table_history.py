"""What commands read out of a table's metadata: which snapshot was main when, how far each goes, what a query names."""

from typing import Any

import pytest
from typer import Exit

from lakestream.cli.options import parse_time
from lakestream.cli.tables.history import TableHistory, read_history, uncovered
from lakestream.cli.tables.query import _named


def snapshot(number: int, parent: int | None, vector: str | None) -> dict[str, Any]:
    summary = {"operation": "append", "total-records": str(number * 10)}
    return {
        "snapshot-id": number,
        "parent-snapshot-id": parent,
        "timestamp-ms": number * 1000,
        "summary": summary if vector is None else summary | {"lakestream.frontier": vector},
    }


@pytest.fixture
def rolled_back() -> TableHistory:
    """1, 2, 3, back to 1 at 3.5 s, then 4; 9 is an engine's, from before the table was a stream's."""
    return read_history(
        ("default", "orders"),
        {
            "table-uuid": "u",
            "properties": {"lakestream.frontier": "8,4", "lakestream.topic": "Orders"},
            "current-snapshot-id": 4,
            "snapshots": [
                snapshot(1, None, "3,1"),
                snapshot(2, 1, "5,1"),
                snapshot(3, 2, "7,4"),
                snapshot(4, 1, "8,4"),
                snapshot(9, None, None),
            ],
            "refs": {"main": {"snapshot-id": 4, "type": "branch"}, "7": {"snapshot-id": 3, "type": "tag"}},
            "snapshot-log": [
                {"timestamp-ms": since_ms, "snapshot-id": number}
                for since_ms, number in ((1000, 1), (2000, 2), (3000, 3), (3500, 1), (4000, 4))
            ],
        },
    )


def test_what_was_rolled_back_is_not_on_main(rolled_back: TableHistory) -> None:
    assert [each.snapshot_id for each in rolled_back.snapshots if each.on_main] == [1, 4]
    assert rolled_back.current == rolled_back.by_id(4)
    assert (rolled_back.table, rolled_back.topic, rolled_back.frontier) == ("default.orders", "Orders", (8, 4))


@pytest.mark.parametrize(
    ("timestamp_ms", "expected"), [(999, None), (1000, 1), (3499, 3), (3500, 1), (3999, 1), (4000, 4), (9999, 4)]
)
def test_a_time_means_what_main_was_then(rolled_back: TableHistory, timestamp_ms: int, expected: int | None) -> None:
    found = rolled_back.at(timestamp_ms)
    assert (None if found is None else found.snapshot_id) == expected


def test_a_snapshot_is_found_by_tag_before_id(rolled_back: TableHistory) -> None:
    for text, expected in (("7", 3), ("main", 4), ("2", 2)):
        found = rolled_back.find(text)
        assert found is not None
        assert found.snapshot_id == expected
    assert rolled_back.find("none") is None
    assert rolled_back.find("77") is None


@pytest.mark.parametrize(
    ("committed", "expected"),
    [({}, None), ({0: 3}, None), ({0: 3, 1: 1}, 1), ({0: 7, 1: 4}, 1), ({0: 8, 1: 4}, 4), ({0: 99, 1: 99}, 4)],
)
def test_the_newest_snapshot_that_was_read_to_its_end(
    rolled_back: TableHistory, committed: dict[int, int], expected: int | None
) -> None:
    found = rolled_back.consumed(committed)
    assert (None if found is None else found.snapshot_id) == expected


def test_a_table_without_snapshots_has_no_past() -> None:
    empty = read_history(("default", "t"), {"table-uuid": "u", "current-snapshot-id": -1})
    assert (empty.current, empty.at(1), empty.consumed({0: 1}), empty.snapshots) == (None, None, None, ())


def test_uncovered_offsets_are_told_partition_by_partition() -> None:
    assert uncovered((3, 1), (5, 1)) == ["3 to 4 of partition 0"]
    assert uncovered((3,), (3, 2)) == ["0 to 1 of partition 1"]
    assert uncovered((9, 9), (5, 1)) == []


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("SELECT 1 FROM orders", [("orders",)]),
        ('FROM orders AS o JOIN "default".x USING (_offset)', [("default", "x"), ("orders",)]),
        ('FROM lake."default".y', [("lake", "default", "y")]),
        ("WITH w AS (SELECT * FROM a) SELECT * FROM w, b", [("a",), ("b",)]),
        ("SELECT 1 FROM a WHERE n IN (SELECT m FROM c) UNION ALL SELECT 2 FROM d", [("a",), ("c",), ("d",)]),
    ],
)
def test_the_tables_that_a_query_names(sql: str, names: list[tuple[str, ...]]) -> None:
    assert _named(sql) == names


@pytest.mark.parametrize("sql", ["SELEC 1", "SELECT 1", "DROP TABLE orders"])
def test_what_names_no_table_cannot_be_asked_of_the_past(sql: str) -> None:
    with pytest.raises(Exit):
        _named(sql)


def test_times_are_iso_or_milliseconds() -> None:
    assert parse_time("1500") == 1500
    assert parse_time("1970-01-01T00:00:01.5Z") == parse_time("1970-01-01T01:00:01.5+01:00") == 1500
    assert parse_time("1970-01-02") == 86_400_000
    with pytest.raises(Exit):
        parse_time("soon")
