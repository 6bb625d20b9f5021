"""librdkafka's own tests, as they come, against us and a real Kafka."""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.suites.known import LIBRDKAFKA
from support.suites.librdkafka import NUM_PARTITIONS, kafka_tools, run_test
from support.suites.suites import suite
from support.worlds.processes import ProcessWorld

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.timeout(5400)]

PASS_ON_KAFKA = """
0001 0002 0003 0005 0007 0008 0011 0012 0013 0014 0015 0016 0017 0018 0019 0020 0021 0022 0026 0029 0030 0031 0033 0034
0035 0036 0038 0039 0040 0041 0042 0044 0045 0048 0049 0050 0051 0052 0054 0056 0057 0059 0060 0061 0063 0064 0065
0067 0068 0069 0070 0073 0075 0076 0082 0083 0084 0085 0086 0088 0089 0090 0091 0093 0094 0099 0102 0112 0113 0114
0118 0122 0123 0125 0127 0130 0132 0137 0139 0140 0153
"""
TRANSACTIONS = "0103"
WITHOUT_AUTO_CREATION = "0045 0107 0111"
LONGEST_S = 900.0


@pytest.fixture
def tools(java: str, kafka_libs: str, tmp_path: Path) -> Path:
    if not suite("librdkafka").exists():
        pytest.skip("librdkafka's tests are missing: `make compat` builds them")
    return kafka_tools(tmp_path / "tools", java, kafka_libs)


def _failed(numbers: str, seeds: str, folder: Path, tools: Path, scenario: str = "default") -> dict[str, str]:
    """How those ended that did not pass."""
    found = {}
    for number in numbers.split():
        ended = run_test(number, seeds, folder, tools, LONGEST_S, scenario)
        print(number, "failed" if ended else "passed", flush=True)
        if ended:
            found[number] = ended
    return found


def test_those_that_pass_on_kafka(
    seeds: str, tools: Path, differs: Callable[[dict[str, str]], dict[str, str]], tmp_path: Path
) -> None:
    found = _failed(PASS_ON_KAFKA, seeds, tmp_path, tools)
    assert found.keys() == differs(LIBRDKAFKA).keys(), "\n".join(found.values())


def test_transactions(cluster: Callable[..., ProcessWorld], tools: Path, tmp_path: Path) -> None:
    """Their topics want three replicas, which a Kafka of one node has not."""
    seeds = cluster(environment={"LAKESTREAM_KAFKA_NUM_PARTITIONS": NUM_PARTITIONS}).bootstrap
    assert _failed(TRANSACTIONS, seeds, tmp_path, tools) == {}


def test_those_that_want_no_topic_made_by_itself(
    cluster: Callable[..., ProcessWorld], tools: Path, tmp_path: Path
) -> None:
    """A Kafka of one node fails two of them."""
    environment = {"LAKESTREAM_KAFKA_NUM_PARTITIONS": NUM_PARTITIONS, "LAKESTREAM_KAFKA_AUTO_CREATE_TOPICS": "false"}
    seeds = cluster(environment=environment).bootstrap
    assert _failed(WITHOUT_AUTO_CREATION, seeds, tmp_path, tools, "noautocreate") == {}
