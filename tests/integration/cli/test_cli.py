"""The client commands against a real broker, and help and sentences without one."""

import json
import subprocess
import sys

import pytest

NOBODY = "127.0.0.1:9"


@pytest.mark.parametrize(
    "command",
    ["up", "topic", "produce", "consume", "table", "demo", "topic create", "table query"],
)
def test_help_explains_itself(cli, command: str) -> None:
    done = cli(*command.split(), "--help")
    assert done.returncode == 0, done.stderr
    assert "Usage: lakestream" in done.stdout
    assert "--help" in done.stdout


def test_the_overview_imports_nothing_heavy() -> None:
    watch = "import sys; sys.argv=['lakestream','--help']; from lakestream.cli import main"
    code = f"{watch}\ntry:\n    main()\nexcept SystemExit:\n    pass\nprint(sorted(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stderr.replace("'", '"')))
    assert "typer" in loaded
    assert loaded.isdisjoint({"pyspark", "numba", "pyarrow", "pyiceberg", "duckdb", "confluent_kafka", "kio"})


@pytest.mark.parametrize("command", ["topic", "produce", "consume", "demo"])
def test_client_commands_are_light(command: str) -> None:
    code = f"import sys, lakestream.cli.clients.{command}; print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout.replace("'", '"')))
    assert loaded.isdisjoint({"pyspark", "numba", "pyarrow", "pyiceberg", "kio"})


def test_an_unknown_command_is_one_message(cli) -> None:
    done = cli("topik")
    assert done.returncode == 2
    assert "No such command" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", [("topic", "list"), ("consume", "orders")])
def test_no_broker_is_one_sentence(cli, command: tuple[str, ...]) -> None:
    done = cli(*command, "--bootstrap", NOBODY)
    assert done.returncode == 1
    assert f"no broker answers at {NOBODY}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", [("table", "describe", "orders"), ("table", "query", "SELECT 1")])
def test_no_catalog_is_one_sentence(cli, command: tuple[str, ...]) -> None:
    done = cli(*command, "--catalog", "http://127.0.0.1:9/iceberg")
    assert done.returncode == 1
    assert "no catalog answers" in done.stderr
    assert "Traceback" not in done.stderr


def test_topics_from_birth_to_death(cli, cluster) -> None:
    where = ("--bootstrap", cluster().bootstrap)
    assert json.loads(cli("topic", "list", "--json", *where).stdout) == []
    assert json.loads(cli("topic", "create", "orders", "-p", "3", "--json", *where).stdout)["partitions"] == 3
    again = cli("topic", "create", "orders", *where)
    assert again.returncode == 1
    assert "was not created" in again.stderr
    assert json.loads(cli("topic", "list", "--json", *where).stdout) == [{"topic": "orders", "partitions": 3}]
    assert "orders" in cli("topic", "list", *where).stdout
    assert cli("topic", "delete", "orders", "--yes", *where).returncode == 0
    assert json.loads(cli("topic", "list", "--json", *where).stdout) == []
    gone = cli("topic", "describe", "orders", *where)
    assert gone.returncode == 1
    assert "there is no topic 'orders'" in gone.stderr
    assert json.loads(cli("topic", "list", "--json", *where).stdout) == [], "asking must not create it"


def test_what_is_produced_is_consumed(cli, cluster) -> None:
    where = ("--bootstrap", cluster().bootstrap)
    produced = cli("produce", "words", "--key-separator", ":", "-H", "from=test", "--json", *where, stdin="a:1\nb:2\n")
    assert json.loads(produced.stdout)["acked"] == 2, produced.stderr
    assert cli("produce", "words", "plain", *where).returncode == 0
    assert cli("consume", "words", "-B", "-e", *where).stdout == "1\n2\nplain\n"
    lines = cli("consume", "words", "-B", "-e", "--json", *where).stdout.splitlines()
    records = [json.loads(line) for line in lines]
    assert [(record["offset"], record["key"], record["value"]) for record in records] == [
        (0, "a", "1"),
        (1, "b", "2"),
        (2, None, "plain"),
    ]
    assert records[0]["headers"] == [{"name": "from", "value": "test"}]
    assert cli("consume", "words", "-p", "0", "-o", "1", "-n", "1", *where).stdout == "2\n"
    described = json.loads(cli("topic", "describe", "words", "--json", *where).stdout)
    assert described["partitions"] == [{"partition": 0, "start_offset": 0, "end_offset": 3, "records": 3}]


def test_a_group_remembers_how_far_it_read(cli, cluster) -> None:
    where = ("--bootstrap", cluster().bootstrap)
    cli("produce", "words", "one", "two", *where)
    assert cli("consume", "words", "-g", "readers", "-B", "-n", "2", *where).stdout == "one\ntwo\n"
    cli("produce", "words", "three", *where)
    assert cli("consume", "words", "-g", "readers", "-B", "-n", "1", *where).stdout == "three\n"


def test_the_demo_writes_orders(cli, cluster) -> None:
    where = ("--bootstrap", cluster().bootstrap)
    done = cli("demo", "--count", "50", "--rate", "1000", "--seed", "1", "--json", *where)
    assert json.loads(done.stdout) == {"topic": "orders", "acked": 50}, done.stderr
    values = [json.loads(line) for line in cli("consume", "orders", "-B", "-e", *where).stdout.splitlines()]
    assert len(values) == 50
    assert all(value["amount"] > 0 and value["item"] and value["customer"] for value in values)
