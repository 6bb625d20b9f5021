"""A commit's updates as a server has to take them: ids that are free, format version 3, requirements in known words."""

from typing import Any
from uuid import UUID

import pytest
from pydantic import TypeAdapter
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.types import LongType, NestedField

from lakestream.catalog.engines.changes import apply_updates, check_requirements
from lakestream.catalog.files import metadata_json
from lakestream.errors import Conflict, RequestError

UPDATES: TypeAdapter[list[TableUpdate]] = TypeAdapter(list[TableUpdate])
REQUIREMENTS: TypeAdapter[list[TableRequirement]] = TypeAdapter(list[TableRequirement])
SCHEMA = Schema(NestedField(1, "n", LongType(), required=False))


def table() -> TableMetadata:
    return new_table_metadata(
        SCHEMA, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "file:///t", {"old": "1"}, UUID(int=1)
    )


def changed(base: TableMetadata, *updates: dict[str, Any]) -> TableMetadata:
    return apply_updates(base, UPDATES.validate_python(list(updates)), "file:///t/0.json", validate=True)


def order(order_id: int, direction: str) -> dict[str, Any]:
    field = {"source-id": 1, "transform": "identity", "direction": direction, "null-order": "nulls-first"}
    return {"action": "add-sort-order", "sort-order": {"order-id": order_id, "fields": [field]}}


def test_an_id_that_is_taken_by_now_is_replaced() -> None:
    last = {"action": "set-default-sort-order", "sort-order-id": -1}
    first = changed(table(), order(1, "asc"), last)
    second = changed(first, order(1, "desc"), last)
    assert (first.default_sort_order_id, second.default_sort_order_id) == (1, 2)
    back = changed(second, order(9, "asc"), last)
    assert (back.default_sort_order_id, len(back.sort_orders)) == (1, 3)
    schema = SCHEMA.model_dump() | {"schema-id": 7}
    same = changed(back, {"action": "add-schema", "schema": schema}, {"action": "set-current-schema", "schema-id": -1})
    assert (same.current_schema_id, len(same.schemas)) == (0, 1)


def test_what_is_not_there_is_removed_without_a_word() -> None:
    after = changed(table(), {"action": "remove-properties", "removals": ["old", "never"]})
    assert after.properties == {}
    assert apply_updates(after, [], None, validate=True) is after


def test_format_version_3_is_kept_as_it_is() -> None:
    upgraded = changed(table(), {"action": "upgrade-format-version", "format-version": 3})
    assert upgraded.format_version == 3
    assert upgraded.metadata_log[-1].metadata_file == "file:///t/0.json"
    text = metadata_json(upgraded)
    assert '"next-row-id":0' in text
    assert TableMetadataUtil.parse_raw(text) == upgraded
    with pytest.raises(RequestError, match="downgrade"):
        changed(upgraded, {"action": "upgrade-format-version", "format-version": 2})
    snapshot = {"snapshot-id": 5, "sequence-number": 1, "timestamp-ms": 10**12, "manifest-list": "m", "schema-id": 0}
    snapshot |= {"summary": {"operation": "append"}}
    adding = {"action": "add-snapshot", "snapshot": snapshot | {"first-row-id": 0, "added-rows": 3}}
    assert '"next-row-id":3' in metadata_json(changed(upgraded, adding))
    with pytest.raises(RequestError, match="row"):
        changed(upgraded, {"action": "add-snapshot", "snapshot": snapshot | {"first-row-id": 0}})


@pytest.mark.parametrize(("version", "late"), [("1", False), ("2", True)])
def test_a_snapshot_with_a_number_that_is_given_by_now_conflicts(version: str, late: bool) -> None:
    properties = {"format-version": version}
    base = new_table_metadata(SCHEMA, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "file:///t", properties)
    snapshot = {"sequence-number": 1, "timestamp-ms": 10**14, "manifest-list": "m", "summary": {"operation": "append"}}
    first = changed(base, {"action": "add-snapshot", "snapshot": snapshot | {"snapshot-id": 1}})
    second = {"action": "add-snapshot", "snapshot": snapshot | {"snapshot-id": 2, "parent-snapshot-id": 1}}
    if late:
        with pytest.raises(Conflict, match="somebody else has committed meanwhile"):
            changed(first, second)
        ahead = {"snapshot-id": 3, "parent-snapshot-id": 1, "sequence-number": 3}
        with pytest.raises(RequestError, match="sequence number 3: the next is 2"):
            changed(first, {"action": "add-snapshot", "snapshot": snapshot | ahead})
    else:
        assert len(changed(first, second).snapshots) == 2


@pytest.mark.parametrize(
    ("requirement", "words"),
    [
        ({"type": "assert-create"}, "table already exists"),
        ({"type": "assert-table-uuid", "uuid": str(UUID(int=2))}, "UUID does not match"),
        ({"type": "assert-current-schema-id", "current-schema-id": 4}, "current schema changed: expected id 4 != 0"),
        ({"type": "assert-last-assigned-field-id", "last-assigned-field-id": 4}, "last assigned field id changed"),
        ({"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 4}, "last assigned partition id"),
        ({"type": "assert-default-spec-id", "default-spec-id": 4}, "default partition spec changed"),
        ({"type": "assert-default-sort-order-id", "default-sort-order-id": 4}, "default sort order changed"),
        ({"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 4}, "branch or tag main is missing"),
    ],
)
def test_a_requirement_that_fails_says_so_in_known_words(requirement: dict[str, Any], words: str) -> None:
    with pytest.raises(Conflict, match=f"^Requirement failed: .*{words}"):
        check_requirements(table(), REQUIREMENTS.validate_python([requirement]))


def test_a_branch_that_must_not_be_there_may_be_missing() -> None:
    wanted = [{"type": "assert-ref-snapshot-id", "ref": "b", "snapshot-id": None}]
    check_requirements(table(), REQUIREMENTS.validate_python(wanted))
