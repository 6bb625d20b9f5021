"""What owners write into the properties of tables, sense or not: no commit of anybody may fail over it."""

from collections.abc import Iterator
from uuid import UUID

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from support.tables.files import Door, open_door

pytestmark = pytest.mark.filterwarnings("ignore:Failed to delete old metadata after commit")
"""PyIceberg's client stumbles over some of them, too, when its commit is done."""

ODD = {
    "no boolean": {"gc.enabled": "maybe"},
    "no boolean either": {"write.metadata.delete-after-commit.enabled": "maybe"},
    "no layout": {"write.object-storage.enabled": "maybe", "write.object-storage.partitioned-paths": "maybe"},
    "a layout of objects": {"write.object-storage.enabled": "true"},
    "a class": {"write.py-location-provider.impl": "nowhere.Provider"},
    "no class": {"write.py-location-provider.impl": "Provider"},
    "no metrics mode": {"write.metadata.metrics.default": "most"},
    "no metrics mode of a column": {"write.metadata.metrics.column._value": "truncate(x)"},
    "no length": {"write.metadata.metrics.column._stream_partition": "truncate(0)"},
    "no metrics": {"write.metadata.metrics.default": "none", "write.metadata.metrics.column._offset": "none"},
    "no ages": {"history.expire.max-snapshot-age-ms": "old", "history.expire.min-snapshots-to-keep": "all"},
    "no name": {"": "x"},
}


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    with open_door(tmp_path_factory.mktemp("door")) as opened:
        yield opened


@pytest.fixture(scope="module")
def rest(door: Door) -> Iterator[RestCatalog]:
    catalog = RestCatalog("lake", uri=door.uri)
    yield catalog
    catalog.close()


@pytest.mark.parametrize("what", ODD)
def test_the_stream_goes_on(door: Door, rest: RestCatalog, what: str) -> None:
    number = list(ODD).index(what)
    topic_id, name = UUID(int=(4 << 76) + (2 << 62) + number), f"odd{number}"
    door.create(topic_id, name)
    door.append(3, topic_id=topic_id)
    with rest.load_table(f"default.{name}").transaction() as change:
        change.set_properties(ODD[what])
    assert rest.load_table(f"default.{name}").properties.items() >= ODD[what].items()
    assert door.append(2, topic_id=topic_id).frontier == (5,)
    assert door.append(1, topic_id=topic_id).frontier == (6,)
    table = rest.load_table(f"default.{name}")
    assert table.scan().to_arrow().num_rows == 6
    files = table.inspect.files()
    for column in ("_stream_partition", "_offset", "_timestamp"):
        for metrics in files["readable_metrics"].to_pylist():
            assert metrics[column]["lower_bound"] is not None, "consumers and retention go by the bounds"


def test_a_table_of_an_engine_keeps_its_odd_properties(rest: RestCatalog) -> None:
    schema = Schema(NestedField(1, "n", LongType()))
    for number, properties in enumerate(ODD.values()):
        table = rest.create_table(f"default.own{number}", schema, properties=properties)
        with table.transaction() as change:
            change.set_properties(note="kept")
        assert rest.load_table(f"default.own{number}").properties.items() >= {**properties, "note": "kept"}.items()
        rest.drop_table(f"default.own{number}")
