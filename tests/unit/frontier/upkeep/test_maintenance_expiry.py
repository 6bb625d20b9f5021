"""Snapshots go by the owner's age, never what a branch or tag names, never more than the owner wants to keep."""

from pathlib import Path

import pytest
from pyiceberg.table.update import SetPropertiesUpdate, SetSnapshotRefUpdate
from support.tables.files import ORDERS
from support.tables.stream_table import StreamTable, run_with_table

from lakestream.catalog.manifests.expiry import plan_expiry
from lakestream.catalog.staging import Change
from lakestream.table.view import View

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("properties", "kept"),
    [
        ({}, 6),
        ({"history.expire.max-snapshot-age-ms": "sometime"}, 6),
        ({"history.expire.max-snapshot-age-ms": str(20 * DAY_MS)}, 6),
        ({"history.expire.max-snapshot-age-ms": str(DAY_MS)}, 2),
        ({"history.expire.max-snapshot-age-ms": str(DAY_MS), "history.expire.min-snapshots-to-keep": "4"}, 4),
    ],
)
async def test_snapshots_go_by_age_where_the_owner_wants_it(
    tmp_path: Path, properties: dict[str, str], kept: int
) -> None:
    async def test(table: StreamTable, view: View) -> None:
        view = await table.append(view)
        tag = SetSnapshotRefUpdate.model_validate({"ref-name": "kept", "type": "tag", "snapshot-id": view.snapshot_id})
        current = await table.tables.commits.load(ORDERS)
        assert current is not None
        changes = (tag, SetPropertiesUpdate(updates={"owner": "us"} | properties))
        await table.tables.commits.commit(current, lambda _metadata, _written: Change((), changes))
        view = await table.tables.load(ORDERS)
        for _ in range(5):
            view = await table.append(view, 1)
        current = await table.tables.commits.load(ORDERS)
        assert current is not None
        metadata = current.metadata
        now_ms = metadata.last_updated_ms
        assert plan_expiry(metadata, now_ms) == []
        gone = set(plan_expiry(metadata, now_ms + 10 * DAY_MS))
        left = [each for each in metadata.snapshots if each.snapshot_id not in gone]
        # With the one that the next commit adds; the tagged one stays whatever its age.
        assert len(left) == kept
        assert metadata.current_snapshot_id in {each.snapshot_id for each in left}
        assert metadata.refs["kept"].snapshot_id in {each.snapshot_id for each in left}

    await run_with_table(tmp_path, test)
