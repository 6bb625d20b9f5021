"""franz-go's own tests, as they come: against us and a real Kafka, and three brokers that are killed in turn."""

import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from support.suites.go import run_tests
from support.suites.known import FRANZ_GO
from support.suites.suites import suite
from support.worlds.processes import ProcessWorld

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

LIMITS = {"KGO_TEST_RF": "1", "KGO_TEST_RECORDS": "20000", "KGO_TEST_MAX_TOPIC_PARTS": "7", "KGO_LOG_LEVEL": "none"}
EXACTLY_ONCE = "^(TestGroupETL|TestTxnEtl)$"
TIMEOUT_S = 900.0
QUICK = {
    "LAKESTREAM_STREAM_BROKER_TTL_MS": "3000",
    "LAKESTREAM_KAFKA_GROUPS_LEASE_TTL_MS": "1500",
    "LAKESTREAM_KAFKA_TRANSACTIONS_SWEEP_INTERVAL_MS": "500",
}
BETWEEN_KILLS_S = 5.0
OF_ITS_SOURCE = "^TestOptValuesCoversEveryOption$"
"""Reads files of the client."""


@pytest.fixture
def program() -> Path:
    found = suite("franz-go.test")
    if not found.exists():
        pytest.skip("franz-go's tests are missing: `make compat` builds them")
    return found


OVERTAKEN = "unable to commit: REBALANCE_IN_PROGRESS"
"""What franz-go makes of a commit during which the member lost partitions in the newer protocol, where no broker sends
that code. Its tests take it for a failure outside of a rebalance, where it may come while brokers are gone."""


def _failed(outcomes: dict[str, str]) -> set[str]:
    return {name for name, outcome in outcomes.items() if outcome == "FAIL"}


def _overtaken(text: str) -> set[str]:
    """Tests of the newer protocol that failed for that reason, and the one that they are part of."""
    names = set(re.findall(rf"=== NAME  (TestGroupETL/\S+/848\S*)\n(?: +\S+ deleting .*\n)* +\S+ {OVERTAKEN}", text))
    return names | ({"TestGroupETL"} if names else set())


def test_all_of_them(
    program: Path, seeds: str, differs: Callable[[dict[str, str]], dict[str, str]], tmp_path: Path
) -> None:
    output = tmp_path / "franz-go.log"
    outcomes = run_tests(program, output, ".", LIMITS | {"KGO_SEEDS": seeds}, TIMEOUT_S, OF_ITS_SOURCE)
    assert _failed(outcomes) == differs(FRANZ_GO).keys(), output.read_text(errors="replace")[-8000:]
    assert sum(name.startswith(("TestGroupETL/", "TestTxnEtl/")) for name in outcomes) >= 12


@pytest.mark.parametrize("killed", [False, True])
def test_groups_and_transactions_on_three_brokers(
    program: Path, cluster: Callable[..., ProcessWorld], tmp_path: Path, killed: bool
) -> None:
    brokers = cluster(brokers=3, environment=QUICK)
    output, done, kills = tmp_path / "franz-go.log", threading.Event(), []

    def kill_in_turn() -> None:
        # No more than once each: whoever is gone without a word is only missed after a session that nobody interrupts.
        for index in range(3):
            if done.wait(BETWEEN_KILLS_S):
                return
            brokers.brokers[index].kill()
            brokers.start_broker(index)
            kills.append(index)

    killer = threading.Thread(target=kill_in_turn)
    if killed:
        killer.start()
    try:
        outcomes = run_tests(program, output, EXACTLY_ONCE, LIMITS | {"KGO_SEEDS": brokers.bootstrap}, TIMEOUT_S)
    finally:
        done.set()
        if killed:
            killer.join()
    text = output.read_text(errors="replace")
    assert _failed(outcomes) <= (_overtaken(text) if killed else set()), text[-8000:]
    assert len(outcomes) >= 14
    assert len(kills) == 3 * killed
