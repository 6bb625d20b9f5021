"""librdkafka's own tests: a program that runs those whose number it is given against a cluster."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from support.suites.suites import suite

KAFKA: Final = "4.3.1"
"""The version that the tests are told: some are about newer brokers only."""
NUM_PARTITIONS: Final = "4"
"""They take for granted that topics are made with so many, in the tests' default scenario."""


def kafka_tools(folder: Path, java: str, libraries: str) -> Path:
    """A folder like that of Kafka's distribution with the one tool that the tests call."""
    tool = folder / "bin" / "kafka-topics.sh"
    tool.parent.mkdir(parents=True)
    tool.write_text(
        "#!/bin/sh\n"
        f"exec '{java}' -Xmx128m -XX:TieredStopAtLevel=1 -cp '{libraries}/*' "
        'org.apache.kafka.tools.TopicCommand "$@"\n'
    )
    tool.chmod(0o755)
    return folder


def run_test(
    number: str, bootstrap: str, folder: Path, tools: Path, timeout_s: float, scenario: str = "default"
) -> str:
    """Nothing if the tests of this number pass, else how they ended with the last of their output. Those that need no
    broker are left out (`-L`). Never `-Q`, which skips parts of them and calls that passed."""
    program = suite("librdkafka") / "tests" / "test-runner"
    config = folder / "test.conf"
    config.write_text(f"bootstrap.servers={bootstrap}\n")
    environment: Mapping[str, str] = os.environ | {
        "LD_LIBRARY_PATH": f"{program.parents[1] / 'src'}:{program.parents[1] / 'src-cpp'}",
        "RDKAFKA_TEST_CONF": str(config),
        "TESTS": number,
        "TEST_KAFKA_VERSION": KAFKA,
        "CI": "true",
        "KAFKA_PATH": str(tools),
        "BROKERS": bootstrap,
    }
    output = folder / f"{number}.log"
    with output.open("wb") as written:
        process = subprocess.Popen(
            [str(program), "-L", "-p1", "-s", scenario],
            cwd=program.parent,
            env=environment,
            stdout=written,
            stderr=written,
        )
        try:
            code: int | None = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            code = None
    text = output.read_text(errors="replace")
    if code == 0 and "PASSED" in text:
        return ""
    return f"{'no end' if code is None else code}\n{text[-6000:]}"
