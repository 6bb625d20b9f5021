"""Tables of an external catalog that no topic can go on in: each is refused with its reason, and left as it is."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField
from support.servers.catalogs import sql_place
from support.worlds.takeover import ALIAS, Scene, on
from support.worlds.topic import foreign_rows

from lakestream.errors import InvalidSetting
from lakestream.table.schema import FRONTIER_PROPERTY

pytestmark = pytest.mark.filterwarnings("ignore:Parquet writer option")


def partitioned(scene: Scene) -> None:
    scene.engine_table(partition_spec=PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "p")))


def in_order(scene: Scene) -> None:
    scene.engine_table(sort_order=SortOrder(SortField(source_id=2, transform=IdentityTransform())))


def other_columns(scene: Scene) -> None:
    scene.engine_table(Schema(NestedField(1, "amount", LongType())))


def other_types(scene: Scene) -> None:
    scene.engine_table(Schema(NestedField(1, "_value", IntegerType())))


def elsewhere(scene: Scene) -> None:
    scene.engine_table(location=f"{scene.place.bucket_url}-of-others/orders")


def with_rows(scene: Scene) -> None:
    scene.engine_table().append(foreign_rows(0))


def with_a_claim_of_rows(scene: Scene) -> None:
    with_rows(scene)
    with scene.table().transaction() as change:
        change.set_properties({FRONTIER_PROPERTY: "5"})


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (partitioned, "it is partitioned, or was"),
        (in_order, "it has a sort order"),
        (other_columns, "its column amount is none that a stream fills"),
        (other_types, "its column _value is int, and a stream writes binary"),
        (elsewhere, "and brokers read"),
        (with_rows, "it has rows that no stream wrote"),
        (with_a_claim_of_rows, "which is not what the pipeline wrote"),
    ],
)
async def test_what_cannot_be_a_streams_table_is_refused_and_left_as_it_is(
    tmp_path: Path, make: Callable[[Scene], None], reason: str
) -> None:
    async def test(scene: Scene) -> None:
        make(scene)
        before = scene.table().metadata_location
        house = await scene.cluster()
        with pytest.raises(InvalidSetting, match=f"orders cannot be: a table of that name is there, and .*{reason}"):
            await house.streams.create_topic("orders", 1, ALIAS)
        assert await house.streams.topics.list() == []
        assert scene.table().metadata_location == before

    await on(sql_place(tmp_path), test)
