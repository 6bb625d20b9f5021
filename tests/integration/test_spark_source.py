"""Spark reads, follows and writes topics, with a real broker, a real catalog and real table files."""

from collections.abc import Iterator
from typing import Any

import pytest
from support.source import Node, source_node

from lakestream.spark import register

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with source_node(tmp_path_factory.mktemp("source")) as opened:
        yield opened


@pytest.fixture
def lakestream(spark: Any) -> Any:
    register(spark)
    return spark


def read(spark: Any, node: Node, topic: str, **options: Any) -> Any:
    return spark.read.format("lakestream").options(**node.options, topic=topic, **options).load()


def places(frame: Any) -> list[tuple[int, int]]:
    rows = frame.select("_stream_partition", "_offset").collect()
    return sorted((row[0], row[1]) for row in rows)


def test_the_union_is_whole_wherever_the_records_are(lakestream: Any, node: Node) -> None:
    node.create("union")
    node.produce("union", 50, partition=0)
    node.produce("union", 30, partition=1)
    everything = [(0, n) for n in range(50)] + [(1, n) for n in range(30)]
    frame = read(lakestream, node, "union")
    tail = sorted(frame.collect())
    assert places(frame) == everything
    assert node.move() >= 80
    table = sorted(read(lakestream, node, "union").collect())
    assert table == tail
