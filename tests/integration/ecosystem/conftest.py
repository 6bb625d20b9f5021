"""What runs on top of Kafka, started as it comes and killed at the end of its test."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.clients.java_programs import JavaPrograms, class_path, ecosystem_jars


@pytest.fixture
def programs(java: str, tmp_path: Path) -> Iterator[Callable[..., JavaPrograms]]:
    """Programs on jars that are named: `programs(kafka_libs, "kafka-streams-*", "rocksdbjni-*")`."""
    made: list[JavaPrograms] = []

    def make(*places: str) -> JavaPrograms:
        folder = ecosystem_jars()
        found = [jar for place in places for jar in ([Path(place)] if "/" in place else sorted(folder.glob(place)))]
        if not any(folder.glob("*.jar")):
            pytest.skip("what runs on top of Kafka (LAKESTREAM_ECOSYSTEM_JARS) is missing: `make test-all` fetches it")
        made.append(JavaPrograms(java, class_path(*found), tmp_path))
        return made[-1]

    yield make
    for programs in made:
        programs.kill_all()
