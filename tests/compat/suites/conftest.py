"""Clusters for other people's tests: ours, and beside it a real Kafka. They take an hour, so nothing but `make compat`
runs them."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.servers.apache_kafka import apache_kafka
from support.suites.librdkafka import NUM_PARTITIONS
from support.worlds.processes import ProcessWorld

collect_ignore_glob = [] if "LAKESTREAM_SUITES" in os.environ else ["test_*.py"]


@pytest.fixture(params=["lakestream", "kafka"])
def seeds(
    request: pytest.FixtureRequest, cluster: Callable[..., ProcessWorld], java: str, kafka_libs: str, tmp_path: Path
) -> Iterator[str]:
    """The address of one broker."""
    if request.param == "lakestream":
        yield cluster(environment={"LAKESTREAM_KAFKA_NUM_PARTITIONS": NUM_PARTITIONS}).bootstrap
        return
    # Tests count the rebalances of members that come one after the other: groups wait for them as they do by default.
    settings = {"num.partitions": NUM_PARTITIONS, "group.initial.rebalance.delay.ms": "3000"}
    with apache_kafka(tmp_path / "kafka", java, kafka_libs, settings) as (host, port):
        yield f"{host}:{port}"


@pytest.fixture
def differs(request: pytest.FixtureRequest) -> Callable[[dict[str, str]], dict[str, str]]:
    """Of what passes on Kafka and is known not to pass here, nothing is expected there."""

    def of(known: dict[str, str]) -> dict[str, str]:
        return known if request.node.callspec.params["seeds"] == "lakestream" else {}

    return of
