"""Apache Kafka's own command line tools as clients."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.worlds.processes import ProcessWorld

pytestmark = pytest.mark.java

Tool = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def tool(java: str, kafka_libs: str, tmp_path: Path) -> Tool:
    """Runs one of Kafka's tools to its end."""
    quiet = tmp_path / "log4j2.properties"
    quiet.write_text("status = error\nrootLogger.level = error\n")

    def run(name: str, *arguments: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        command = [java, "-Xmx256m", "-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={quiet}"]
        command += ["-cp", f"{kafka_libs}/*", f"org.apache.kafka.tools.{name}", *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=90, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    return run


def test_console_producer_and_consumer(cluster: Callable[..., ProcessWorld], tool: Tool) -> None:
    where = ("--bootstrap-server", cluster().bootstrap)
    tool("TopicCommand", "--create", "--topic", "words", "--partitions", "2", *where)
    keyed = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    text = "".join(f"k{number}:v{number}\n" for number in range(20))
    tool("ConsoleProducer", "--topic", "words", *keyed, *where, stdin=text)
    reading = ("--from-beginning", "--max-messages", "20", "--timeout-ms", "30000")
    shown = ("--formatter-property", "print.key=true", "--formatter-property", "key.separator=:")
    read = tool("consumer.ConsoleConsumer", "--topic", "words", *reading, *shown, *where)
    assert sorted(read.stdout.splitlines()) == sorted(text.splitlines())


def test_a_group_goes_on_where_it_stopped(cluster: Callable[..., ProcessWorld], tool: Tool) -> None:
    where = ("--bootstrap-server", cluster().bootstrap)
    group = ("--topic", "words", "--group", "readers", "--timeout-ms", "30000")
    tool("ConsoleProducer", "--topic", "words", "--compression-codec", "zstd", *where, stdin="a\nb\nc\n")
    first = tool("consumer.ConsoleConsumer", *group, "--from-beginning", "--max-messages", "2", *where)
    second = tool("consumer.ConsoleConsumer", *group, "--max-messages", "1", *where)
    assert first.stdout.splitlines() + second.stdout.splitlines() == ["a", "b", "c"]


def test_topics(cluster: Callable[..., ProcessWorld], tool: Tool) -> None:
    where = ("--bootstrap-server", cluster().bootstrap)
    tool("TopicCommand", "--create", "--topic", "orders", "--partitions", "3", *where)
    assert tool("TopicCommand", "--list", *where).stdout.split() == ["orders"]
    described = tool("TopicCommand", "--describe", "--topic", "orders", *where).stdout
    assert "PartitionCount: 3" in described
    assert described.count("Partition: ") == 3
    tool("TopicCommand", "--delete", "--topic", "orders", *where)
    assert tool("TopicCommand", "--list", *where).stdout.split() == []
