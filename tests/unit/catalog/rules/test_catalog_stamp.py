"""Which offset vector the catalog writes into the snapshots of others."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetPropertiesUpdate, SetSnapshotRefUpdate, TableUpdate
from support.tables.files import ORDERS
from support.tables.stream_table import StreamTable, run_with_table

from lakestream.catalog.rules.stamp import stamped, vector_of
from lakestream.metadata.names.pointers import TableName
from lakestream.table.schema import FRONTIER_PROPERTY, UNPARTITIONED, iceberg_schema, stream_spec
from lakestream.table.shape import RAW
from lakestream.table.view import View


def snapshot(number: int, parent: int | None, vector: str | None = None, **summary: str) -> Snapshot:
    own = summary if vector is None else summary | {FRONTIER_PROPERTY: vector}
    return Snapshot.model_validate(
        {
            "snapshot-id": number,
            "parent-snapshot-id": parent,
            "sequence-number": number,
            "timestamp-ms": 1_700_000_000_000 + number,
            "manifest-list": f"file:///t/{number}.avro",
            "summary": Summary(Operation.APPEND, **own),
            "schema-id": 0,
        }
    )


def metadata(frontier: str | None, main: int | None, *snapshots: Snapshot) -> TableMetadataV2:
    return TableMetadataV2.model_validate(
        {
            "table-uuid": ORDERS,
            "location": "file:///t",
            "schemas": [iceberg_schema(RAW)],
            "current-schema-id": 0,
            "last-column-id": 14,
            "partition-specs": [UNPARTITIONED, stream_spec(RAW)],
            "default-spec-id": 1,
            "last-partition-id": 1001,
            "sort-orders": [],
            "default-sort-order-id": 0,
            "properties": {} if frontier is None else {FRONTIER_PROPERTY: frontier},
            "snapshots": list(snapshots),
            "current-snapshot-id": main,
            "refs": {} if main is None else {"main": {"type": "branch", "snapshot-id": main}},
            "last-updated-ms": 1_800_000_000_000,
            "last-sequence-number": 9,
        }
    )


def vectors(base: TableMetadataV2, *added: Snapshot) -> list[str | None]:
    done = stamped(base, [AddSnapshotUpdate(snapshot=each) for each in added])
    return [vector_of(update.snapshot) for update in done if isinstance(update, AddSnapshotUpdate)]


TWO = (snapshot(1, None, "10,0"), snapshot(2, 1, "20,5"))


@pytest.mark.parametrize(
    ("frontier", "main", "added", "expected"),
    [
        ("20,5", 2, [snapshot(3, 2)], ["20,5"]),
        ("20,5", 2, [snapshot(3, 2, "99,99")], ["20,5"]),
        ("20,5", 2, [snapshot(3, 1)], ["10,0"]),
        ("20,5", 2, [snapshot(3, 1), snapshot(4, 3)], ["10,0", "10,0"]),
        ("20,5", 2, [snapshot(3, 2), snapshot(4, 3)], ["20,5", "20,5"]),
        ("20,5", 2, [snapshot(3, None)], ["20,5"]),
        ("20,5", 2, [snapshot(3, 77)], ["20,5"]),
        ("20,5", 1, [snapshot(3, 1)], ["20,5"]),
        ("0,0", None, [snapshot(3, None)], ["0,0"]),
        (None, 2, [snapshot(3, 2)], [None]),
    ],
    ids=[
        "on main",
        "engines do not choose it",
        "on a branch that main left behind",
        "two in a row on that branch",
        "two in a row on main",
        "without a parent",
        "of a parent that is expired",
        "on main after a rollback",
        "the first",
        "not a stream's table",
    ],
)
def test_the_vector_is_that_of_what_it_was_made_from(
    frontier: str | None, main: int | None, added: list[Snapshot], expected: list[str | None]
) -> None:
    assert vectors(metadata(frontier, main, *(TWO if main else ())), *added) == expected


@given(st.dictionaries(st.text(min_size=1, max_size=8).filter(lambda key: key.lower() != "operation"), st.text()))
def test_nothing_else_is_changed(summary: Mapping[str, str]) -> None:
    before = snapshot(3, 2)
    before = before.model_copy(update={"summary": Summary(Operation.DELETE, **summary)})
    others: list[TableUpdate] = [
        SetPropertiesUpdate(updates={"a": "b"}),
        SetSnapshotRefUpdate.model_validate({"ref-name": "main", "type": "branch", "snapshot-id": 3}),
    ]
    base = metadata("20,5", 2, *TWO)
    [first, added, last] = stamped(base, [others[0], AddSnapshotUpdate(snapshot=before), others[1]])
    assert [first, last] == others
    assert isinstance(added, AddSnapshotUpdate)
    written = added.snapshot.summary
    assert written is not None
    assert written.operation is Operation.DELETE
    assert written.additional_properties == {**summary, FRONTIER_PROPERTY: "20,5"}
    assert added.snapshot.model_copy(update={"summary": None}) == before.model_copy(update={"summary": None})
    assert base.snapshots == list(TWO), "what is committed is left as it was"


def test_a_snapshot_that_says_nothing_of_itself_gets_one_too() -> None:
    bare = snapshot(3, 2).model_copy(update={"summary": None})
    assert vectors(metadata("20,5", 2, *TWO), bare) == ["20,5"]


async def test_the_catalog_stamps_tables_of_living_topics_only(tmp_path: Path) -> None:
    async def test(table: StreamTable, view: View) -> None:
        view = await table.append(view, 3)
        name = TableName(("default",), "orders")

        async def add(number: int, table_name: TableName) -> str | None:
            current = await table.tables.engines.load(table_name)
            newest = current.metadata.current_snapshot()
            assert newest is not None
            changed = newest.model_copy(
                update={
                    "snapshot_id": number,
                    "parent_snapshot_id": newest.snapshot_id,
                    "sequence_number": current.metadata.next_sequence_number(),
                    "timestamp_ms": current.metadata.last_updated_ms + 1,
                    "summary": Summary(Operation.REPLACE),
                }
            )
            ref = {"ref-name": "main", "type": "branch", "snapshot-id": number}
            updates = [AddSnapshotUpdate(snapshot=changed), SetSnapshotRefUpdate.model_validate(ref)]
            done = await table.tables.engines.commit(table_name, (), updates)
            return vector_of(done.metadata.current_snapshot())

        assert await add(3, name) == "3"
        detached = await table.tables.detach(ORDERS)
        assert detached == "default.orders__11111111"
        assert await add(4, TableName(("default",), "orders__11111111")) is None

    await run_with_table(tmp_path, test)
