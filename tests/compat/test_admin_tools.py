"""Apache Kafka's admin tools, as they come: what they print of our brokers."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.worlds.processes import ProcessWorld

pytestmark = [pytest.mark.java, pytest.mark.slow]

Tool = Callable[..., str]


@pytest.fixture
def tool(java: str, kafka_libs: str, tmp_path: Path) -> Tool:
    """Runs a tool to its end and returns what it prints."""
    quiet = tmp_path / "log4j2.properties"
    quiet.write_text("status = error\nrootLogger.level = error\n")

    def run(name: str, *arguments: str, code: int = 0) -> str:
        command = [java, "-Xmx256m", "-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={quiet}"]
        command += ["-cp", f"{kafka_libs}/*", name, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def test_topics_and_their_partitions(cluster: Callable[..., ProcessWorld], tool: Tool, tmp_path: Path) -> None:
    where = ("--bootstrap-server", cluster().bootstrap)
    topics = "org.apache.kafka.tools.TopicCommand"
    tool(topics, "--create", "--topic", "orders", "--partitions", "2", *where)
    tool(topics, "--alter", "--topic", "orders", "--partitions", "4", *where)
    described = tool(topics, "--describe", "--topic", "orders", *where)
    assert "PartitionCount: 4" in described
    assert len(re.findall(r"Partition: \d+\s+Leader: \d+", described)) == 4
    refused = tool(topics, "--alter", "--topic", "orders", "--partitions", "3", *where, code=1)
    assert "would not be more" in refused

    elected = tool(
        "org.apache.kafka.tools.LeaderElectionCommand", "--election-type", "preferred", "--all-topic-partitions", *where
    )
    assert "error" not in elected.lower()

    [leader] = set(re.findall(r"Leader: (\d+)", described))
    plan = tmp_path / "plan.json"
    moves = [{"topic": "orders", "partition": index, "replicas": [int(leader)]} for index in range(4)]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    reassign = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
    done = tool(reassign, "--reassignment-json-file", str(plan), "--execute", *where)
    assert "Successfully started partition reassignment" in done
    verified = tool(reassign, "--reassignment-json-file", str(plan), "--verify", *where)
    assert verified.count("is completed.") == 4
    assert "No partition reassignments found." in tool(reassign, "--list", *where)


def test_settings_and_quotas(cluster: Callable[..., ProcessWorld], tool: Tool) -> None:
    where = ("--bootstrap-server", cluster().bootstrap)
    tool("org.apache.kafka.tools.TopicCommand", "--create", "--topic", "orders", *where)
    configs = "kafka.admin.ConfigCommand"
    orders = ("--entity-type", "topics", "--entity-name", "orders")
    tool(configs, *where, *orders, "--alter", "--add-config", "retention.ms=5000")
    described = tool(configs, *where, *orders, "--describe")
    assert "retention.ms=5000" in described
    assert "DYNAMIC_TOPIC_CONFIG:retention.ms=5000" in described
    everything = tool(configs, *where, *orders, "--describe", "--all")
    assert "max.message.bytes=1048588" in everything

    client = ("--entity-type", "clients", "--entity-name", "etl")
    tool(configs, *where, *client, "--alter", "--add-config", "producer_byte_rate=1048576")
    quotas = tool(configs, *where, "--entity-type", "clients", "--describe")
    assert "client-id 'etl'" in quotas
    assert "producer_byte_rate=1048576" in quotas
    tool(configs, *where, *client, "--alter", "--delete-config", "producer_byte_rate")
    assert "etl" not in tool(configs, *where, "--entity-type", "clients", "--describe")


def test_the_cluster_and_its_groups(cluster: Callable[..., ProcessWorld], tool: Tool) -> None:
    where = ("--bootstrap-server", cluster().bootstrap)
    tool("org.apache.kafka.tools.TopicCommand", "--create", "--topic", "orders", "--partitions", "3", *where)
    perf = ("--topic", "orders", "--num-records", "1000", "--record-size", "100", "--throughput", "-1")
    tool("org.apache.kafka.tools.ProducerPerformance", *perf, *where)

    dirs = tool("org.apache.kafka.tools.LogDirsCommand", "--describe", "--topic-list", "orders", *where)
    told = json.loads(dirs[dirs.index('{"') :].splitlines()[0])
    sizes = {
        part["partition"]: part["size"]
        for broker in told["brokers"]
        for folder in broker["logDirs"]
        for part in folder["partitions"]
    }
    assert set(sizes) == {"orders-0", "orders-1", "orders-2"}
    assert sum(sizes.values()) > 10_000

    quorum = tool("org.apache.kafka.tools.MetadataQuorumCommand", *where, "describe", "--status")
    assert re.search(r"CurrentVoters:\s+\[\{", quorum)
    assert "org.apache.kafka" not in tool("org.apache.kafka.tools.ClusterTool", "cluster-id", *where)
    assert "Produce(0): 0 to 13" in tool("org.apache.kafka.tools.BrokerApiVersionsCommand", *where)

    groups = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    read = ("--topic", "orders", "--from-beginning", "--max-messages", "1000", "--timeout-ms", "60000")
    tool("org.apache.kafka.tools.consumer.ConsoleConsumer", *read, "--group", "readers", *where)
    assert tool(groups, "--list", *where).split() == ["readers"]
    assert re.search(r"readers\s+.*Empty", tool(groups, "--list", "--state", *where))
    described = tool(groups, "--describe", "--group", "readers", *where)
    assert len(re.findall(r"readers\s+orders\s+\d+\s+\d+\s+\d+\s+0", described)) == 3
    forgotten = tool(groups, "--delete-offsets", "--group", "readers", "--topic", "orders:1", *where)
    assert re.search(r"orders\s+1\s+Successful", forgotten)
    tool(groups, "--delete", "--group", "readers", *where)
    assert tool(groups, "--list", *where).split() == []
